//! The performance regression guard. `scripts/guard` runs it, since it must be built for valgrind.
//!
//! Without arguments it counts the instructions of short runs under valgrind and compares them with
//! `benches/guard/instructions.json`. The counts do not depend on the load of the machine, so the tests run this.
//! `--ratios` runs `cargo bench --bench ipc` and `fabric` with `--quick` and compares ratios to the raw limit with
//! `benches/guard/ratios.json`; that needs a quiet machine. `--keep` records the measured values instead.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command prints to its user")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ddss_benches::compiler;
use ddss_benches::regression::{
    CountError, Recorded, WORKLOADS, callgrind_options, compare, instructions, run_workload,
};

/// Argument before a workload and its rounds: valgrind runs this program again with it.
const LOAD: &str = "--load";
/// Permitted increase of an instruction count without an explanation. Counts differ by less than a thousandth between
/// runs.
const INSTRUCTIONS_TOLERANCE: f64 = 0.05;
/// Permitted increase of a ratio. Ratios to a limit still vary with the load of the host.
const RATIOS_TOLERANCE: f64 = 0.35;
/// Recorded ratios: bench, row, and column.
#[cfg(feature = "measurements")]
const RATIOS: [(&str, &str, &str); 5] = [
    ("ipc", "ddss,null,8,shm/rcq/t1,1", "of_limit"),
    ("ipc", "ddss,null,8,shm/auto/t1,1", "of_limit"),
    ("ipc", "ddss,echo,8,shm/rcq/t1,1", "of_limit"),
    ("fabric", "ddss,read,8,tcp-lo/spin/t1,1", "of_limit"),
    ("fabric", "ddss,fetch_add,8,tcp-lo/spin/t1,1", "of_limit"),
];

const USAGE: &str = "usage: guard [--ratios] [--keep] [--kept FILE] [--only LOAD]";

#[derive(Default)]
struct Wishes {
    ratios: bool,
    keep: bool,
    kept: Option<PathBuf>,
    only: Option<String>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, load, rounds] = &arguments[..]
        && word == LOAD
    {
        let known = rounds.parse().is_ok_and(|rounds| run_workload(load, rounds));
        return if known { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    let mut wishes = Wishes::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match &*argument {
            "--ratios" => wishes.ratios = true,
            "--keep" => wishes.keep = true,
            "--only" => wishes.only = arguments.next(),
            "--kept" => wishes.kept = arguments.next().map(PathBuf::from),
            _ => {
                println!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    match judge(&wishes) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("guard: {error}");
            ExitCode::FAILURE
        }
    }
}

fn judge(wishes: &Wishes) -> Result<bool, String> {
    let file = if wishes.ratios { "ratios.json" } else { "instructions.json" };
    let path = wishes.kept.clone().unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("guard").join(file));
    let measured = if wishes.ratios { ratios() } else { counts(wishes.only.as_deref()) };
    let measured = match measured {
        Ok(measured) => measured,
        Err(Skip::Because(why)) => {
            println!("skipped: guard: {why}");
            return Ok(true);
        }
        Err(Skip::Failed(why)) => return Err(why),
    };
    let compiler = compiler();
    if wishes.keep {
        let tolerance = if wishes.ratios { RATIOS_TOLERANCE } else { INSTRUCTIONS_TOLERANCE };
        let kept = Recorded { compiler, tolerance, numbers: measured };
        std::fs::write(&path, kept.json()).map_err(|error| format!("writing {}: {error}", path.display()))?;
        println!("kept {} numbers in {}", kept.numbers.len(), path.display());
        return Ok(true);
    }
    let text = std::fs::read_to_string(&path).map_err(|error| format!("reading {}: {error}", path.display()))?;
    let mut kept = Recorded::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    if !wishes.ratios && !cfg!(rustix_use_libc) {
        println!("skipped: rings-null, client-*: not built for valgrind; scripts/guard does that");
        kept.numbers.retain(|name, _| countable().any(|countable| countable == name));
    }
    if let Some(only) = &wishes.only {
        kept.numbers.retain(|name, _| name == only);
    }
    let verdicts = compare(&kept, &measured);
    for (name, verdict) in &verdicts {
        let was = kept.numbers.get(name).copied().unwrap_or(0.0);
        let is = measured.get(name).copied().unwrap_or(0.0);
        println!("{name:<46} {was:>12.2} {is:>12.2}  {verdict}");
    }
    if !wishes.ratios && kept.compiler != compiler {
        println!("skipped: guard: kept with {}, and this is {compiler}: keep anew with --keep", kept.compiler);
        return Ok(true);
    }
    let bad = verdicts.iter().filter(|(_, verdict)| verdict.is_bad()).count();
    println!("{} numbers, {bad} worse than kept in {}", verdicts.len(), path.display());
    Ok(bad == 0)
}

enum Skip {
    Because(String),
    Failed(String),
}

/// The loads that can be counted. valgrind does not know how rustix finds the kernel's own clock, which the rings read now
/// and then: for that it has to be built with `--cfg rustix_use_libc`.
fn countable() -> impl Iterator<Item = &'static str> {
    let uses_rings = |name: &str| name == "rings-null" || name.starts_with("client-");
    WORKLOADS.into_iter().map(|(name, _)| name).filter(move |name| cfg!(rustix_use_libc) || !uses_rings(name))
}

fn counts(only: Option<&str>) -> Result<BTreeMap<String, f64>, Skip> {
    let program = std::env::current_exe().map_err(|error| Skip::Failed(error.to_string()))?;
    let mut counts = BTreeMap::new();
    for name in countable().filter(|name| only.is_none_or(|only| only == *name)) {
        let count = instructions(&program, &[LOAD, name], callgrind_options(name)).map_err(|error| match error {
            CountError::NoValgrind(_) => Skip::Because(error.to_string()),
            failed @ CountError::Failed(_) => Skip::Failed(format!("{name}: {failed}")),
        })?;
        counts.insert(name.to_owned(), count);
    }
    Ok(counts)
}

#[cfg(not(feature = "measurements"))]
fn ratios() -> Result<BTreeMap<String, f64>, Skip> {
    Err(Skip::Failed("built without the measurements: scripts/guard --ratios builds them".to_owned()))
}

#[cfg(feature = "measurements")]
fn ratios() -> Result<BTreeMap<String, f64>, Skip> {
    use ddss_benches::report::{Entry, Rows, run};
    let failed = |error: &dyn std::fmt::Display| Skip::Failed(error.to_string());
    let folder = tempfile::tempdir().map_err(|error| failed(&error))?;
    let benches = ["ipc", "fabric"].map(str::to_owned);
    run(&benches, true, folder.path(), |what| println!("{what}")).map_err(|error| failed(&error))?;
    let rows = Rows::read(folder.path()).map_err(|error| failed(&error))?;
    let label =
        |entry: &Entry| format!("{},{},{},{},{}", entry.name, entry.op, entry.size, entry.mode, entry.outstanding);
    let mut ratios = BTreeMap::new();
    for (bench, row, column) in RATIOS {
        let entry = rows.of(bench).find(|entry| label(entry) == row);
        let ratio = entry.and_then(|entry| entry.more(column));
        let ratio = ratio.ok_or_else(|| Skip::Failed(format!("{bench} has no {column} of {row}")))?;
        ratios.insert(format!("{bench}: {row}"), ratio);
    }
    Ok(ratios)
}
