//! Interleaved runs of several variants of a program, and their rows.

use std::time::{Duration, Instant};

use ddss_benches::harness::{Bench, ExtraColumns, Row, Sample};

/// Times of one run of a program.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Took {
    /// Total time.
    pub(crate) whole: Duration,
    /// Time spent on shared data.
    pub(crate) data: Duration,
    /// Number of accesses to shared data.
    pub(crate) operations: u64,
}

/// Variant of a program.
pub(crate) struct Way<'a> {
    /// The first column.
    pub(crate) name: &'static str,
    /// PATH/WAIT.
    pub(crate) path: String,
    /// Pages or requests that one call has in flight.
    pub(crate) outstanding: usize,
    /// Runs the variant once.
    pub(crate) run: Box<dyn FnMut() -> Took + 'a>,
    /// Wakes the server threads before the measurement.
    pub(crate) wake: Box<dyn Fn() + 'a>,
    /// Puts the server threads to sleep after the measurement.
    pub(crate) rest: Box<dyn Fn() + 'a>,
}

/// Medians of one variant.
#[derive(Debug, Clone)]
pub(crate) struct Result {
    /// Name of the variant.
    pub(crate) name: &'static str,
    /// PATH/WAIT.
    pub(crate) path: String,
    /// Operations in flight.
    pub(crate) outstanding: usize,
    /// Median of the total time, in microseconds.
    pub(crate) whole_us: f64,
    /// Median of the part that shares data.
    pub(crate) data_us: f64,
    /// Operations of one run.
    pub(crate) operations: u64,
}

impl Result {
    /// Returns the IPC strategy of a row of DDSS.
    pub(crate) fn wait(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

struct Samples {
    whole: Sample,
    data: Sample,
    operations: u64,
}

/// Runs all variants in turns and writes two rows for each: the total time, and the time spent on shared data. The
/// first variant is the reference.
pub(crate) fn in_turns(
    bench: &mut Bench,
    op: &str,
    size_bytes: usize,
    what: &str,
    ways: &mut [Way<'_>],
) -> Vec<Result> {
    let label = |way: &Way<'_>, part: &str| {
        format!("{},{op},{size_bytes},{}/{what}{part},{}", way.name, way.path, way.outstanding)
    };
    if !ways.iter().any(|way| bench.options.wants(&label(way, ""))) {
        return Vec::new();
    }
    let (rounds, slice) = match (bench.options.bench, bench.options.quick) {
        (false, _) => (1, Duration::ZERO),
        (true, true) => (5, Duration::from_millis(12)),
        (true, false) => (9, Duration::from_millis(40)),
    };
    let mut samples: Vec<Samples> =
        ways.iter().map(|_| Samples { whole: Sample::empty(), data: Sample::empty(), operations: 0 }).collect();
    for _ in 0..rounds {
        for (way, samples) in ways.iter_mut().zip(&mut samples) {
            one_slice(way, samples, slice);
        }
    }
    let results: Vec<Result> = ways.iter().zip(&samples).map(|(way, samples)| result(way, samples)).collect();
    for ((way, samples), result) in ways.iter().zip(&samples).zip(&results) {
        let saved = (results[0].whole_us - result.whole_us) / result.operations.max(1) as f64;
        let mut notes = vec![format!("{} operations", result.operations)];
        if results[0].name == "none" && result.name != "none" {
            notes.push(format!("saves {saved:.1} us each"));
        }
        bench.row(row(label(way, ""), &samples.whole, &results[0], results[0].whole_us, notes));
        bench.row(row(label(way, "-data"), &samples.data, &results[0], results[0].data_us, Vec::new()));
    }
    results
}

fn one_slice(way: &mut Way<'_>, samples: &mut Samples, slice: Duration) {
    (way.wake)();
    // A thread that slept has cold caches.
    (way.run)();
    let begin = Instant::now();
    loop {
        let took = (way.run)();
        samples.whole.record(took.whole, 1, 1);
        samples.data.record(took.data, 1, 1);
        samples.operations = took.operations;
        if begin.elapsed() >= slice {
            break;
        }
    }
    (way.rest)();
}

fn result(way: &Way<'_>, samples: &Samples) -> Result {
    let (whole_us, data_us) = (samples.whole.quantile_us(0.5), samples.data.quantile_us(0.5));
    let (name, path, outstanding) = (way.name, way.path.clone(), way.outstanding);
    Result { name, path, outstanding, whole_us, data_us, operations: samples.operations }
}

fn row(label: String, sample: &Sample, first: &Result, first_us: f64, notes: Vec<String>) -> Row {
    let (p50_us, p99_us) = (sample.quantile_us(0.5), sample.quantile_us(0.99));
    let is_first = label.starts_with(first.name);
    let ratio = (!is_first && first_us > 0.0).then(|| p50_us / first_us);
    let operations_per_s = sample.operations_per_s();
    let p999_us = sample.quantile_us(0.999);
    let (rate_ratio, more) = (ratio.map(f64::recip), ExtraColumns::default());
    Row { label, p50_us, p99_us, p999_us, operations_per_s, ratio, rate_ratio, more, notes }
}
