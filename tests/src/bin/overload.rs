//! Overload of two nodes by ten times the load that saturates them.
//!
//! It measures their memory against their limits, and checks that every call ends with a result for its caller.
//!
//! ```sh
//! cargo run --release -p ddss-tests --bin overload -- [--seconds 60] [--times 10] [--json]
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it tells what it found")]

use ddss::{Batch, Client, ConnectOptions, ErrorKind, LockOptions, NodeId, Placement, Segment, Spec};
use ddss_testkit::{Daemon, DaemonOptions};
use serde_json::json;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Clients that fill the two nodes, each with a full channel of calls in flight.
const CLIENTS: usize = 4;
/// Calls of one batch: the capacity of a channel.
const BATCH: usize = 64;
/// Bytes of one call.
const BYTES: usize = 4096;
const ARENA: usize = 1 << 20;
const POOL: u64 = 32 << 20;
/// A daemon's shared memory besides pool and arenas: 4 MiB of staging memory for each peer, segment registry and undo
/// log, a line for each operation, the service page, and the rings of each client.
const SHARED_FIXED: u64 = 16 << 20;
const RINGS: u64 = 64 << 10;
/// Growth that the bounded tables and queues of a daemon may have under load. The largest is the queue of messages for
/// a stalled peer, 16384 times 512 bytes.
const TABLES: u64 = 32 << 20;
/// Deadline of calls that wait for a lock that is never released.
const HASTE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(30);

/// Outcomes of calls.
#[derive(Clone, Copy, Default, Debug)]
struct Ends {
    asked: u64,
    done: u64,
    busy: u64,
    late: u64,
    other: u64,
    unknown: u64,
}

impl Ends {
    fn note(&mut self, end: Result<(), ddss::Error>) {
        match end {
            Ok(()) => self.done += 1,
            Err(error) if error.is_indeterminate() => self.unknown += 1,
            Err(error) if matches!(error.kind(), ErrorKind::LimitReached) => self.busy += 1,
            Err(error) if error.kind() == ErrorKind::TimedOut => self.late += 1,
            Err(_) => self.other += 1,
        }
    }

    fn add(&mut self, more: Ends) {
        self.asked += more.asked;
        self.done += more.done;
        self.busy += more.busy;
        self.late += more.late;
        self.other += more.other;
        self.unknown += more.unknown;
    }

    /// Calls without a result.
    fn missing(&self) -> u64 {
        self.asked - self.done - self.busy - self.late - self.other - self.unknown
    }
}

/// Bytes of a process: private, and shared.
#[derive(Clone, Copy, Default, Debug)]
struct Size {
    private: u64,
    shared: u64,
}

impl Size {
    fn of(pid: u32) -> Size {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
        };
        Size { private: field("RssAnon:"), shared: field("RssShmem:") }
    }

    fn max(self, other: Size) -> Size {
        Size { private: self.private.max(other.private), shared: self.shared.max(other.shared) }
    }
}

fn connect(daemon: &Daemon, timeout: Duration) -> Result<Client, ddss::Error> {
    Client::connect_with(
        ConnectOptions::new()
            .directory(daemon.folder())
            .local_reads(false)
            .channels(1)
            .arena_len(ARENA)
            .timeout(timeout),
    )
}

fn open(client: &Client, name: &str) -> Result<Segment, ddss::Error> {
    let begin = Instant::now();
    loop {
        match client.segment(name).open() {
            Err(_) if begin.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(5)),
            ended => return ended,
        }
    }
}

/// Runs full channels of local and remote gets and puts until it is stopped.
fn load(client: &Client, stop: &AtomicBool) -> Result<Ends, ddss::Error> {
    let segments = [open(client, "load/1")?, open(client, "load/2")?];
    let mut ends = Ends::default();
    let bytes = [7; BYTES];
    while !stop.load(Ordering::Relaxed) {
        let (mut batch, mut gets, mut puts) = (Batch::new(), Vec::new(), Vec::new());
        for turn in 0..BATCH {
            let (segment, offset) = (&segments[turn % 2], (turn / 2 * BYTES) as u64);
            if turn % 4 < 2 {
                gets.push(batch.get(segment, offset..offset + 64)?);
            } else {
                puts.push(batch.put(segment, offset, &bytes)?);
            }
        }
        ends.asked += BATCH as u64;
        let mut replies = client.run(batch)?;
        gets.into_iter().for_each(|ticket| ends.note(replies.take(ticket).map(drop)));
        puts.into_iter().for_each(|ticket| ends.note(replies.take(ticket).map(drop)));
    }
    Ok(ends)
}

/// Runs the same on a segment whose lock is never released: every call waits.
fn wait_in_vain(client: &Client, stop: &AtomicBool) -> Result<Ends, ddss::Error> {
    let segment = open(client, "locked")?;
    let mut ends = Ends::default();
    while !stop.load(Ordering::Relaxed) {
        let mut batch = Batch::new();
        let puts = (0..BATCH).map(|_| batch.put(&segment, 0, &[7; 8])).collect::<Result<Vec<_>, _>>()?;
        ends.asked += BATCH as u64;
        let mut replies = client.run(batch)?;
        puts.into_iter().for_each(|ticket| ends.note(replies.take(ticket).map(drop)));
    }
    Ok(ends)
}

