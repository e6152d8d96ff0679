//! Quick ratios on one machine: round trips under each strategy against the raw ping-pong of one cache line.
//!
//! ```text
//! cargo run --release -p ddss-ipc --example ring_ratio -- [raw|slots|mq|rmq|rcq|auto|pipe ..] [--clients N] [--millis M] [--shared] [--rounds R] [--batch]
//! ```
//!
//! The service runs on the last core; clients run on the others, or (`--shared`) anywhere. Compare figures of one run
//! only, since they drift between runs. The official figures come from the workspace's benchmarks.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for the eyes")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ddss_core::{ChannelId, Entry, NodeId};
use ddss_ipc::{
    Acceptor, AcceptorConfig, Access, AttachOptions, Attachment, Channel, ClientEvent, IdleMode, IpcServer,
    SharedMemory, Strategy, TracedRequest, WaitClass, WaitOutcome,
};
use rustix::event::{PollFd, PollFlags};
use rustix::thread::CpuSet;

const PATIENCE: Duration = Duration::from_secs(30);
/// Spin time of an idle service.
const SERVICE_SPIN: Duration = Duration::from_micros(50);
const RAW_BYTES: usize = 16384;

fn pin(cores: impl IntoIterator<Item = usize>) {
    let mut set = CpuSet::new();
    cores.into_iter().for_each(|core| set.set(core));
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

/// Counts the cores of the machine, whatever this thread is pinned to.
fn cores() -> usize {
    let all = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    all.trim().rsplit(['-', ',']).next().map_or(1, |last| last.parse::<usize>().unwrap() + 1)
}

#[derive(Clone)]
struct Plan {
    mode: String,
    clients: usize,
    millis: u64,
    shared: bool,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "client") {
        return client(&arguments[1..]);
    }
    if arguments.first().is_some_and(|first| first == "solo") {
        return solo();
    }
    let value = |name: &str, default: u64| {
        let at = arguments.iter().position(|argument| argument == name);
        at.map_or(default, |at| arguments[at + 1].parse().unwrap())
    };
    let modes: Vec<String> = ["raw", "slots", "mq", "rmq", "rcq", "auto", "pipe"]
        .into_iter()
        .filter(|mode| arguments.iter().any(|argument| argument == mode))
        .map(str::to_owned)
        .collect();
    println!("mode,clients,ops_per_s,p50_ns,p99_ns,p999_ns,longest_us,slowest_share,service_rests,service_wakes");
    for _ in 0..value("--rounds", 1) {
        for mode in &modes {
            let plan = Plan {
                mode: mode.clone(),
                clients: value("--clients", 1) as usize,
                millis: value("--millis", 1000),
                shared: arguments.iter().any(|argument| argument == "--shared"),
            };
            if mode == "raw" || mode == "slots" { raw(&plan) } else { strategy(&plan) }
        }
    }
}

