//! Quick ratios on this machine: round trips under each strategy beside the raw ping-pong of one cache line.
//!
//! ```text
//! cargo run --release -p ddss-ipc --example ring_ratio -- [raw|slots|mq|rmq|rcq|auto|pipe ..] [--clients N] [--millis M] [--shared] [--rounds R] [--batch] [--unfair]
//! ```
//!
//! The service runs on the last core; clients on the others, or (`--shared`) anywhere. Take ratios within one run: the
//! same cell drifts from one run to the next. The official figures come from the workspace's benchmarks.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for the eyes")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ddss_core::{ChannelId, Entry, NodeId};
use ddss_ipc::{
    Acceptor, AcceptorConfig, Access, Arrival, AttachOptions, Attachment, Channel, IdleMode, IpcServer, SharedMemory,
    Strategy, TracedRequest, WaitClass, WaitOutcome,
};
use rustix::event::{PollFd, PollFlags};
use rustix::thread::CpuSet;

const PATIENCE: Duration = Duration::from_secs(30);
/// How long an idle service spins.
const SERVICE_SPIN: Duration = Duration::from_micros(50);
const RAW_BYTES: usize = 16384;

fn pin(cores: impl IntoIterator<Item = usize>) {
    let mut set = CpuSet::new();
    cores.into_iter().for_each(|core| set.set(core));
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

/// Cores of the machine, whatever this thread is pinned to.
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
    fair: bool,
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
                fair: !arguments.iter().any(|argument| argument == "--unfair"),
            };
            if mode == "raw" || mode == "slots" { raw(&plan) } else { strategy(&plan) }
        }
    }
}

/// Both sides in one thread: what the instructions cost without the way between the cores.
fn solo() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut station = IpcServer::open(NodeId(1)).unwrap();
    let inbox = station.inbox();
    let _reception = Acceptor::start(&path, AcceptorConfig::new(&station), inbox.sink()).unwrap();
    let mut options = AttachOptions::default();
    options.lanes = 1;
    let attachment = Attachment::connect(&path, &options).unwrap();
    let mut lane = attachment.take_lane().unwrap();
    let Some(Arrival::Attached(session)) = std::iter::repeat_with(|| station.arrival()).flatten().next() else {
        panic!("no arrival")
    };
    station.adopt(session).unwrap();
    let mut batch = Vec::with_capacity(256);
    let mut spent = [Duration::ZERO; 6];
    const CALLS: u32 = 1_000_000;
    let begin = Instant::now();
    for _ in 0..CALLS {
        lane.submit([0, 42, 0, 0, 0, 0, 0, 0]).unwrap();
        lane.ring();
        station.poll(256, &mut batch);
        for (lane, mut entry) in batch.drain(..) {
            entry[1] = !entry[1];
            station.reply(lane, &entry);
        }
        station.flush();
        assert_eq!(lane.reap().unwrap()[1], !42);
    }
    println!("all {:?}", begin.elapsed() / CALLS);
    if std::env::args().nth(2).is_some() {
        return;
    }
    for _ in 0..CALLS {
        let t = Instant::now();
        lane.submit([0, 42, 0, 0, 0, 0, 0, 0]).unwrap();
        let t = {
            spent[0] += t.elapsed();
            Instant::now()
        };
        lane.ring();
        let t = {
            spent[1] += t.elapsed();
            Instant::now()
        };
        station.poll(256, &mut batch);
        let t = {
            spent[2] += t.elapsed();
            Instant::now()
        };
        for (lane, mut entry) in batch.drain(..) {
            entry[1] = !entry[1];
            station.reply(lane, &entry);
        }
        let t = {
            spent[3] += t.elapsed();
            Instant::now()
        };
        station.flush();
        let t = {
            spent[4] += t.elapsed();
            Instant::now()
        };
        assert_eq!(lane.reap().unwrap()[1], !42);
        spent[5] += t.elapsed();
    }
    for (name, spent) in ["submit", "ring", "poll", "reply", "flush", "reap"].iter().zip(spent) {
        println!("{name} {:?}", spent / CALLS);
    }
    let t = Instant::now();
    for _ in 0..CALLS {
        station.poll(256, &mut batch);
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
        .arg(plan.fair.to_string())
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

/// One line, odd numbers from the client and even ones back.
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

/// Where slot `next` of a bare ring is; its answer is in the same line.
fn slot(next: u64) -> usize {
    4096 + (next as usize % 64) * 64
}

/// Bare slots of a line each, without a station: what a ring costs at the least.
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
    let station = IpcServer::open(NodeId(1)).unwrap();
    let inbox = station.inbox();
    let reception = Acceptor::start(&path, AcceptorConfig::new(&station), inbox.sink()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let service = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || serve(station, &stop))
    };
    let child = spawn(plan, &path);
    let output = child.wait_with_output().unwrap();
    stop.store(true, Ordering::Release);
    inbox.ring();
    let (rests, wakes) = service.join().unwrap();
    reception.stop();
    println!("{},{},{},{rests},{wakes}", plan.mode, plan.clients, String::from_utf8_lossy(&output.stdout).trim_end());
}