/// Runs `clients` clients for `length`; returns the outcomes of their calls, and the greatest memory of each daemon.
fn storm(daemons: &[Daemon; 2], clients: usize, length: Duration) -> Result<(Ends, [Size; 2]), Box<dyn Error>> {
    let (stop, sum) = (AtomicBool::new(false), Mutex::new(Ends::default()));
    let mut peak = [Size::default(); 2];
    let attached: Vec<Client> = (0..clients)
        .map(|index| connect(&daemons[index % 2], if index % 8 == 7 { HASTE } else { PATIENCE }))
        .collect::<Result<_, _>>()?;
    std::thread::scope(|scope| {
        let (stop, sum) = (&stop, &sum);
        let workers: Vec<_> = attached
            .iter()
            .enumerate()
            .map(|(index, client)| {
                scope.spawn(move || {
                    let ends = if index % 8 == 7 { wait_in_vain(client, stop) } else { load(client, stop) }?;
                    sum.lock().expect("no thread panics with it").add(ends);
                    Ok::<_, ddss::Error>(())
                })
            })
            .collect();
        let begin = Instant::now();
        while begin.elapsed() < length {
            for (peak, daemon) in peak.iter_mut().zip(daemons) {
                *peak = peak.max(Size::of(daemon.pid()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().try_for_each(|worker| {
            worker.join().map_err(|_| "a client panicked".to_owned())?.map_err(|error| error.to_string())
        })
    })?;
    let ends = *sum.lock().map_err(|_| "a client panicked")?;
    Ok((ends, peak))
}

fn run(seconds: u64, times: usize, json: bool) -> Result<bool, Box<dyn Error>> {
    eprintln!("starting two daemons; if they are not built yet, that takes minutes");
    let options = |node| {
        Ok::<_, ddss_testkit::Error>(DaemonOptions::new(node)?.pool_bytes(POOL).argument("--core").argument("none"))
    };
    let (a, b) = (options(1)?, options(2)?);
    let a = a.peer(&b);
    let b = b.peer(&a);
    let mut daemons = [a.start()?, b.start()?];
    let owner = connect(&daemons[0], PATIENCE)?;
    for node in 1..=2 {
        let spec = Spec::new((BATCH * BYTES) as u64).placement(Placement::Node(NodeId(node)));
        let begin = Instant::now();
        while let Err(error) = owner.segment(&format!("load/{node}")).allocate(spec) {
            if begin.elapsed() > PATIENCE {
                return Err(error.into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let lease = LockOptions::new().lease(Duration::from_secs(600));
    let _held = owner.segment("locked").allocate(Spec::new(8))?.lock_with(lease)?;
    let (full, idle) = storm(&daemons, CLIENTS, Duration::from_secs(seconds.div_ceil(10)))?;
    let clients = CLIENTS * times;
    let (ends, peak) = storm(&daemons, clients, Duration::from_secs(seconds))?;
    let shared_max = POOL + SHARED_FIXED + clients as u64 * (ARENA as u64 + RINGS);
    let private_max = idle.map(|idle| idle.private + TABLES);
    let inside = peak.iter().zip(private_max).all(|(peak, most)| peak.shared <= shared_max && peak.private <= most);
    let alive = daemons.iter_mut().all(|daemon| matches!(daemon.process().wait(Duration::ZERO), Ok(None)));
    let after = connect(&daemons[1], PATIENCE)?;
    let works = open(&after, "load/1")?.put(0, &[1; 8]).is_ok();
    let rate = |ends: &Ends, seconds: u64| ends.done as f64 / seconds.max(1) as f64;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let found = json!({
        "seconds": seconds, "clients": clients, "under_way": clients * BATCH,
        "done_per_second_when_full": rate(&full, seconds.div_ceil(10)).round(),
        "done_per_second_at_overload": rate(&ends, seconds).round(),
        "asked": ends.asked, "done": ends.done, "busy": ends.busy, "timed_out": ends.late, "failed_otherwise": ends.other,
        "indeterminate": ends.unknown, "never_told": ends.missing() + full.missing(),
        "private_mib": peak.map(|peak| mib(peak.private).round()), "private_mib_allowed": private_max.map(|most| mib(most).round()),
        "shared_mib": peak.map(|peak| mib(peak.shared).round()), "shared_mib_allowed": mib(shared_max).round(),
        "inside": inside, "works_afterwards": works && alive,
    });
    if json {
        println!("{found}");
    } else if let Some(found) = found.as_object() {
        for (name, value) in found {
            println!("{:<30}{value}", name.replace('_', " "));
        }
    }
    Ok(inside && alive && works && ends.missing() + full.missing() == 0 && ends.done > 0)
}

fn main() -> ExitCode {
    let (mut seconds, mut times, mut json) = (60, 10, false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let number = if word == "--json" { None } else { words.next().and_then(|number| number.parse::<u64>().ok()) };
        match (word.as_str(), number) {
            ("--json", _) => json = true,
            ("--seconds", Some(number @ 1..)) => seconds = number,
            ("--times", Some(number @ 1..)) => times = number as usize,
            _ => {
                eprintln!("usage: overload [--seconds N] [--times N] [--json]");
                return ExitCode::from(2);
            }
        }
    }
    match run(seconds, times, json) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("overload: {error}");
            ExitCode::FAILURE
        }
    }
}
