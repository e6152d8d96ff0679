//! Interleaved rounds, paired ratios, and the rows that are printed.

use std::io;

use ddss_benches::harness::Cores;

/// Default number of rounds.
const ROUNDS: usize = 9;

/// Amount of measurement.
pub(crate) struct Options {
    pub(crate) rounds: usize,
    /// Divisor of all counts: `cargo test --benches` runs everything once, and the numbers mean nothing then.
    pub(crate) scale: usize,
    /// Cores of client and server, read before the first thread was pinned.
    pub(crate) cores: Cores,
    only: Option<String>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Self {
        let value = |name: &str| arguments.windows(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone());
        let is_measured = arguments.iter().any(|argument| argument == "--bench");
        let rounds = value("--rounds").and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS).max(1);
        Self {
            rounds: if is_measured { rounds } else { 1 },
            scale: if is_measured { 1 } else { 200 },
            cores: Cores::of_this_machine(),
            only: value("--only"),
        }
    }

    /// Returns true if the rows of this name are selected.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| name.contains(only))
    }
}

/// Result of one turn.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    /// Operations, or megabytes, a second.
    pub(crate) rate: f64,
    /// Processor time of the server for each operation, in microseconds.
    pub(crate) server_us: f64,
    /// Processor time of the client for each operation, in microseconds.
    pub(crate) client_us: f64,
}

/// A transport to measure, with the name of its row.
#[derive(Clone, Copy)]
pub(crate) struct Row<K> {
    pub(crate) kind: K,
    pub(crate) name: &'static str,
}

pub(crate) fn print_head() {
    println!(
        "{:<32}{:<28}{:>11} {:<7}{:>7}{:>7} |{:>9}{:>7} |{:>9}{:>7}",
        "", "", "median", "", "/tcp", "/unix", "server us", "/tcp", "client us", "/tcp"
    );
}

/// Measures all transports in turns and prints a row for each. The first row is TCP, the second one is the Unix socket
/// if `has_unix`.
pub(crate) fn compare<K: Copy>(
    options: &Options,
    what: &str,
    unit: &str,
    rows: &[Row<K>],
    has_unix: bool,
    mut measure: impl FnMut(K) -> io::Result<Sample>,
) -> io::Result<()> {
    let mut samples = vec![Vec::with_capacity(options.rounds); rows.len()];
    for round in 0..options.rounds {
        for turn in 0..rows.len() {
            let place = (turn + round) % rows.len();
            samples[place].push(measure(rows[place].kind)?);
        }
    }
    for (row, own) in rows.iter().zip(&samples) {
        let values = |value: fn(&Sample) -> f64| median(own.iter().map(value).collect());
        let ratio = |value: fn(&Sample) -> f64, base: &[Sample]| {
            median(own.iter().zip(base).map(|(own, base)| value(own) / value(base)).collect())
        };
        let to_unix =
            if has_unix { format!("{:>7.2}", ratio(|one| one.rate, &samples[1])) } else { format!("{:>7}", "") };
        println!(
            "{what:<32}{:<28}{:>11.0} {unit:<7}{:>7.2}{to_unix} |{:>9.2}{:>7.3} |{:>9.2}{:>7.3}",
            row.name,
            values(|one| one.rate),
            ratio(|one| one.rate, &samples[0]),
            values(|one| one.server_us),
            ratio(|one| one.server_us, &samples[0]),
            values(|one| one.client_us),
            ratio(|one| one.client_us, &samples[0]),
        );
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
