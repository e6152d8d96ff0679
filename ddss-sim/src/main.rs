//! A simulation campaign: `ddss-sim --seeds 2000 --ops 5000`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command talks to who started it")]

use clap::Parser;
use ddss_sim::{Plan, run};
use std::process::ExitCode;

/// Runs engines under many seeds, in virtual time, with everything going wrong that can.
#[derive(Parser, Debug)]
#[command(
    name = "ddss-sim",
    after_help = "Examples:\n  ddss-sim --seeds 2000 --ops 5000\n  ddss-sim --seed 77 --ops 5000   run one seed again"
)]
struct Arguments {
    /// How many seeds, from 1 (or from --seed) on
    #[arg(long, default_value_t = 100, value_name = "N")]
    seeds: u64,
    /// Gets and puts in each run
    #[arg(long, default_value_t = 5000, value_name = "M")]
    ops: usize,
    /// Only this seed
    #[arg(long, value_name = "S", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Nodes in each run
    #[arg(long, default_value_t = 3, value_name = "N")]
    nodes: usize,
    /// One JSON object at the end instead of text
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let plan = Plan { operations: arguments.ops, nodes: arguments.nodes.max(1), ..Plan::default() };
    let seeds = arguments.seed.map_or(1..=arguments.seeds, |seed| seed..=seed);
    let (mut runs, mut operations, mut done, mut cuts, mut kills, mut torn, mut sections) =
        (0u64, 0u64, 0u64, 0u64, 0u64, 0u64, 0u64);
    let mut violations = Vec::new();
    for seed in seeds {
        let report = run(seed, &plan);
        runs += 1;
        operations += report.operations;
        done += report.done;
        cuts += report.cuts;
        kills += report.client_kills;
        torn += report.torn_fetches;
        sections += report.sections;
        violations.extend(report.violations.into_iter().map(|what| format!("seed {seed}: {what}")));
    }
    if arguments.json {
        let summary = serde_json::json!({
            "seeds": runs, "operations": operations, "done": done, "cuts": cuts, "client_kills": kills,
            "torn_fetches": torn, "puts_under_lock": sections, "violations": violations.len(), "first": violations.iter().take(10).collect::<Vec<_>>(),
        });
        println!("{summary}");
    } else {
        println!("seeds {runs}, operations {operations} ({done} done), connections cut {cuts}, clients killed {kills}");
        println!("fetches that met a put and were done again {torn}, puts under a lock {sections}");
        for what in violations.iter().take(10) {
            println!("VIOLATION {what}");
        }
        println!("violations {}", violations.len());
    }
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
