//! Sixteen clients on two nodes that all want one lock: how long they wait for it, and whether all get their share.
//!
//! `cargo run --release -p ddss-tests --bin contended -- --seconds 5`
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command talks to who started it")]

use std::error::Error;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use ddss::{Client, Segment, Spec};
use ddss_tests::Daemon;

/// Clients, half of them on each node.
const CLIENTS: usize = 16;
/// A call may wait for all others, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn seconds() -> Result<u64, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(5),
        ["--seconds", seconds] => Ok(seconds.parse()?),
        _ => Err("usage: contended [--seconds N]".into()),
    }
}

fn client(daemon: &Daemon) -> Result<Client, ddss::Error> {
    Client::builder().folder(daemon.folder()).lanes(1).timeout(PATIENCE).connect()
}

/// Opens the segment; the other node may have to hear of its home first.
fn open(daemon: &Daemon) -> Result<Segment, Box<dyn Error>> {
    let (client, end) = (client(daemon)?, Instant::now() + PATIENCE);
    loop {
        match client.open("contended") {
            Ok(segment) => return Ok(segment),
            Err(error) if Instant::now() > end => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Takes the lock and lets it go until the time is over; how long each turn was waited for.
fn take_turns(segment: &Segment, begin: &Barrier, time: Duration) -> Result<Vec<Duration>, ddss::Error> {
    let mut waits = Vec::new();
    begin.wait();
    let end = Instant::now() + time;
    while Instant::now() < end {
        let asked = Instant::now();
        let held = segment.lock()?;
        waits.push(asked.elapsed());
        held.unlock()?;
    }
    Ok(waits)
}

fn main() -> Result<(), Box<dyn Error>> {
    let time = Duration::from_secs(seconds()?);
    let daemons = Daemon::pair()?;
    let _home = client(&daemons[0])?.allocate("contended", Spec::new(64))?;
    let segments: Vec<Segment> =
        (0..CLIENTS).map(|index| open(&daemons[index % 2])).collect::<Result<_, Box<dyn Error>>>()?;
    let begin = Barrier::new(CLIENTS);
    let waits = std::thread::scope(|scope| {
        let threads: Vec<_> =
            segments.iter().map(|segment| scope.spawn(|| take_turns(segment, &begin, time))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("a client does not panic"));
        ended.collect::<Result<Vec<_>, ddss::Error>>()
    })?;
    let turns: Vec<usize> = waits.iter().map(Vec::len).collect();
    let mut all: Vec<Duration> = waits.into_iter().flatten().collect();
    all.sort_unstable();
    let (Some(&longest), Some(least), Some(most)) = (all.last(), turns.iter().min(), turns.iter().max()) else {
        return Err("nobody got the lock".into());
    };
    // Everybody once: as long as one waits who gets exactly his share.
    let round = time.mul_f64(CLIENTS as f64 / all.len() as f64);
    let micros = |wait: Duration| wait.as_secs_f64() * 1e6;
    let share = |wait: Duration| wait.as_secs_f64() / round.as_secs_f64();
    println!("turns {}, one takes {:.1} us", all.len(), micros(time) / all.len() as f64);
    println!("fair share: a turn every {:.1} us", micros(round));
    for (name, wait) in [
        ("half", all[all.len() / 2]),
        ("99 of 100", all[all.len() * 99 / 100]),
        ("999 of 1000", all[all.len() * 999 / 1000]),
        ("all", longest),
    ] {
        println!("{name} waited up to {:.1} us, {:.2} x the fair share", micros(wait), share(wait));
    }
    println!("turns of one client: {least} to {most}");
    Ok(())
}
