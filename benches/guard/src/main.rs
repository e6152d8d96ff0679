//! The performance regression guard. `scripts/guard` runs it, since it must be built for valgrind.
//!
//! It counts the instructions of short runs under valgrind and compares them with `benches/guard/instructions.json`.
//! The counts do not depend on the load of the machine, so the tests run this.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command prints to its user")]

use std::collections::BTreeMap;
use std::process::ExitCode;

use ddss_guard::{CountError, WORKLOADS, Wishes, callgrind_options, instructions, judge, run_workload};

/// Argument before a workload and its rounds: valgrind runs this program again with it.
const LOAD: &str = "--load";
/// Instructions are the same to a thousandth from run to run; this much a change may cost without being asked why.
const TOLERANCE: f64 = 0.05;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, load, rounds] = &arguments[..]
        && word == LOAD
    {
        let known = rounds.parse().is_ok_and(|rounds| run_workload(load, rounds));
        return if known { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    let Some(wishes) = Wishes::parse(arguments.into_iter()) else {
        println!("usage: guard [--keep] [--kept FILE] [--only LOAD]");
        return ExitCode::from(2);
    };
    match run(&wishes) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("guard: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(wishes: &Wishes) -> Result<bool, String> {
    let counts = match counts(wishes.only.as_deref()) {
        Ok(counts) => counts,
        Err(error @ CountError::NoValgrind(_)) => {
            println!("skipped: guard: {error}");
            return Ok(true);
        }
        Err(error) => return Err(error.to_string()),
    };
    if !cfg!(rustix_use_libc) && !wishes.keep {
        println!("skipped: rings-null, client-*: not built for valgrind; scripts/guard does that");
    }
    let judgement = judge(wishes, "instructions.json", TOLERANCE, counts, is_countable, true)?;
    judgement.lines.iter().for_each(|line| println!("{line}"));
    Ok(judgement.is_good)
}

/// Returns true if the workload can be counted. valgrind does not know how rustix finds the kernel's own clock, which the
/// rings read now and then: for that the program must be built with `--cfg rustix_use_libc`.
fn is_countable(name: &str) -> bool {
    cfg!(rustix_use_libc) || !(name == "rings-null" || name.starts_with("client-"))
}

fn counts(only: Option<&str>) -> Result<BTreeMap<String, f64>, CountError> {
    let program = std::env::current_exe().map_err(|error| CountError::Failed(error.to_string()))?;
    let mut counts = BTreeMap::new();
    let names = WORKLOADS.into_iter().map(|(name, _)| name).filter(|name| is_countable(name));
    for name in names.filter(|name| only.is_none_or(|only| only == *name)) {
        let count = instructions(&program, &[LOAD, name], callgrind_options(name));
        counts.insert(name.to_owned(), count.map_err(|error| error.named(name))?);
    }
    Ok(counts)
}
