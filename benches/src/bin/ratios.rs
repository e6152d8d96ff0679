//! Ratios to the raw limit: `scripts/guard --ratios` runs it.
//!
//! It runs `cargo bench --bench ipc` and `fabric` with `--quick`, and compares ratios to the raw limit with
//! `benches/guard/ratios.json`. That needs a quiet machine.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command prints to its user")]

use std::collections::BTreeMap;
use std::process::ExitCode;

use ddss_benches::report::{Entry, Rows, run};
use ddss_guard::{Wishes, judge};

/// Ratios to a limit that is measured beside them still vary by the machine's neighbours.
const TOLERANCE: f64 = 0.35;
/// Recorded ratios: bench, row, and column.
const RATIOS: [(&str, &str, &str); 5] = [
    ("ipc", "ddss,null,8,shm/rcq/t1,1", "of_limit"),
    ("ipc", "ddss,null,8,shm/auto/t1,1", "of_limit"),
    ("ipc", "ddss,echo,8,shm/rcq/t1,1", "of_limit"),
    ("fabric", "ddss,read,8,tcp-lo/spin/t1,1", "of_limit"),
    ("fabric", "ddss,fetch_add,8,tcp-lo/spin/t1,1", "of_limit"),
];

fn main() -> ExitCode {
    let Some(wishes) = Wishes::parse(std::env::args().skip(1)).filter(|wishes| wishes.only.is_none()) else {
        println!("usage: ratios [--keep] [--kept FILE]");
        return ExitCode::from(2);
    };
    match ratios().and_then(|ratios| judge(&wishes, "ratios.json", TOLERANCE, ratios, |_| true, false)) {
        Ok(judgement) => {
            judgement.lines.iter().for_each(|line| println!("{line}"));
            if judgement.is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            println!("ratios: {error}");
            ExitCode::FAILURE
        }
    }
}

fn ratios() -> Result<BTreeMap<String, f64>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let benches = ["ipc", "fabric"].map(str::to_owned);
    run(&benches, true, folder.path(), |text| println!("{text}")).map_err(|error| error.to_string())?;
    let rows = Rows::read(folder.path()).map_err(|error| error.to_string())?;
    let label =
        |entry: &Entry| format!("{},{},{},{},{}", entry.name, entry.op, entry.size, entry.mode, entry.outstanding);
    let mut ratios = BTreeMap::new();
    for (bench, row, column) in RATIOS {
        let entry = rows.of(bench).find(|entry| label(entry) == row);
        let ratio = entry.and_then(|entry| entry.more(column));
        ratios.insert(format!("{bench}: {row}"), ratio.ok_or_else(|| format!("{bench} has no {column} of {row}"))?);
    }
    Ok(ratios)
}
