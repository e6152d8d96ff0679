//! Simulation campaign over many seeds: `ddss-sim --seeds 2000 --ops 5000`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command line program prints its answers")]

use clap::Parser;
use ddss_sim::{KNOWN_SEEDS, Report, Scenario, run};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs engines in virtual time under many seeds, with faults of clients, connections and nodes
#[derive(Parser, Debug)]
#[command(
    name = "ddss-sim",
    after_help = "Examples:\n  ddss-sim --seeds 2000 --ops 5000\n  ddss-sim --seed 77 --ops 5000   run one seed again"
)]
struct Arguments {
    /// Number of seeds from 1 on, after the regression seeds
    #[arg(long, default_value_t = 100, value_name = "N")]
    seeds: u64,
    /// Calls in each run
    #[arg(long, default_value_t = 5000, value_name = "M")]
    ops: usize,
    /// Run only this seed
    #[arg(long, value_name = "S", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Nodes in each run
    #[arg(long, default_value_t = 3, value_name = "N")]
    nodes: usize,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Returns the counters of a report that a campaign adds up, with their names.
fn numbers(report: &Report) -> [(&'static str, u64); 31] {
    [
        ("operations", report.operations),
        ("done", report.done),
        ("cuts", report.cuts),
        ("client_kills", report.client_kills),
        ("crashes", report.crashes),
        ("survived", report.survived),
        ("pauses", report.pauses),
        ("parked", report.parked),
        ("half_seen", report.half_seen),
        ("torn_fetches", report.torn_fetches),
        ("handed", report.handed),
        ("copied", report.copied),
        ("older", report.older),
        ("refused", report.refused),
        ("released", report.released),
        ("takeovers", report.takeovers),
        ("pairings", report.pairings),
        ("isolations", report.isolations),
        ("lost_twice", report.lost_twice),
        ("under_lock", report.sections),
        ("large_puts", report.large_puts),
        ("large_puts_with_copies", report.large_puts_with_copies),
        ("large_puts_refused", report.large_puts_refused),
        ("copies_checked", report.copies_checked),
        ("large_puts_undone", report.large_puts_undone),
        ("row_sections", report.row_sections),
        ("row_calls", report.row_calls),
        ("entry_changes", report.entry_changes),
        ("row_changes_seen", report.row_changes_seen),
        ("row_changes_missed", report.row_changes_missed),
        ("windows_searched", report.searched),
    ]
}

/// Runs the seeds on all cores, and returns their reports in the order of the seeds.
fn run_all(seeds: &[u64], plan: &Scenario) -> Vec<(u64, Report)> {
    let next = AtomicUsize::new(0);
    let claim = || {
        let place = next.fetch_add(1, Ordering::Relaxed);
        seeds.get(place).map(|seed| (place, *seed))
    };
    let work = || std::iter::from_fn(claim).map(|(place, seed)| (place, seed, run(seed, plan))).collect::<Vec<_>>();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut reports: Vec<(usize, u64, Report)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no seed panics")).collect()
    });
    reports.sort_by_key(|(place, ..)| *place);
    reports.into_iter().map(|(_, seed, report)| (seed, report)).collect()
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let plan = Scenario { operations: arguments.ops, nodes: arguments.nodes.max(1), ..Scenario::default() };
    let mut seeds: Vec<u64> = match arguments.seed {
        Some(seed) => vec![seed],
        None => (1..=arguments.seeds).collect(),
    };
    if arguments.seed.is_none() {
        // Regression seeds come first.
        seeds.splice(0..0, KNOWN_SEEDS.iter().copied());
    }
    let mut sums = numbers(&Report::default());
    let mut violations = Vec::new();
    // Hash over the traces of all runs: two builds that decide alike print the same.
    let mut trace: u64 = 0;
    for (seed, report) in run_all(&seeds, &plan) {
        for (sum, number) in sums.iter_mut().zip(numbers(&report)) {
            sum.1 += number.1;
        }
        trace = trace.rotate_left(1) ^ report.trace;
        violations.extend(report.violations.into_iter().map(|what| format!("seed {seed}: {what}")));
    }
    if arguments.json {
        let mut summary = serde_json::Map::from_iter(sums.map(|(name, sum)| (name.to_owned(), sum.into())));
        summary.insert("seeds".to_owned(), seeds.len().into());
        summary.insert("trace".to_owned(), format!("{trace:016x}").into());
        summary.insert("violations".to_owned(), violations.len().into());
        summary.insert("first".to_owned(), violations.iter().take(10).cloned().collect());
        println!("{}", serde_json::Value::Object(summary));
    } else {
        println!("seeds {}", seeds.len());
        for (name, sum) in sums {
            println!("{name} {sum}");
        }
        println!("trace {trace:016x}");
        for what in violations.iter().take(10) {
            println!("VIOLATION {what}");
        }
        println!("violations {}", violations.len());
    }
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