fn serve(mut station: IpcServer, stop: &AtomicBool) -> (u64, u64) {
    pin([cores() - 1]);
    station.tell_core();
    let mut batch = Vec::with_capacity(256);
    let batched = std::env::args().any(|argument| argument == "--batch");
    let mut idle_since: Option<Instant> = None;
    let mut looks = 0_u32;
    while !stop.load(Ordering::Relaxed) {
        while let Some(arrival) = station.arrival() {
            match arrival {
                Arrival::Attached(session) => drop(station.adopt(session).unwrap()),
                Arrival::Left(client) => drop(station.dismiss(client)),
            }
        }
        let taken = if batched {
            let taken = station.poll(256, &mut batch);
            for (lane, entry) in &batch {
                let reply = [entry[0], !entry[1], entry[2], 0, 0, 0, 0, 0];
                station.reply(*lane, &reply);
            }
            batch.clear();
            taken
        } else {
            station.serve(256, &mut |_: ChannelId, entry: &Entry, _: Option<TracedRequest>| {
                Some([entry[0], !entry[1], entry[2], 0, 0, 0, 0, 0])
            })
        };
        if taken > 0 {
            station.flush();
            idle_since = None;
            looks = 0;
            continue;
        }
        station.flush();
        looks += 1;
        let idling = station.idling();
        if idling == IdleMode::Poll || (idling == IdleMode::Spin && !looks.is_multiple_of(64)) {
            continue;
        }
        let since = *idle_since.get_or_insert_with(Instant::now);
        if idling == IdleMode::Sleep || since.elapsed() > SERVICE_SPIN {
            idle_since = None;
            if station.arm() {
                let descriptor = station.descriptor();
                let _ = rustix::event::poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None);
                station.disarm();
            }
        }
    }
    (station.counts().rests, station.counts().wakes)
}

fn client(arguments: &[String]) {
    let [mode, clients, millis, shared, fair, path] = arguments else { panic!("a client takes six arguments") };
    let plan = Plan {
        mode: mode.clone(),
        clients: clients.parse().unwrap(),
        millis: millis.parse().unwrap(),
        shared: shared.parse().unwrap(),
        fair: fair.parse().unwrap(),
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
        options.lanes = 1;
        options.arena_bytes = 4096;
        options.timeout = PATIENCE;
        options.fair = plan.fair;
        let attachment = Attachment::connect(path, &options).unwrap();
        let mut lane = attachment.take_lane().unwrap();
        left -= 1;
        let (plan, barrier, begin) = (plan.clone(), Arc::clone(&barrier), Arc::clone(&begin));
        threads.push(std::thread::spawn(move || {
            barrier.wait();
            // All begin, and end, at the same moment, whenever they come to run first.
            let begin: Instant = *begin.wait();
            if plan.mode == "pipe" {
                measure(&plan, begin, || window(&mut lane))
            } else {
                measure(&plan, begin, || call(&mut lane))
            }
        }));
    }
    barrier.wait();
    let _ = begin.set(Instant::now());
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn call(lane: &mut Channel) -> u64 {
    lane.submit([0, 42, 0, 0, 0, 0, 0, 0]).unwrap();
    lane.ring();
    assert_eq!(lane.wait(WaitClass::Polling, Instant::now() + PATIENCE), WaitOutcome::Ready);
    assert_eq!(lane.reap().unwrap()[1], !42);
    1
}

/// Keeps thirty-two requests under way.
fn window(lane: &mut Channel) -> u64 {
    let mut done = 0;
    while lane.outstanding() < 32 {
        lane.submit([0, 42, 0, 0, 0, 0, 0, 0]).unwrap();
    }
    lane.ring();
    assert_eq!(lane.wait(WaitClass::Polling, Instant::now() + PATIENCE), WaitOutcome::Ready);
    while lane.reap().is_some() {
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