/// Runs both sides in one thread: the cost of the instructions without transfers between cores.
fn solo() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut server = IpcServer::open(NodeId(1)).unwrap();
    let inbox = server.inbox();
    let _acceptor = Acceptor::start(&path, AcceptorConfig::new(&server), inbox.sink()).unwrap();
    let mut options = AttachOptions::default();
    options.channels = 1;
    let attachment = Attachment::connect(&path, &options).unwrap();
    let mut channel = attachment.take_channel().unwrap();
    let Some(ClientEvent::Attached(session)) = std::iter::repeat_with(|| server.next_event()).flatten().next() else {
        panic!("no next_event")
    };
    server.add_client(session).unwrap();
    let mut batch = Vec::with_capacity(256);
    let mut spent = [Duration::ZERO; 6];
    const CALLS: u32 = 1_000_000;
    let begin = Instant::now();
    for _ in 0..CALLS {
        channel.submit([0, 42, 0, 0, 0, 0, 0, 0]).unwrap();
        channel.ring_doorbell();
        take(&mut server, &mut batch);
        for (channel, mut entry) in batch.drain(..) {
            entry[1] = !entry[1];
            server.reply(channel, &entry);
        }
        server.flush();
        assert_eq!(channel.reap().unwrap()[1], !42);
    }
    println!("all {:?}", begin.elapsed() / CALLS);
    if std::env::args().nth(2).is_some() {
        return;
    }
    for _ in 0..CALLS {
        let t = Instant::now();
        channel.submit([0, 42, 0, 0, 0, 0, 0, 0]).unwrap();
        let t = {
            spent[0] += t.elapsed();
            Instant::now()
        };
        channel.ring_doorbell();
        let t = {
            spent[1] += t.elapsed();
            Instant::now()
        };
        take(&mut server, &mut batch);
        let t = {
            spent[2] += t.elapsed();
            Instant::now()
        };
        for (channel, mut entry) in batch.drain(..) {
            entry[1] = !entry[1];
            server.reply(channel, &entry);
        }
        let t = {
            spent[3] += t.elapsed();
            Instant::now()
        };
        server.flush();
        let t = {
            spent[4] += t.elapsed();
            Instant::now()
        };
        assert_eq!(channel.reap().unwrap()[1], !42);
        spent[5] += t.elapsed();
    }
    for (name, spent) in ["submit", "ring", "poll", "reply", "flush", "reap"].iter().zip(spent) {
        println!("{name} {:?}", spent / CALLS);
    }
    let t = Instant::now();
    for _ in 0..CALLS {
        take(&mut server, &mut batch);
    }
    println!("empty poll {:?}", t.elapsed() / CALLS);
    let t = Instant::now();
    for _ in 0..CALLS {
        std::hint::black_box(Instant::now());
    }
    println!("clock {:?}", t.elapsed() / CALLS);
    let t = Instant::now();
    for _ in 0..CALLS {
        std::hint::spin_loop();
    }
    println!("pause {:?}", t.elapsed() / CALLS);
}

fn spawn(plan: &Plan, path: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["client", &plan.mode, &plan.clients.to_string(), &plan.millis.to_string(), &plan.shared.to_string()])
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn finish(plan: &Plan, child: std::process::Child, rest: &str) {
    let output = child.wait_with_output().unwrap();
    print!("{},{},{}{rest}", plan.mode, plan.clients, String::from_utf8_lossy(&output.stdout).trim_end());
    println!();
}

fn raw(plan: &Plan) {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("line");
    let memory = SharedMemory::create_file(&path, RAW_BYTES).unwrap();
    let child = spawn(plan, &path);
    let slots = plan.mode == "slots";
    std::thread::spawn(move || {
        pin([cores() - 1]);
        if slots { answer_slots(&memory) } else { answer_line(&memory) }
    });
    finish(plan, child, ",0,0");
}

/// Answers through one cache line: odd numbers from the client, even ones back.
fn answer_line(memory: &SharedMemory) {
    loop {
        let seen = memory.load(0, Ordering::Acquire).unwrap();
        if seen == u64::MAX {
            return;
        }
        if seen % 2 == 1 {
            memory.store(0, seen + 1, Ordering::Release).unwrap();
        }
        std::hint::spin_loop();
    }
}

/// Returns the offset of slot `next` of a bare ring; its answer is in the same line.
fn slot(next: u64) -> usize {
    4096 + (next as usize % 64) * 64
}

/// Answers through bare slots of a line each, without a server: the least cost of a ring.
fn answer_slots(memory: &SharedMemory) {
    let mut next = 1_u64;
    loop {
        if memory.load(slot(next), Ordering::Acquire).unwrap() == next << 1 {
            let mut words = [0; 8];
            for (index, word) in words.iter_mut().enumerate().skip(1) {
                *word = memory.load(slot(next) + index * 8, Ordering::Relaxed).unwrap();
            }
            for (index, word) in words.iter().enumerate().skip(1) {
                memory.store(slot(next) + index * 8, !word, Ordering::Relaxed).unwrap();
            }
            memory.store(slot(next), next << 1 | 1, Ordering::Release).unwrap();
            next += 1;
        } else if memory.load(0, Ordering::Relaxed).unwrap() == u64::MAX {
            return;
        }
        std::hint::spin_loop();
    }
}

