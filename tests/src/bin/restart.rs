//! Downtime of a node with full memory that is killed and restarted: until it serves, and until the calls of attached
//! clients resume.
//!
//! ```sh
//! cargo run --release -p ddss-tests --bin restart -- [--mib 10240] [--segments 1000] [--json]
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it tells what it found")]

use ddss::{Client, ConnectOptions, Segment, Spec, Strategy};
use ddss_testkit::{Daemon, DaemonOptions};
use serde_json::json;
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Bytes of one put.
const PIECE: usize = 1 << 20;
/// Memory left free beside the segments.
const ROOM: u64 = 64 << 20;
/// Time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// Options of the command line.
struct Wish {
    mib: u64,
    segments: u64,
    json: bool,
}

impl Wish {
    fn parse(words: impl Iterator<Item = String>) -> Option<Self> {
        let mut wish = Self { mib: 10 << 10, segments: 1000, json: false };
        let mut words = words;
        while let Some(word) = words.next() {
            match word.as_str() {
                "--json" => wish.json = true,
                "--mib" => wish.mib = words.next()?.parse().ok()?,
                "--segments" => wish.segments = words.next()?.parse().ok().filter(|&segments| segments > 0)?,
                _ => return None,
            }
        }
        Some(wish)
    }

    /// Bytes of one segment, a multiple of a word.
    fn bytes(&self) -> u64 {
        ((self.mib << 20) / self.segments).max(64) & !7
    }
}

fn name(index: u64) -> String {
    format!("restart/{index}")
}

/// Stamp at the beginning and at the end of a segment.
fn mark(index: u64) -> [u8; 8] {
    (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1).to_le_bytes()
}

/// Allocates the segments and writes every byte of them.
fn fill(client: &Client, wish: &Wish) -> Result<(), Box<dyn Error>> {
    let mut piece = vec![0; PIECE];
    for index in 0..wish.segments {
        let segment = client.segment(&name(index)).allocate(Spec::new(wish.bytes()))?;
        piece.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = mark(index));
        for offset in (0..wish.bytes()).step_by(PIECE) {
            let length = (wish.bytes() - offset).min(PIECE as u64) as usize;
            segment.put(offset, &piece[..length])?;
        }
    }
    Ok(())
}

/// Number of segments with changed content.
fn lost(client: &Client, wish: &Wish) -> Result<u64, Box<dyn Error>> {
    let mut lost = 0;
    for index in 0..wish.segments {
        let segment = client.segment(&name(index)).open()?;
        let (first, last) = (segment.get(0..8)?, segment.get(wish.bytes() - 8..)?);
        lost += u64::from(first[..] != mark(index) || last[..] != mark(index));
    }
    Ok(lost)
}

/// Repeats a get until the next daemon serves one, and returns the time of its success.
fn goes_on(segment: &Segment) -> Result<Instant, ddss::Error> {
    segment.get(0..8)?;
    Ok(Instant::now())
}

fn run(wish: &Wish) -> Result<bool, Box<dyn Error>> {
    let needed = (wish.mib << 20) + wish.segments * 8192 + ROOM;
    if let Ok(found) = rustix::fs::statvfs("/dev/shm")
        && found.f_bavail * found.f_frsize < needed + ROOM
    {
        return Err(format!("/dev/shm has no room for {needed} bytes (df /dev/shm)").into());
    }
    eprintln!("starting a daemon; if it is not built yet, that takes minutes");
    let options = DaemonOptions::new(1)?.pool_bytes(needed).argument("--core").argument("none");
    let mut daemon: Daemon = options.start()?;
    let options_of = |strategy| {
        ConnectOptions::new().directory(daemon.folder()).strategy(strategy).local_reads(false).timeout(PATIENCE)
    };
    let client = Client::connect_with(options_of(Strategy::Auto))?;
    let begin = Instant::now();
    fill(&client, wish)?;
    eprintln!("{} segments, {} MiB written in {:.1} s", wish.segments, wish.mib, begin.elapsed().as_secs_f64());
    let others = Strategy::ALL.map(|strategy| Client::connect_with(options_of(strategy)));
    let mut handles = Vec::new();
    for (index, other) in others.into_iter().enumerate() {
        handles.push(other?.segment(&name(index as u64 % wish.segments)).open()?);
    }
    let begin = Instant::now();
    daemon.kill()?;
    let gone = Instant::now();
    let waiting: Vec<_> = handles.into_iter().map(|handle| std::thread::spawn(move || goes_on(&handle))).collect();
    daemon.restart()?;
    let ready = Instant::now();
    let mut on = Vec::new();
    for waiting in waiting {
        on.push(waiting.join().map_err(|_| "a client's thread panicked")??);
    }
    let after = |instant: Instant| (instant.duration_since(gone).as_secs_f64() * 1e4).round() / 1e4;
    let lost = lost(&client, wish)?;
    let last_call = on.iter().copied().max().map_or(0.0, after);
    if wish.json {
        let found = json!({
            "mib": wish.mib, "segments": wish.segments, "killed_until_gone_s": gone.duration_since(begin).as_secs_f64(),
            "ready_s": after(ready), "next_call_of_the_last_client_s": last_call, "lost": lost,
        });
        println!("{found}");
    } else {
        println!("memory                          {} MiB in {} segments", wish.mib, wish.segments);
        println!("kill -9 until it is gone        {:.3} s", gone.duration_since(begin).as_secs_f64());
        println!("started until ready             {:.3} s", after(ready));
        for (strategy, instant) in Strategy::ALL.into_iter().zip(on) {
            println!("next call of a client by {strategy:<5}  {:.3} s", after(instant));
        }
        println!("lost                            {lost}");
    }
    Ok(lost == 0)
}

fn main() -> ExitCode {
    let Some(wish) = Wish::parse(std::env::args().skip(1)) else {
        eprintln!("usage: restart [--mib N] [--segments N] [--json]");
        return ExitCode::from(2);
    };
    match run(&wish) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("restart: {error}");
            ExitCode::FAILURE
        }
    }
}
