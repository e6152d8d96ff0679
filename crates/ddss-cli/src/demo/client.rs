//! A client of the demonstration: does what it is told, line by line, and says what came out.

use super::arguments::DemoClientOptions;
use super::child::{tell, told};
use crate::error::CommandError;
use ddss::{Client, Failure, Segment, Spec, Strategy, Version};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of each segment.
const BYTES: usize = 4096;
/// Between two calls of a client that only wants to see whether they are answered.
const STEADY_EVERY: Duration = Duration::from_micros(500);
/// How long somebody goes on asking for a segment whose home is away.
const PATIENCE: Duration = Duration::from_secs(15);

pub(crate) fn run(options: &DemoClientOptions) -> Result<(), CommandError> {
    let client = connect(&options.folder, Strategy::Auto)?;
    let mut handles = Handles { client, opened: HashMap::new() };
    while let Some(line) = told()? {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["allocate", name] => {
                let made = handles.client.allocate(name, Spec::new(BYTES as u64))?;
                handles.opened.insert(name.to_owned(), made);
                tell(&json!({ "done": "allocate" }))?;
            }
            ["fill", name, number] => {
                let stamp = handles.of(name)?.put(0, &filled(number.parse().unwrap_or_default()))?;
                tell(&json!({ "done": "fill", "bytes": BYTES, "version": stamp.version.0 }))?;
            }
            ["get", name] => tell(&get(handles.of(name)?)?)?,
            ["measure", name, strategy, ms] => {
                let strategy = strategy.parse().map_err(|_| CommandError::Demo(format!("no strategy: {line}")))?;
                let client = connect(&options.folder, strategy)?;
                let duration = Duration::from_millis(ms.parse().unwrap_or_default());
                tell(&measure(&client.open(name)?, duration)?)?;
            }
            ["write", name] => write(handles.of(name)?)?,
            ["steady", name] => steady(handles.of(name)?)?,
            _ => return Err(CommandError::Demo(format!("a client was told {line:?}"))),
        }
    }
    Ok(())
}

/// The segments that a client uses. Each is opened once: its handle outlives the daemons.
struct Handles {
    client: Client,
    opened: HashMap<String, Segment>,
}

impl Handles {
    /// The handle to that segment. The nodes may not have met yet when it is opened.
    fn of(&mut self, name: &str) -> Result<&Segment, CommandError> {
        let began = Instant::now();
        while !self.opened.contains_key(name) {
            match self.client.open(name) {
                Ok(segment) => drop(self.opened.insert(name.to_owned(), segment)),
                Err(error) if began.elapsed() > PATIENCE => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        Ok(&self.opened[name])
    }
}

/// Longer than a call takes on a machine that has much else to do: there the demonstration shows long times, and goes on.
const CALL_MAX: Duration = Duration::from_secs(20);

/// What is shown is the road through the daemons, so gets do not go around them.
fn connect(folder: &Path, strategy: Strategy) -> Result<Client, CommandError> {
    let builder = Client::builder().folder(folder).strategy(strategy).timeout(CALL_MAX);
    Ok(builder.channels(1).local_reads(false).connect()?)
}

/// One number in each word: a mix of two puts shows.
fn filled(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(BYTES / 8)
}

/// The number that a value was filled with, if it is whole.
fn number_in(bytes: &[u8]) -> Option<u64> {
    let mut words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let first = words.next()?;
    words.all(|word| word == first).then_some(first)
}

/// Asks until the segment's home answers: its daemon may just be on its way back. The handle stays the same.
fn get(segment: &Segment) -> Result<Value, CommandError> {
    let began = Instant::now();
    loop {
        let once = Instant::now();
        match segment.get(..) {
            Ok(value) => {
                let (once, all) = (once.elapsed(), began.elapsed());
                return Ok(json!({ "done": "get", "bytes": value.len(), "version": value.version().0,
                    "number": number_in(&value), "us": once.as_secs_f64() * 1e6, "ms": all.as_secs_f64() * 1e3 }));
            }
            Err(error) if began.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Times gets and puts in turn, so that a slow moment of the machine meets all of them.
fn measure(segment: &Segment, duration: Duration) -> Result<Value, CommandError> {
    let bytes = filled(1);
    let mut into = vec![0; BYTES];
    let mut times: [Histogram<u64>; 3] =
        std::array::from_fn(|_| Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("bounds that fit"));
    let end = Instant::now() + duration;
    while Instant::now() < end {
        for _ in 0..64 {
            let began = Instant::now();
            segment.get_into(0, &mut into[..8])?;
            times[0].saturating_record(began.elapsed().as_nanos() as u64);
            let began = Instant::now();
            segment.put(0, &bytes[..8])?;
            times[1].saturating_record(began.elapsed().as_nanos() as u64);
            let began = Instant::now();
            segment.get_into(0, &mut into)?;
            times[2].saturating_record(began.elapsed().as_nanos() as u64);
        }
    }
    // One number again.
    segment.put(0, &bytes)?;
    let us = |index: usize, quantile| times[index].value_at_quantile(quantile) as f64 / 1e3;
    Ok(
        json!({ "done": "measure", "get_us": us(0, 0.5), "put_us": us(1, 0.5), "page_us": us(2, 0.5), "p99_us": us(0, 0.99) }),
    )
}

/// Writes until somebody kills it.
fn write(segment: &Segment) -> Result<(), CommandError> {
    tell(&json!({ "done": "writing" }))?;
    for number in 1.. {
        segment.put(0, &filled(number))?;
    }
    Ok(())
}

/// What a client that gets now and then has seen.
#[derive(Default)]
struct Steady {
    calls: u64,
    /// Calls that ended because the segment's home was away.
    away: u64,
    failed: u64,
    /// Values of two puts, or older than the one before.
    wrong: u64,
    last: Version,
    longest: Duration,
    /// The first error that is none of a home that is away.
    error: Option<String>,
}

impl Steady {
    fn get(&mut self, segment: &Segment) {
        let began = Instant::now();
        match segment.get(..) {
            Ok(value) => {
                let is_good = number_in(&value).is_some() && value.version() >= self.last;
                self.wrong += u64::from(!is_good);
                self.last = value.version();
            }
            Err(error) if error.failure() == Some(Failure::NodeDown) => self.away += 1,
            Err(error) => {
                self.failed += 1;
                self.error.get_or_insert_with(|| error.to_string());
            }
        }
        self.calls += 1;
        self.longest = self.longest.max(began.elapsed());
    }
}

/// Gets now and then by one handle until it is told that it is enough, and says what it saw.
fn steady(segment: &Segment) -> Result<(), CommandError> {
    let enough = AtomicBool::new(false);
    tell(&json!({ "done": "steady" }))?;
    let told = std::thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let mut seen = Steady::default();
            while !enough.load(Ordering::Relaxed) {
                seen.get(segment);
                std::thread::sleep(STEADY_EVERY);
            }
            seen
        });
        let heard = told();
        enough.store(true, Ordering::Relaxed);
        heard.map(|_| calls.join())
    })?;
    let seen = told.map_err(|_| CommandError::Demo("a client's second thread panicked".to_owned()))?;
    // The handle has gone on: it gets what its home has now.
    let last = get(segment)?;
    tell(&json!({ "done": "enough", "calls": seen.calls, "away": seen.away, "failed": seen.failed, "wrong": seen.wrong,
        "error": seen.error, "longest_ms": seen.longest.as_secs_f64() * 1e3, "version": last["version"] }))
}
