//! The figures: what is called, how long it takes, as a table, as JSON, as a picture.

use super::baseline;
use super::chart;
use super::setup::Field;
use crate::arguments::BenchOptions;
use crate::error::CommandError;
use crate::output::table::Table;
use crate::output::terminal_text::say;
use ddss::{Placement, Segment, Strategy};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

/// Sizes of what is moved.
const SIZES: [usize; 3] = [8, 4096, 65_536];
/// Calls between two looks at whether it is time to end.
const CALLS: usize = 16;

/// One line of the table.
pub(super) struct Row {
    /// null, get, put.
    pub(super) what: &'static str,
    pub(super) bytes: usize,
    /// daemon: through the rings; near: in place; remote: on another node.
    pub(super) road: &'static str,
    strategy: String,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    per_second: f64,
}

impl Row {
    /// What it is, in few words.
    pub(super) fn label(&self) -> String {
        let Self { what, bytes, road, strategy, .. } = self;
        match *what {
            "null" => format!("null call, {strategy}"),
            _ => format!("{what} {bytes} B, {road}"),
        }
    }

    fn as_json(&self) -> Value {
        json!({ "what": self.what, "bytes": self.bytes, "road": self.road, "strategy": self.strategy,
            "p50_us": self.p50_us, "p99_us": self.p99_us, "per_second": self.per_second })
    }
}

pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("bounds that fit")
}

/// Calls again and again for that long.
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

fn row(what: &'static str, bytes: usize, road: &'static str, strategy: Strategy, times: &Histogram<u64>) -> Row {
    let us = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
    let per_second = if times.mean() > 0.0 { 1e9 / times.mean() } else { 0.0 };
    Row { what, bytes, road, strategy: strategy.to_string(), p50_us: us(0.5), p99_us: us(0.99), per_second }
}

/// Gets and puts of each size.
fn move_bytes(
    segment: &Segment,
    road: &'static str,
    duration: Duration,
    rows: &mut Vec<Row>,
) -> Result<(), CommandError> {
    let mut bytes = vec![7; SIZES[SIZES.len() - 1]];
    for size in SIZES {
        let times = measure(duration, || segment.get_into(0, &mut bytes[..size]).map(drop))?;
        rows.push(row("get", size, road, Strategy::Auto, &times));
        if road != "near" {
            let times = measure(duration, || segment.put(0, &bytes[..size]).map(drop))?;
            rows.push(row("put", size, road, Strategy::Auto, &times));
        }
    }
    Ok(())
}

fn all(options: &BenchOptions, field: &mut Field) -> Result<Vec<Row>, CommandError> {
    let duration = Duration::from_millis(options.measure_ms);
    let mut rows = Vec::new();
    for strategy in Strategy::ALL {
        let client = field.client(strategy, false)?;
        let times = measure(duration, || client.ping())?;
        rows.push(row("null", 0, "daemon", strategy, &times));
    }
    let near = field.client(Strategy::Auto, true)?;
    let segment = field.segment(&near, Placement::Local)?;
    move_bytes(&segment, "near", duration, &mut rows)?;
    let client = field.client(Strategy::Auto, false)?;
    let segment = field.segment(&client, Placement::Local)?;
    move_bytes(&segment, "daemon", duration, &mut rows)?;
    if let Some(other) = field.other() {
        let segment = field.segment(&client, Placement::Node(other))?;
        move_bytes(&segment, "remote", duration, &mut rows)?;
    }
    Ok(rows)
}

pub(crate) fn run(options: &BenchOptions, json: bool) -> Result<(), CommandError> {
    // Who named a place where nothing can be written hears it before the minutes that measuring takes.
    let mut picture = match &options.plot {
        Some(path) => Some((path, File::create(path).map_err(CommandError::file("make", path))?)),
        None => None,
    };
    let mut field = Field::new(options)?;
    let raw_us = baseline::ping_pong(Duration::from_millis(options.measure_ms)).value_at_quantile(0.5) as f64 / 1e3;
    let rows = all(options, &mut field)?;
    drop(field);
    if let Some((path, file)) = &mut picture {
        file.write_all(chart::draw(&rows, raw_us).as_bytes()).map_err(CommandError::file("write", path))?;
    }
    if json {
        let rows: Vec<Value> = rows.iter().map(Row::as_json).collect();
        println!("{}", json!({ "raw_us": raw_us, "rows": rows }));
        return Ok(());
    }
    let mut table = Table::new(&["WHAT", "p50 µs", "p99 µs", "A SECOND", "× ONE LINE"]);
    table.right(&[1, 2, 3, 4]);
    for row in &rows {
        table.row(vec![
            row.label(),
            format!("{:.2}", row.p50_us),
            format!("{:.2}", row.p99_us),
            format!("{:.0}", row.per_second),
            format!("{:.2}", row.p50_us / raw_us),
        ]);
    }
    table.print();
    println!();
    say(&format!("one cache line between two threads, there and back: {raw_us:.2} µs"), 2);
    say("near: read in place, by a mapping; daemon: through rings; remote: a segment of another node", 2);
    if let Some(path) = &options.plot {
        say(&format!("the picture is in {}", path.display()), 2);
    }
    Ok(())
}
