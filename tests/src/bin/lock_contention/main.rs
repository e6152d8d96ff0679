//! Lock latency and fairness: sixteen clients on two nodes that contend for one lock.
//!
//! Sixteen threads do the same with pipes and without DDSS in alternating seconds of the same run. They show the share
//! of this machine's scheduler.
//!
//! The first part releases the lock immediately. The second part increments a counter in the segment under the lock; at
//! the end it must equal the number of turns. The third part sleeps 100 microseconds under the lock, so that the fair
//! share is longer than usual scheduling delays. `--hold-us N` selects a sleep only, `--count yes` the counter only.
//!
//! `cargo run --release -p ddss-tests --bin lock_contention -- --seconds 5`
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command prints to its user")]

mod pipe_baseline;
mod report;
mod steal_time;

use ddss::{Client, ConnectOptions, Segment, Spec};
use ddss_testkit::Daemon;
use report::Seen;
use std::error::Error;
use std::fmt::{Display, Formatter};
use std::sync::Barrier;
use std::time::{Duration, Instant};
use steal_time::Watch;

/// Clients, half of them on each node.
const CLIENTS: usize = 16;
/// Deadline of a call, which may wait for all other clients on any machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Length of the turns in which DDSS and the baseline alternate.
const SLICE: Duration = Duration::from_secs(1);
/// Work under the lock of each part; every part runs equally long.
const WORKS: [Work; 3] = [Work::Sleep(Duration::ZERO), Work::Count, Work::Sleep(Duration::from_micros(100))];

/// Work under the lock.
#[derive(Clone, Copy)]
enum Work {
    /// Sleeps for this long.
    Sleep(Duration),
    /// Increments a counter by a get and a put: increments are lost unless the lock excludes all others.
    Count,
}

impl Display for Work {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sleep(time) if time.is_zero() => f.write_str("given back at once"),
            Self::Sleep(time) => write!(f, "held for {} us", time.as_micros()),
            Self::Count => f.write_str("held while a count is read and written"),
        }
    }
}

/// Error of a thread.
type Broken = Box<dyn Error + Send + Sync>;

/// Parses the duration of the measurement and the work under the lock.
fn asked() -> Result<(u64, Vec<Work>), Broken> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (mut seconds, mut works) = (5, WORKS.to_vec());
    for pair in words.chunks(2) {
        match pair {
            [flag, number] if flag == "--seconds" => seconds = number.parse()?,
            [flag, number] if flag == "--hold-us" => works = vec![Work::Sleep(Duration::from_micros(number.parse()?))],
            [flag, yes] if flag == "--count" && yes == "yes" => works = vec![Work::Count],
            _ => return Err("usage: lock_contention [--seconds N] [--hold-us N | --count yes]".into()),
        }
    }
    Ok((seconds, works))
}

fn client(daemon: &Daemon) -> Result<Client, ddss::Error> {
    Client::connect_with(ConnectOptions::new().directory(daemon.folder()).channels(1).timeout(PATIENCE))
}

/// Opens the segment, with retries until the node knows its home.
fn open(daemon: &Daemon) -> Result<Segment, Broken> {
    let (client, end) = (client(daemon)?, Instant::now() + PATIENCE);
    loop {
        match client.segment("lock_contention").open() {
            Ok(segment) => return Ok(segment),
            Err(error) if Instant::now() > end => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// A turn: the times of request, grant and release.
#[derive(Clone, Copy)]
struct Turn {
    asked: Instant,
    had: Instant,
    gave: Instant,
}

/// A lock that is granted in the order of the requests.
trait Line: Send {
    /// Takes the lock, records the times, and releases it after the work.
    fn turn(&mut self, work: Work) -> Result<Turn, Broken>;
}

impl Line for Segment {
    fn turn(&mut self, work: Work) -> Result<Turn, Broken> {
        let asked = Instant::now();
        let held = self.lock()?;
        let had = Instant::now();
        match work {
            Work::Sleep(time) if time.is_zero() => {}
            Work::Sleep(time) => std::thread::sleep(time),
            Work::Count => {
                let count = u64::from_le_bytes(held.get(0..8)?[..].try_into()?);
                held.put(0, &(count + 1).to_le_bytes())?;
            }
        }
        let gave = Instant::now();
        held.unlock()?;
        Ok(Turn { asked, had, gave })
    }
}

/// Lets all clients take and release the lock until the time is over.
fn slice<L: Line>(line: &mut [L], time: Duration, work: Work) -> Result<Vec<Vec<Turn>>, Broken> {
    let begin = Barrier::new(line.len());
    let take_turns = |one: &mut L| {
        let mut turns = Vec::new();
        begin.wait();
        let end = Instant::now() + time;
        while Instant::now() < end {
            turns.push(one.turn(work)?);
        }
        Ok(turns)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = line.iter_mut().map(|one| scope.spawn(|| take_turns(one))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    })
}

fn main() -> Result<(), Broken> {
    let (seconds, works) = asked()?;
    let daemons = Daemon::pair()?;
    let home = client(&daemons[0])?.segment("lock_contention").allocate(Spec::new(64))?;
    let mut ours: Vec<Segment> = (0..CLIENTS).map(|index| open(&daemons[index % 2])).collect::<Result<_, Broken>>()?;
    let mut helpers = Vec::new();
    let mut theirs = pipe_baseline::piped(&mut helpers)?;
    for work in works {
        let (mut with_ours, mut with_theirs) = (Seen::default(), Seen::default());
        let watch = Watch::start().inspect_err(|why| println!("steal time is not measured: {why}")).ok();
        for _ in 0..seconds {
            with_ours.note(&slice(&mut ours, SLICE, work)?)?;
            with_theirs.note(&slice(&mut theirs, SLICE, work)?)?;
        }
        let taken = watch.map(Watch::end);
        println!("{work}:");
        with_ours.print("ddss, a lock of a segment", taken.as_ref());
        with_theirs.print("pipes and threads, nothing else", taken.as_ref());
        if let Some(taken) = taken {
            taken.print();
        }
        if let Work::Count = work {
            let count = u64::from_le_bytes(home.get(0..8)?[..].try_into()?);
            if count != with_ours.turns() {
                return Err(format!("the count is {count} after {} turns: some are lost", with_ours.turns()).into());
            }
            println!("no turn of {count} is lost");
        }
    }
    drop(theirs);
    for helper in helpers {
        helper.join().expect("a helper does not panic");
    }
    Ok(())
}
