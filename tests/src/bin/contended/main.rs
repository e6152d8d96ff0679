//! Sixteen clients on two nodes that all want one lock: how long they wait for it, and whether all get their share. Beside
//! them, second by second in the same run, sixteen threads that do the same with pipes and nothing of ours: what this
//! machine's scheduler makes of sixteen who go one after the other.
//!
//! Who has the lock gives it back at once, and then, in a second turn of all this, after 100 microseconds of sleep: then the
//! fair share is longer than what the scheduler takes now and then, and the lock is what is measured. `--hold-us` asks for
//! one time only.
//!
//! `cargo run --release -p ddss-tests --bin contended -- --seconds 5`
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command talks to who started it")]

mod piped;
mod report;
mod taken;

use ddss::{Client, Segment, Spec};
use ddss_tests::Daemon;
use report::Seen;
use std::error::Error;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use taken::Watch;

/// Clients, half of them on each node.
const CLIENTS: usize = 16;
/// A call may wait for all others, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Ours and theirs take turns of that length.
const SLICE: Duration = Duration::from_secs(1);
/// For how long a lock that is worth having is held.
const WORK: Duration = Duration::from_micros(100);

/// Whatever goes wrong in a thread.
type Broken = Box<dyn Error + Send + Sync>;

/// How long it is measured, and how long each holds the lock.
fn asked() -> Result<(u64, Vec<Duration>), Broken> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (mut seconds, mut holds) = (5, vec![Duration::ZERO, WORK]);
    for pair in words.chunks(2) {
        match pair {
            [flag, number] if flag == "--seconds" => seconds = number.parse()?,
            [flag, number] if flag == "--hold-us" => holds = vec![Duration::from_micros(number.parse()?)],
            _ => return Err("usage: contended [--seconds N] [--hold-us N]".into()),
        }
    }
    Ok((seconds, holds))
}

fn client(daemon: &Daemon) -> Result<Client, ddss::Error> {
    Client::builder().folder(daemon.folder()).lanes(1).timeout(PATIENCE).connect()
}

/// Opens the segment; the other node may have to hear of its home first.
fn open(daemon: &Daemon) -> Result<Segment, Broken> {
    let (client, end) = (client(daemon)?, Instant::now() + PATIENCE);
    loop {
        match client.open("contended") {
            Ok(segment) => return Ok(segment),
            Err(error) if Instant::now() > end => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// One turn: when the lock was asked for, had, and given back.
#[derive(Clone, Copy)]
struct Turn {
    asked: Instant,
    had: Instant,
    gave: Instant,
}

/// A lock that goes from one to the next in the order in which they asked.
trait Line: Send {
    /// Takes the lock, notes the time, and lets it go after so long.
    fn turn(&mut self, hold: Duration) -> Result<Turn, Broken>;
}

impl Line for Segment {
    fn turn(&mut self, hold: Duration) -> Result<Turn, Broken> {
        let asked = Instant::now();
        let held = self.lock()?;
        let had = Instant::now();
        if !hold.is_zero() {
            std::thread::sleep(hold);
        }
        let gave = Instant::now();
        held.unlock()?;
        Ok(Turn { asked, had, gave })
    }
}

/// All take the lock and let it go until the time is over.
fn slice<L: Line>(line: &mut [L], time: Duration, hold: Duration) -> Result<Vec<Vec<Turn>>, Broken> {
    let begin = Barrier::new(line.len());
    let take_turns = |one: &mut L| {
        let mut turns = Vec::new();
        begin.wait();
        let end = Instant::now() + time;
        while Instant::now() < end {
            turns.push(one.turn(hold)?);
        }
        Ok(turns)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = line.iter_mut().map(|one| scope.spawn(|| take_turns(one))).collect();
        threads.into_iter().map(|thread| thread.join().expect("nobody panics")).collect()
    })
}

fn main() -> Result<(), Broken> {
    let (seconds, holds) = asked()?;
    let daemons = Daemon::pair()?;
    let _home = client(&daemons[0])?.allocate("contended", Spec::new(64))?;
    let mut ours: Vec<Segment> = (0..CLIENTS).map(|index| open(&daemons[index % 2])).collect::<Result<_, Broken>>()?;
    let mut helpers = Vec::new();
    let mut theirs = piped::piped(&mut helpers)?;
    for hold in holds {
        let (mut with_ours, mut with_theirs) = (Seen::default(), Seen::default());
        let watch = Watch::start().inspect_err(|why| println!("nobody watches the cores: {why}")).ok();
        for _ in 0..seconds {
            with_ours.note(&slice(&mut ours, SLICE, hold)?)?;
            with_theirs.note(&slice(&mut theirs, SLICE, hold)?)?;
        }
        let taken = watch.map(Watch::end);
        println!("held for {} us:", hold.as_micros());
        with_ours.tell("ddss, a lock of a segment", taken.as_ref());
        with_theirs.tell("pipes and threads, nothing else", taken.as_ref());
        if let Some(taken) = taken {
            taken.tell();
        }
    }
    drop(theirs);
    for helper in helpers {
        helper.join().expect("a helper does not panic");
    }
    Ok(())
}
