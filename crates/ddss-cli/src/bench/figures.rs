//! Measurements of `bench`, and their output as a table, JSON or chart.

use super::baseline;
use super::chart;
use super::row::{Row, histogram};
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
        rows.push(Row::new("get", size, path, Strategy::Auto, &times));
        if path != "local" {
            let times = measure(duration, || segment.put(0, &bytes[..size]).map(drop))?;
            rows.push(Row::new("put", size, path, Strategy::Auto, &times));
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
        rows.push(Row::new("null", 0, "daemon", strategy, &times));
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
