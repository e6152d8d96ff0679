//! Cost of `ddss top` beside a node with many active segments.
//!
//! It prints the processor time, the number of redraws and the longest time between two of them. It has no pass
//! criterion: `cargo run --release -p ddss-tests --bin top_cost`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints to its user")]

use std::error::Error;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, Segment, Spec};
use ddss_testkit::{Daemon, Terminal, binary};

const USAGE: &str = "usage: watched [--segments N] [--seconds N] [--columns N]";
/// Bytes of each segment.
const BYTES: u64 = 64;
/// Calls between two pauses: some 20,000 a second, so that all segments are among the most active.
const BURST: usize = 100;
const REST: Duration = Duration::from_millis(5);
/// Deadline of calls, longer than any call on a shared machine.
const CALL_MAX: Duration = Duration::from_secs(60);
/// Time until the first screen with all names is drawn.
const WARM_UP: Duration = Duration::from_secs(3);
/// Silence of this length separates two redraws.
const PAUSE: Duration = Duration::from_millis(20);

/// Options of the command line.
struct Wish {
    segments: usize,
    seconds: u64,
    columns: u16,
}

impl Wish {
    fn read() -> Option<Wish> {
        let mut wish = Wish { segments: 1000, seconds: 30, columns: 200 };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let value = words.next()?;
            match &*word {
                "--segments" => wish.segments = value.parse().ok()?,
                "--seconds" => wish.seconds = value.parse().ok().filter(|seconds| *seconds > 0)?,
                "--columns" => wish.columns = value.parse().ok()?,
                _ => return None,
            }
        }
        Some(wish)
    }
}

/// A program in a terminal.
struct Shown {
    child: Child,
    terminal: Terminal,
}

impl Shown {
    fn start(command: Command, columns: u16) -> Result<Shown, Box<dyn Error>> {
        let terminal = Terminal::new(columns)?;
        Ok(Shown { child: terminal.start(command)?, terminal })
    }

    /// Processor time of all threads of the program.
    fn processor_time(&self) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten().flatten();
        let ran = |path: std::path::PathBuf| {
            fs::read_to_string(path.join("schedstat")).ok()?.split_whitespace().next()?.parse::<u64>().ok()
        };
        Duration::from_nanos(tasks.filter_map(|task| ran(task.path())).sum())
    }
}

/// Output on the terminal.
#[derive(Default)]
struct Drawn {
    bytes: AtomicU64,
    pictures: AtomicU64,
    longest_ms: AtomicU64,
    /// Set when counting begins.
    counts: AtomicBool,
}

impl Drawn {
    /// Reads until the program ends.
    fn read(&self, mut terminal: File) {
        let mut buffer = [0; 1 << 16];
        let mut last = Instant::now();
        while let Ok(count) = terminal.read(&mut buffer)
            && count > 0
        {
            let pause = last.elapsed();
            last = Instant::now();
            if !self.counts.load(Ordering::Relaxed) {
                continue;
            }
            self.bytes.fetch_add(count as u64, Ordering::Relaxed);
            if pause > PAUSE {
                self.pictures.fetch_add(1, Ordering::Relaxed);
                self.longest_ms.fetch_max(pause.as_millis() as u64, Ordering::Relaxed);
            }
        }
    }
}

/// Calls all segments in turn, some with puts, until it is stopped.
fn call(segments: &[Segment], over: &AtomicBool) -> Result<u64, ddss::Error> {
    let (mut calls, mut bytes) = (0, [0; 8]);
    while !over.load(Ordering::Relaxed) {
        for _ in 0..BURST {
            let segment = &segments[calls % segments.len()];
            if calls % 4 == 0 {
                segment.put(0, &[7; 8])?
            } else {
                segment.get_into(0, &mut bytes)?
            };
            calls += 1;
        }
        thread::sleep(REST);
    }
    Ok(calls as u64)
}

fn main() -> Result<(), Box<dyn Error>> {
    let Some(wish) = Wish::read() else { return Err(USAGE.into()) };
    let daemon = Daemon::start(1)?;
    // Local reads bypass the daemon and are in no counter.
    let client =
        Client::connect_with(ConnectOptions::new().directory(daemon.folder()).local_reads(false).timeout(CALL_MAX))?;
    let made = (0..wish.segments).map(|number| client.segment(&format!("watched/{number}")).allocate(Spec::new(BYTES)));
    let segments: Vec<Segment> = made.collect::<Result<_, _>>()?;
    let mut top = Command::new(binary("ddss")?);
    top.args(["top", "--segments", &wish.segments.to_string(), "--dir"]).arg(daemon.folder());
    let over = AtomicBool::new(false);
    let drawn = Drawn::default();
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let caller = scope.spawn(|| call(&segments, &over));
        let mut shown = Shown::start(top, wish.columns)?;
        let mut keyboard = shown.terminal.user_end()?;
        let terminal = shown.terminal.user_end()?;
        let reader = scope.spawn(|| drawn.read(terminal));
        thread::sleep(WARM_UP);
        drawn.counts.store(true, Ordering::Relaxed);
        let (begin, before) = (Instant::now(), shown.processor_time());
        thread::sleep(Duration::from_secs(wish.seconds));
        let (took, time) = (shown.processor_time() - before, begin.elapsed());
        drawn.counts.store(false, Ordering::Relaxed);
        keyboard.write_all(b"q")?;
        let ended = shown.child.wait();
        over.store(true, Ordering::Relaxed);
        let calls = caller.join().map_err(|_| "the caller panicked")??;
        drop((shown, keyboard));
        reader.join().map_err(|_| "the reader panicked")?;
        let number = |of: &AtomicU64| of.load(Ordering::Relaxed);
        println!("segments                 {}", wish.segments);
        println!("calls a second           {:.0}", calls as f64 / (time + WARM_UP).as_secs_f64());
        println!("processor time of top    {:.2} % of a core", 100.0 * took.as_secs_f64() / time.as_secs_f64());
        println!("pictures                 {} in {:.0} s", number(&drawn.pictures), time.as_secs_f64());
        println!("processor time of one    {:.2} ms", 1e3 * took.as_secs_f64() / number(&drawn.pictures).max(1) as f64);
        println!("longest between two      {} ms", number(&drawn.longest_ms));
        println!("bytes of a picture       {}", number(&drawn.bytes) / number(&drawn.pictures).max(1));
        if ended?.success() { Ok(()) } else { Err("top ended with an error".into()) }
    })
}
