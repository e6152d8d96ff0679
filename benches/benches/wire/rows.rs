//! Rows for the report, and a table for people.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use ddss_benches::harness::CONTRACT;

use crate::stream::Kind;

/// Columns of this bench, behind those of the contract.
const COLUMNS: [&str; 11] = [
    "of_limit",
    "rate_of_limit",
    "client_cpu_us",
    "rate_of_basic",
    "cpu_of_limit",
    "cpu_of_basic",
    "send_copies",
    "receive_copies",
    "send_cache",
    "receive_cache",
    "messages",
];

/// Medians of the rounds of one kind.
pub(crate) struct Times {
    /// Time of an operation in each round, in microseconds.
    pub(crate) each_us: Vec<f64>,
    /// Processor time of both ends for an operation, in microseconds: the median of the rounds.
    pub(crate) cpu_us: f64,
    /// Rate to that of TCP and to that of basic: medians of the rounds' ratios.
    pub(crate) rate_of: [f64; 2],
    /// Processor time to that of TCP and to that of basic.
    pub(crate) cpu_of: [f64; 2],
}

/// Counts for each byte of the stream, or for each write.
pub(crate) struct Counts {
    pub(crate) copies: [f64; 2],
    pub(crate) cache: [f64; 2],
    pub(crate) messages: f64,
}

/// Output of the rows.
pub(crate) struct Rows {
    file: Option<File>,
    rounds: usize,
}

impl Rows {
    pub(crate) fn start(csv: Option<&Path>, rounds: usize) -> io::Result<Self> {
        let mut file = csv.map(File::create).transpose()?;
        if let Some(file) = &mut file {
            writeln!(file, "{CONTRACT},{},notes", COLUMNS.join(","))?;
        }
        println!("{:<63} {:>10} {:<8}{:>8}{:>8}{:>8}{:>8}", "", "median", "", "/tcp", "/basic", "cpu/tcp", "cpu/bas");
        Ok(Self { file, rounds })
    }

    /// Writes the row of one kind, whose operation moves `size` bytes.
    pub(crate) fn times(&mut self, op: &str, size: usize, kind: Kind, times: &Times) -> io::Result<()> {
        let median_us = quantile(&times.each_us, 0.5);
        let rate = 1e6 / median_us;
        let (shown, unit) = if op == "stream" { (rate * size as f64 / 1e6, "MB/s") } else { (rate, "trips/s") };
        let ([of_tcp, of_basic], [cpu_of_tcp, cpu_of_basic]) = (times.rate_of, times.cpu_of);
        let ratios = [of_tcp, of_basic, cpu_of_tcp, cpu_of_basic].map(|ratio| format!("{ratio:>8.2}")).concat();
        println!("{:<18} {:<44} {shown:>10.1} {unit:<8}{ratios}", format!("{op} {size}"), kind.title());
        let extra = [1.0 / of_tcp, of_tcp, times.cpu_us, of_basic, cpu_of_tcp, cpu_of_basic];
        let extra = extra.map(|number| format!("{number:.4}"));
        let p99_us = quantile(&times.each_us, 0.99);
        let notes = format!("{} rounds; a core for each end", self.rounds);
        self.line(op, size, kind, &format!("{median_us:.4},{p99_us:.4},{rate:.0},{},,,,,,{notes}", extra.join(",")))
    }

    /// Writes the counts of writes of `size` bytes and of small writes.
    pub(crate) fn counts(&mut self, size: usize, kind: Kind, counts: &Counts) -> io::Result<()> {
        let Counts { copies: [send, receive], cache: [send_cache, receive_cache], messages } = counts;
        println!(
            "{:<44} {send:<8.3} {receive:<9.3} {send_cache:<9.3} {receive_cache:<9.3} {messages:.3}",
            kind.title()
        );
        let counted = format!("{send:.4},{receive:.4},{send_cache:.4},{receive_cache:.4},{messages:.4}");
        self.line("counts", size, kind, &format!("0,0,0,,,,,,,{counted},"))
    }

    fn line(&mut self, op: &str, size: usize, kind: Kind, rest: &str) -> io::Result<()> {
        let [name, mode] = kind.columns();
        match &mut self.file {
            Some(file) => writeln!(file, "{name},{op},{size},{mode},1,{rest}"),
            None => Ok(()),
        }
    }
}

/// Head of the table of counts.
pub(crate) fn print_head_of_counts() {
    println!("\n{:<44} copies a byte      cache bytes a byte  messages a 64-byte write", "counted");
    println!("{:<44} send     receive   send      receive   against a slow receiver", "");
}

/// Returns the value below which this share of the values lies.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}
