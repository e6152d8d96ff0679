//! Client process of the demonstration: executes a command for each line of input and replies with JSON.

use super::child::{next_command, reply};
use crate::arguments::demo::DemoClientOptions;
use crate::error::CommandError;
use ddss::{Client, ConnectOptions, ErrorKind, Segment, Spec, Strategy, Version};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Size of each segment.
const BYTES: usize = 4096;
/// Interval between the gets of a polling client.
const POLL_INTERVAL: Duration = Duration::from_micros(500);
/// Maximum time to retry while the home of a segment is unreachable.
const RETRY_TIME_MAX: Duration = Duration::from_secs(15);

pub(crate) fn run(options: &DemoClientOptions) -> Result<(), CommandError> {
    let client = connect(&options.folder, Strategy::Auto)?;
    let mut handles = Handles { client, opened: HashMap::new() };
    while let Some(line) = next_command()? {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["allocate", name] => {
                let made = handles.client.segment(name).allocate(Spec::new(BYTES as u64))?;
                handles.opened.insert(name.to_owned(), made);
                reply(&json!({ "done": "allocate" }))?;
            }
            ["fill", name, number] => {
                let stamp = handles.of(name)?.put(0, &fill_bytes(number.parse().unwrap_or_default()))?;
                reply(&json!({ "done": "fill", "bytes": BYTES, "version": stamp.version.0 }))?;
            }
            ["get", name] => reply(&get(handles.of(name)?)?)?,
            ["measure", name, strategy, ms] => {
                let strategy =
                    strategy.parse().map_err(|_| CommandError::Demo(format!("unknown strategy in {line:?}")))?;
                let client = connect(&options.folder, strategy)?;
                let duration = Duration::from_millis(ms.parse().unwrap_or_default());
                reply(&measure(&client.segment(name).open()?, duration)?)?;
            }
            ["write", name] => write(handles.of(name)?)?,
            ["take", queue, file] => super::consumer::take(&options.folder, queue, Path::new(file))?,
            ["steady", name] => steady(handles.of(name)?)?,
            _ => return Err(CommandError::Demo(format!("a client got the unknown command {line:?}"))),
        }
    }
    Ok(())
}

/// Open segments of a client. Each is opened once: its handle outlives the daemons.
struct Handles {
    client: Client,
    opened: HashMap<String, Segment>,
}

impl Handles {
    /// Returns the handle of a segment. Opening is retried, because the nodes may not be connected yet.
    fn of(&mut self, name: &str) -> Result<&Segment, CommandError> {
        let began = Instant::now();
        while !self.opened.contains_key(name) {
            match self.client.segment(name).open() {
                Ok(segment) => drop(self.opened.insert(name.to_owned(), segment)),
                Err(error) if began.elapsed() > RETRY_TIME_MAX => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        Ok(&self.opened[name])
    }
}

/// Timeout of a call. It is longer than a call takes on a loaded machine, where the demonstration shows long times.
const CALL_MAX: Duration = Duration::from_secs(20);

/// Connects without local reads, because the demonstration measures calls through the daemons.
fn connect(folder: &Path, strategy: Strategy) -> Result<Client, CommandError> {
    let options = ConnectOptions::new().directory(folder).strategy(strategy).timeout(CALL_MAX);
    Ok(Client::connect_with(options.channels(1).local_reads(false))?)
}

/// Fills a buffer with one number in each word, so that a torn value is detected.
fn fill_bytes(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(BYTES / 8)
}

/// Returns the number that fills a value, or `None` if the value is torn.
fn whole_number(bytes: &[u8]) -> Option<u64> {
    let mut words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let first = words.next()?;
    words.all(|word| word == first).then_some(first)
}

/// Gets with one handle until the segment's home answers: its daemon may be restarting.
fn get(segment: &Segment) -> Result<Value, CommandError> {
    let began = Instant::now();
    loop {
        let once = Instant::now();
        match segment.get(..) {
            Ok(value) => {
                let (once, all) = (once.elapsed(), began.elapsed());
                return Ok(json!({ "done": "get", "bytes": value.len(), "version": value.version().0,
                    "number": whole_number(&value), "us": once.as_secs_f64() * 1e6, "ms": all.as_secs_f64() * 1e3 }));
            }
            Err(error) if began.elapsed() > RETRY_TIME_MAX => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Measures gets and puts in turn, so that a slow moment of the machine affects all of them.
fn measure(segment: &Segment, duration: Duration) -> Result<Value, CommandError> {
    let bytes = fill_bytes(1);
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
    // Restore the invariant of one number in each word.
    segment.put(0, &bytes)?;
    let us = |index: usize, quantile| times[index].value_at_quantile(quantile) as f64 / 1e3;
    Ok(
        json!({ "done": "measure", "get_us": us(0, 0.5), "put_us": us(1, 0.5), "page_us": us(2, 0.5), "p99_us": us(0, 0.99) }),
    )
}

/// Puts until the process is killed.
fn write(segment: &Segment) -> Result<(), CommandError> {
    reply(&json!({ "done": "writing" }))?;
    for number in 1.. {
        segment.put(0, &fill_bytes(number))?;
    }
    Ok(())
}

/// Results of a polling client.
#[derive(Default)]
struct PollResults {
    calls: u64,
    /// Calls that failed because the segment's home was unreachable.
    away: u64,
    failed: u64,
    /// Gets that returned a torn value, or an older version than the get before.
    wrong: u64,
    last: Version,
    longest: Duration,
    /// First error other than an unreachable home.
    error: Option<String>,
}

impl PollResults {
    fn get(&mut self, segment: &Segment) {
        let began = Instant::now();
        match segment.get(..) {
            Ok(value) => {
                let is_good = whole_number(&value).is_some() && value.version() >= self.last;
                self.wrong += u64::from(!is_good);
                self.last = value.version();
            }
            Err(error) if error.kind() == ErrorKind::NodeDown => self.away += 1,
            Err(error) => {
                self.failed += 1;
                self.error.get_or_insert_with(|| error.to_string());
            }
        }
        self.calls += 1;
        self.longest = self.longest.max(began.elapsed());
    }
}

/// Polls a segment with one handle until the next command, and replies with the results.
fn steady(segment: &Segment) -> Result<(), CommandError> {
    let is_done = AtomicBool::new(false);
    reply(&json!({ "done": "steady" }))?;
    let next_command = std::thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let mut seen = PollResults::default();
            while !is_done.load(Ordering::Relaxed) {
                seen.get(segment);
                std::thread::sleep(POLL_INTERVAL);
            }
            seen
        });
        let heard = next_command();
        is_done.store(true, Ordering::Relaxed);
        heard.map(|_| calls.join())
    })?;
    let seen = next_command.map_err(|_| CommandError::Demo("a client's second thread panicked".to_owned()))?;
    // The same handle reads the present value of the home.
    let last = get(segment)?;
    reply(
        &json!({ "done": "enough", "calls": seen.calls, "away": seen.away, "failed": seen.failed, "wrong": seen.wrong,
        "error": seen.error, "longest_ms": seen.longest.as_secs_f64() * 1e3, "version": last["version"] }),
    )
}
