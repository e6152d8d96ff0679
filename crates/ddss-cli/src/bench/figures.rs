//! Measurements of `bench`, and their output as a table, JSON or chart.

use super::baseline;
use super::chart;
use super::setup::BenchSetup;
use crate::arguments::BenchOptions;
use crate::error::CommandError;
use crate::output::table::Table;
use crate::output::terminal_text::print_sentence;
use ddss::{Placement, Segment, Strategy};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

/// Sizes of the gets and puts in bytes.
const SIZES: [usize; 3] = [8, 4096, 65_536];
/// Calls between two checks of the deadline.
const CALLS: usize = 16;

/// Figures of one kind of call.
pub(super) struct Row {
    /// Name of the call: null, get or put.
    pub(super) call: &'static str,
    pub(super) bytes: usize,
    /// Path of the call: local (read in place), daemon (through a channel) or remote (on another node).
    pub(super) path: &'static str,
    strategy: String,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    per_second: f64,
}

impl Row {
    /// Returns a short label.
    pub(super) fn label(&self) -> String {
        let Self { call, bytes, path, strategy, .. } = self;
        match *call {
            "null" => format!("null call, {strategy}"),
            _ => format!("{call} {bytes} B, {path}"),
        }
    }

    fn as_json(&self) -> Value {
        json!({ "call": self.call, "bytes": self.bytes, "path": self.path, "strategy": self.strategy,
            "p50_us": self.p50_us, "p99_us": self.p99_us, "per_second": self.per_second })
    }
}

pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("bounds that fit")
}

/// Repeats a call for the duration and records its latency.
fn measure(
    duration: Duration,
    mut call: impl FnMut() -> Result<(), ddss::Error>,
) -> Result<Histogram<u64>, ddss::Error> {
    let mut times = histogram();
    call()?;
    let end = Instant::now() + duration;
    while Instant::now() < end {
        for _ in 0..CALLS {
            let begin = Instant::now();
            call()?;
            times.saturating_record(begin.elapsed().as_nanos() as u64);
        }
    }
    Ok(times)
}

fn row(call: &'static str, bytes: usize, path: &'static str, strategy: Strategy, times: &Histogram<u64>) -> Row {
    let us = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
    let per_second = if times.mean() > 0.0 { 1e9 / times.mean() } else { 0.0 };
    Row { call, bytes, path, strategy: strategy.to_string(), p50_us: us(0.5), p99_us: us(0.99), per_second }
}

/// Measures gets and puts of each size.
fn measure_transfers(
    segment: &Segment,
    path: &'static str,
    duration: Duration,
    rows: &mut Vec<Row>,
) -> Result<(), CommandError> {
    let mut bytes = vec![7; SIZES[SIZES.len() - 1]];
    for size in SIZES {
        let times = measure(duration, || segment.get_into(0, &mut bytes[..size]).map(drop))?;
        rows.push(row("get", size, path, Strategy::Auto, &times));
        if path != "local" {
            let times = measure(duration, || segment.put(0, &bytes[..size]).map(drop))?;
            rows.push(row("put", size, path, Strategy::Auto, &times));
        }
    }
    Ok(())
}

fn all(options: &BenchOptions, setup: &mut BenchSetup) -> Result<Vec<Row>, CommandError> {
    let duration = Duration::from_millis(options.measure_ms);
    let mut rows = Vec::new();
    for strategy in Strategy::ALL {
        let client = setup.client(strategy, false)?;
        let times = measure(duration, || client.ping())?;
        rows.push(row("null", 0, "daemon", strategy, &times));
    }
    let local = setup.client(Strategy::Auto, true)?;
    let segment = setup.segment(&local, Placement::Local)?;
    measure_transfers(&segment, "local", duration, &mut rows)?;
    let client = setup.client(Strategy::Auto, false)?;
    let segment = setup.segment(&client, Placement::Local)?;
    measure_transfers(&segment, "daemon", duration, &mut rows)?;
    if let Some(other) = setup.other() {
        let segment = setup.segment(&client, Placement::Node(other))?;
        measure_transfers(&segment, "remote", duration, &mut rows)?;
    }
    Ok(rows)
}

pub(crate) fn run(options: &BenchOptions, json: bool) -> Result<(), CommandError> {
    // The chart file is created first, so that a wrong path is reported before the long measurement.
    let mut picture = match &options.plot {
        Some(path) => Some((path, File::create(path).map_err(CommandError::file("create", path))?)),
        None => None,
    };
    let mut setup = BenchSetup::new(options)?;
    let baseline_us =
        baseline::ping_pong(Duration::from_millis(options.measure_ms)).value_at_quantile(0.5) as f64 / 1e3;
    let rows = all(options, &mut setup)?;
    drop(setup);
    if let Some((path, file)) = &mut picture {
        file.write_all(chart::draw(&rows, baseline_us).as_bytes()).map_err(CommandError::file("write", path))?;
    }
    if json {
        let rows: Vec<Value> = rows.iter().map(Row::as_json).collect();
        println!("{}", json!({ "baseline_us": baseline_us, "rows": rows }));
        return Ok(());
    }
    let mut table = Table::new(&["CALL", "p50 µs", "p99 µs", "A SECOND", "× ONE LINE"]);
    table.align_right(&[1, 2, 3, 4]);
    for row in &rows {
        table.row(vec![
            row.label(),
            format!("{:.2}", row.p50_us),
            format!("{:.2}", row.p99_us),
            format!("{:.0}", row.per_second),
            format!("{:.2}", row.p50_us / baseline_us),
        ]);
    }
    table.print();
    println!();
    print_sentence(&format!("baseline: round trip of one cache line between two threads, {baseline_us:.2} µs"), 2);
    print_sentence(
        "local: read in place; daemon: through a channel to the daemon; remote: a segment of another node",
        2,
    );
    if let Some(path) = &options.plot {
        print_sentence(&format!("the chart is in {}", path.display()), 2);
    }
    Ok(())
}
