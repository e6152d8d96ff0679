//! The client processes of the demonstration. They speak with `demo.rs` by one JSON line for each thing done.

use crate::arguments::{DemoClientOptions, DemoRole};
use crate::failure::CommandError;
use ddss::{Client, Segment, Spec};
use hdrhistogram::Histogram;
use serde_json::json;
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

/// The segment of the demonstration.
const NAME: &str = "demo";
/// Its size.
const BYTES: usize = 4096;

/// What the writer puts and the reader expects.
fn pattern() -> Vec<u8> {
    (0..BYTES).map(|index| (index * 7 % 251) as u8).collect()
}

fn tell(what: &serde_json::Value) -> Result<(), CommandError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{what}").and_then(|()| out.flush()).map_err(CommandError::system("tell the demonstration"))
}

/// Waits for the next line of standard input; `false` at its end.
fn told() -> bool {
    matches!(std::io::stdin().lock().read_line(&mut String::new()), Ok(1..))
}

pub(crate) fn run(options: &DemoClientOptions) -> Result<(), CommandError> {
    // What is shown is the road through the daemons.
    let mut builder = Client::builder().lanes(1).near(false);
    if let Some(folder) = &options.place.dir {
        builder = builder.folder(folder);
    }
    let client = builder.connect()?;
    let duration = Duration::from_millis(options.measure_ms);
    match options.role {
        DemoRole::Writer => write(&client, duration),
        DemoRole::Reader => read(&client, duration),
    }
}

fn write(client: &Client, duration: Duration) -> Result<(), CommandError> {
    let segment = client.allocate(NAME, Spec::new(BYTES as u64))?;
    let stamp = segment.put(0, &pattern())?;
    tell(&json!({ "done": "put", "bytes": BYTES, "version": stamp.version.0 }))?;
    told();
    measure(&segment, duration, "local")?;
    // From here on it writes until somebody kills it.
    tell(&json!({ "done": "writing on" }))?;
    let bytes = pattern();
    loop {
        segment.put(0, &bytes)?;
    }
}

fn read(client: &Client, duration: Duration) -> Result<(), CommandError> {
    let segment = client.open(NAME)?;
    let began = Instant::now();
    let value = segment.get(..)?;
    let micros = began.elapsed().as_secs_f64() * 1e6;
    let equal = value[..] == pattern()[..];
    tell(&json!({ "done": "get", "bytes": value.len(), "version": value.version().0, "equal": equal, "us": micros }))?;
    told();
    measure(&segment, duration, "remote")?;
    while told() {
        let value = segment.get(..)?;
        let equal = value[..] == pattern()[..];
        tell(&json!({ "done": "get", "bytes": value.len(), "version": value.version().0, "equal": equal }))?;
    }
    Ok(())
}

/// Times gets and puts of two sizes in turn, so that a slow moment of the machine meets all of them.
fn measure(segment: &Segment, duration: Duration, place: &str) -> Result<(), CommandError> {
    const SIZES: [usize; 2] = [8, BYTES];
    let bytes = pattern();
    let mut into = vec![0; BYTES];
    let mut times: [Histogram<u64>; 4] =
        std::array::from_fn(|_| Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("bounds that fit"));
    let end = Instant::now() + duration;
    while Instant::now() < end {
        for (index, size) in SIZES.into_iter().enumerate() {
            for _ in 0..64 {
                let began = Instant::now();
                segment.get_into(0, &mut into[..size])?;
                times[2 * index].saturating_record(began.elapsed().as_nanos() as u64);
                let began = Instant::now();
                segment.put(0, &bytes[..size])?;
                times[2 * index + 1].saturating_record(began.elapsed().as_nanos() as u64);
            }
        }
    }
    for (index, histogram) in times.iter().enumerate() {
        let op = if index % 2 == 0 { "get" } else { "put" };
        let us = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        tell(&json!({ "done": "measured", "place": place, "op": op, "bytes": SIZES[index / 2],
            "count": histogram.len(), "p50_us": us(0.5), "p99_us": us(0.99) }))?;
    }
    Ok(())
}