fn strategy(plan: &Plan) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = IpcServer::open(NodeId(1)).unwrap();
    let inbox = server.inbox();
    let acceptor = Acceptor::start(&path, AcceptorConfig::new(&server), inbox.sink()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let service = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || serve(server, &stop))
    };
    let child = spawn(plan, &path);
    let output = child.wait_with_output().unwrap();
    stop.store(true, Ordering::Release);
    inbox.wake_server();
    let (sleeps, wakes) = service.join().unwrap();
    acceptor.stop();
    println!("{},{},{},{sleeps},{wakes}", plan.mode, plan.clients, String::from_utf8_lossy(&output.stdout).trim_end());
}

fn serve(mut server: IpcServer, stop: &AtomicBool) -> (u64, u64) {
    pin([cores() - 1]);
    server.publish_load(Instant::now());
    let mut batch = Vec::with_capacity(256);
    let batched = std::env::args().any(|argument| argument == "--batch");
    let mut idle_since: Option<Instant> = None;
    let mut polls = 0_u32;
    while !stop.load(Ordering::Relaxed) {
        while let Some(next_event) = server.next_event() {
            match next_event {
                ClientEvent::Attached(session) => drop(server.add_client(session).unwrap()),
                ClientEvent::Detached(client) => drop(server.remove_client(client)),
            }
        }
        let taken = if batched {
            let taken = take(&mut server, &mut batch);
            for (channel, entry) in &batch {
                let reply = [entry[0], !entry[1], entry[2], 0, 0, 0, 0, 0];
                server.reply(*channel, &reply);
            }
            batch.clear();
            taken
        } else {
            server.serve(256, &mut |_: ChannelId, entry: &Entry, _: Option<TracedRequest>| {
                Some([entry[0], !entry[1], entry[2], 0, 0, 0, 0, 0])
            })
        };
        if taken > 0 {
            server.flush();
            idle_since = None;
            polls = 0;
            continue;
        }
        server.flush();
        polls += 1;
        let idle_mode = server.idle_mode();
        if idle_mode == IdleMode::Poll || (idle_mode == IdleMode::Spin && !polls.is_multiple_of(64)) {
            continue;
        }
        let since = *idle_since.get_or_insert_with(Instant::now);
        if idle_mode == IdleMode::Sleep || since.elapsed() > SERVICE_SPIN {
            idle_since = None;
            if server.arm() {
                let descriptor = server.descriptor();
                let _ = rustix::event::poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None);
                server.disarm();
            }
        }
    }
    (server.counts().sleeps, server.counts().wakes)
}

fn client(arguments: &[String]) {
    let [mode, clients, millis, shared, path] = arguments else { panic!("a client takes five arguments") };
    let plan = Plan {
        mode: mode.clone(),
        clients: clients.parse().unwrap(),
        millis: millis.parse().unwrap(),
        shared: shared.parse().unwrap(),
    };
    let path = PathBuf::from(path);
    if !plan.shared {
        pin(0..(cores() - 1).max(1));
    }
    let mut results = if plan.mode == "raw" || plan.mode == "slots" {
        vec![raw_client(&plan, &path)]
    } else {
        strategy_clients(&plan, &path)
    };
    report(&plan, &mut results);
}

struct Result {
    calls: u64,
    nanos: Vec<u32>,
    longest: Duration,
}

fn raw_client(plan: &Plan, path: &Path) -> Result {
    let memory = SharedMemory::open_file(path).unwrap();
    assert_eq!(memory.access(), Access::ReadWrite);
    let mut next = 1;
    if plan.mode == "slots" {
        let result = measure(plan, Instant::now(), || {
            for word in 1..8 {
                memory.store(slot(next) + word * 8, 7, Ordering::Relaxed).unwrap();
            }
            memory.store(slot(next), next << 1, Ordering::Release).unwrap();
            while memory.load(slot(next), Ordering::Acquire).unwrap() != next << 1 | 1 {
                std::hint::spin_loop();
            }
            for word in 1..8 {
                assert_eq!(memory.load(slot(next) + word * 8, Ordering::Relaxed).unwrap(), !7);
            }
            next += 1;
            1
        });
        memory.store(0, u64::MAX, Ordering::Release).unwrap();
        return result;
    }
    let result = measure(plan, Instant::now(), || {
        memory.store(0, next, Ordering::Release).unwrap();
        while memory.load(0, Ordering::Acquire).unwrap() != next + 1 {
            std::hint::spin_loop();
        }
        next += 2;
        1
    });
    memory.store(0, u64::MAX, Ordering::Release).unwrap();
    result
}

