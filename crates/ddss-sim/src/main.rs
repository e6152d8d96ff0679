//! Simulation campaign over many seeds: `ddss-sim --seeds 2000 --ops 5000`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command line program prints its answers")]

use clap::Parser;
use ddss_sim::{
    DsmReport, DsmScenario, KNOWN_SEEDS, Report, RiverScenario, Scenario, run, run_dsm, run_river, run_seeds,
};
use std::process::ExitCode;

/// Runs engines in virtual time under many seeds, with faults of clients, connections and nodes
#[derive(Parser, Debug)]
#[command(
    name = "ddss-sim",
    after_help = "Examples:\n  ddss-sim --seeds 2000 --ops 5000\n  ddss-sim --seed 77 --ops 5000   run one seed again\n  ddss-sim --dsm --seeds 2000 --json\n  ddss-sim --river --seeds 1000 --json"
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
    /// Run page-based shared memory instead: random programs in all protocols, orderings and kinds of stamps
    #[arg(long, conflicts_with_all = ["ops", "nodes"])]
    dsm: bool,
    /// Run data flow instead: queues, units and file servers, whose processes are killed or stopped
    #[arg(long, conflicts_with_all = ["ops", "nodes", "dsm"])]
    river: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Returns the counters of a report that a campaign adds up, with their names.
fn numbers(report: &Report) -> [(&'static str, u64); 32] {
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
        ("entries_swept", report.entries_swept),
        ("row_changes_seen", report.row_changes_seen),
        ("row_changes_missed", report.row_changes_missed),
        ("windows_searched", report.searched),
    ]
}

/// Returns the counters of a run of page-based shared memory, with their names.
fn dsm_numbers(report: &DsmReport) -> [(&'static str, u64); 20] {
    let DsmReport { steps, accesses, calls, messages, deaths, statistics, .. } = report;
    [
        ("steps", *steps),
        ("accesses", *accesses),
        ("calls", *calls),
        ("messages", *messages),
        ("deaths", *deaths),
        ("fetches", statistics.fetches),
        ("retries", statistics.retries),
        ("own_pages", statistics.own_pages),
        ("swaps", statistics.swaps),
        ("forwards", statistics.forwards),
        ("diffs", statistics.diffs),
        ("runs", statistics.runs),
        ("packed", statistics.packed),
        ("intervals", statistics.intervals),
        ("coarse", statistics.coarse),
        ("notices", statistics.notices),
        ("overwritten", statistics.overwritten),
        ("invalidations", statistics.invalidations),
        ("fences", statistics.fences),
        ("idle_twins", statistics.idle_twins),
    ]
}

/// Sums, trace and violations of a campaign.
struct Summary {
    seeds: usize,
    sums: Vec<(&'static str, u64)>,
    /// Hash over the traces of all runs: two builds that decide alike print the same.
    trace: u64,
    violations: Vec<String>,
}

impl Summary {
    fn new(seeds: usize) -> Self {
        Self { seeds, sums: Vec::new(), trace: 0, violations: Vec::new() }
    }

    fn add(&mut self, seed: u64, numbers: &[(&'static str, u64)], trace: u64, violations: Vec<String>) {
        self.sums.resize(numbers.len(), ("", 0));
        for (sum, number) in self.sums.iter_mut().zip(numbers) {
            *sum = (number.0, sum.1 + number.1);
        }
        self.trace = self.trace.rotate_left(1) ^ trace;
        self.violations.extend(violations.into_iter().map(|what| format!("seed {seed}: {what}")));
    }

    fn print(self, as_json: bool) -> ExitCode {
        let Self { seeds, sums, trace, violations } = self;
        if as_json {
            let mut summary =
                serde_json::Map::from_iter(sums.into_iter().map(|(name, sum)| (name.to_owned(), sum.into())));
            summary.insert("seeds".to_owned(), seeds.into());
            summary.insert("trace".to_owned(), format!("{trace:016x}").into());
            summary.insert("violations".to_owned(), violations.len().into());
            summary.insert("first".to_owned(), violations.iter().take(10).cloned().collect());
            println!("{}", serde_json::Value::Object(summary));
        } else {
            println!("seeds {seeds}");
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
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut seeds: Vec<u64> = match arguments.seed {
        Some(seed) => vec![seed],
        None => (1..=arguments.seeds).collect(),
    };
    if arguments.dsm {
        let scenario = DsmScenario { deaths: true, ..DsmScenario::default() };
        let mut summary = Summary::new(seeds.len());
        for (seed, report) in run_seeds(&seeds, |seed| run_dsm(seed, &scenario)) {
            summary.add(seed, &dsm_numbers(&report), report.trace, report.violations);
        }
        return summary.print(arguments.json);
    }
    if arguments.river {
        let mut summary = Summary::new(seeds.len());
        for (seed, report) in run_seeds(&seeds, |seed| run_river(seed, &RiverScenario::default())) {
            summary.add(seed, &report.counts, report.trace, report.violations);
        }
        return summary.print(arguments.json);
    }
    let plan = Scenario { operations: arguments.ops, nodes: arguments.nodes.max(1), ..Scenario::default() };
    if arguments.seed.is_none() {
        // Regression seeds come first.
        seeds.splice(0..0, KNOWN_SEEDS.iter().copied());
    }
    let mut summary = Summary::new(seeds.len());
    for (seed, report) in run_seeds(&seeds, |seed| run(seed, &plan)) {
        summary.add(seed, &numbers(&report), report.trace, report.violations);
    }
    summary.print(arguments.json)
}