fn strategy_clients(plan: &Plan, path: &Path) -> Vec<Result> {
    let strategy: Strategy = if plan.mode == "pipe" { Strategy::Auto } else { plan.mode.parse().unwrap() };
    let barrier = Arc::new(std::sync::Barrier::new(plan.clients + 1));
    let begin = Arc::new(std::sync::OnceLock::new());
    let mut threads = Vec::new();
    let mut left = plan.clients;
    while left > 0 {
        let mut options = AttachOptions::default();
        options.strategy = strategy;
        options.channels = 1;
        options.arena_bytes = 4096;
        options.timeout = PATIENCE;
        let attachment = Attachment::connect(path, &options).unwrap();
        let mut channel = attachment.take_channel().unwrap();
        left -= 1;
        let (plan, barrier, begin) = (plan.clone(), Arc::clone(&barrier), Arc::clone(&begin));
        threads.push(std::thread::spawn(move || {
            barrier.wait();
            // All threads begin and end at the same moment, whenever they first run.
            let begin: Instant = *begin.wait();
            if plan.mode == "pipe" {
                measure(&plan, begin, || window(&mut channel))
            } else {
                measure(&plan, begin, || call(&mut channel))
            }
        }));
    }
    barrier.wait();
    let _ = begin.set(Instant::now());
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn call(channel: &mut Channel) -> u64 {
    channel.submit([0, 42, 0, 0, 0, 0, 0, 0]).unwrap();
    channel.ring_doorbell();
    assert_eq!(channel.wait(WaitClass::Polling, Instant::now() + PATIENCE), WaitOutcome::Ready);
    assert_eq!(channel.reap().unwrap()[1], !42);
    1
}

/// Keeps thirty-two requests in flight.
fn window(channel: &mut Channel) -> u64 {
    let mut done = 0;
    while channel.outstanding() < 32 {
        channel.submit([0, 42, 0, 0, 0, 0, 0, 0]).unwrap();
    }
    channel.ring_doorbell();
    assert_eq!(channel.wait(WaitClass::Polling, Instant::now() + PATIENCE), WaitOutcome::Ready);
    while channel.reap().is_some() {
        done += 1;
    }
    done
}

fn measure(plan: &Plan, begin: Instant, mut call: impl FnMut() -> u64) -> Result {
    const WARM: u64 = 1000;
    let mut result = Result { calls: 0, nanos: Vec::with_capacity(1 << 20), longest: Duration::ZERO };
    let limit = Duration::from_millis(plan.millis);
    let mut warm = if plan.clients > 1 || plan.shared { 0 } else { WARM };
    loop {
        let before = Instant::now();
        if before - begin > limit {
            return result;
        }
        let done = call();
        let took = before.elapsed();
        if warm > 0 {
            warm -= 1;
            continue;
        }
        result.calls += done;
        result.longest = result.longest.max(took);
        if result.nanos.len() < result.nanos.capacity() {
            result.nanos.push(took.as_nanos() as u32);
        }
    }
}

fn report(plan: &Plan, results: &mut [Result]) {
    let calls: u64 = results.iter().map(|result| result.calls).sum();
    let slowest = results.iter().map(|result| result.calls).min().unwrap();
    let mut nanos: Vec<u32> = results.iter_mut().flat_map(|result| std::mem::take(&mut result.nanos)).collect();
    nanos.sort_unstable();
    let at = |part: f64| nanos[((nanos.len() - 1) as f64 * part) as usize];
    let longest = results.iter().map(|result| result.longest).max().unwrap();
    println!(
        "{:.0},{},{},{},{},{:.3}",
        calls as f64 / plan.millis as f64 * 1000.0,
        at(0.5),
        at(0.99),
        at(0.999),
        longest.as_micros(),
        slowest as f64 * results.len() as f64 / calls as f64
    );
}

/// Takes requests, to answer them later.
fn take(server: &mut IpcServer, batch: &mut Vec<(ChannelId, Entry)>) -> usize {
    server.serve(256, &mut |channel: ChannelId, entry: &Entry, _: Option<TracedRequest>| {
        batch.push((channel, *entry));
        None
    })
}
