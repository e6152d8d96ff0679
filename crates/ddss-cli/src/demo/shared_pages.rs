//! The command `demo dsm`: a stencil on four ranks in each protocol, the death of a rank, and the way on from a checkpoint.
//!
//! `ddss dsm run` starts the ranks, as it starts those of any program.

use super::child::ChildProcess;
use super::cluster::DemoCluster;
use super::plate::{RANKS, SIZE, STEPS, STEPS_EACH, VICTIM};
use crate::arguments::dsm::ProtocolName;
use crate::error::CommandError;
use crate::output::table::{Table, format_bytes};
use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::time::Instant;

/// Counts of all ranks, and the mean of their times.
const COUNTS: [&str; 7] =
    ["fetches", "retries", "messages", "diffs", "changed_bytes", "invalidations", "handler_bytes"];
const TIMES: [&str; 4] = ["computing_ms", "pages_ms", "barriers_ms", "all_ms"];

/// Counts and times of a run of the program with one protocol.
struct Row {
    protocol: String,
    counts: [u64; COUNTS.len()],
    times_ms: [f64; TIMES.len()],
}

impl Row {
    fn as_json(&self) -> Value {
        let counts = COUNTS.iter().zip(self.counts).map(|(name, count)| ((*name).to_owned(), json!(count)));
        let times = TIMES.iter().zip(self.times_ms).map(|(name, time)| ((*name).to_owned(), json!(time)));
        let protocol = [("protocol".to_owned(), json!(self.protocol))];
        Value::Object(protocol.into_iter().chain(counts).chain(times).collect())
    }
}

/// The death of a rank, as the others saw it, and the run behind it.
struct Death {
    step: u64,
    /// Error of each other rank, with the time after the kill.
    errors: Vec<(u64, String, f64)>,
    /// Step of the checkpoint from which the ranks went on.
    restored: u64,
}

impl Death {
    fn as_json(&self) -> Value {
        let errors: Vec<_> = self
            .errors
            .iter()
            .map(|(rank, error, after_ms)| json!({ "rank": rank, "error": error, "after_ms": after_ms }))
            .collect();
        json!({ "rank": VICTIM, "step": self.step, "errors": errors, "restored": self.restored })
    }
}

pub(super) fn run(json: bool) -> Result<(), CommandError> {
    let say = |line: &str| {
        if !json {
            println!("{line}");
        }
    };
    say(&format!("Four ranks, each a process of its own, share a plate of {SIZE} x {SIZE} numbers."));
    say(&format!("They compute its heat in {STEPS} steps; a barrier ends each step.\n"));
    let cluster = DemoCluster::start_nodes()?;
    let rows = ProtocolName::value_variants().iter().map(|protocol| compute(&cluster, *protocol));
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    if !json {
        show(&rows);
    }
    let death = kill_and_restart(&cluster, &say)?;
    cluster.stop()?;
    if json {
        let protocols: Vec<_> = rows.iter().map(Row::as_json).collect();
        println!("{}", json!({ "ranks": RANKS, "steps": STEPS, "protocols": protocols, "death": death.as_json() }));
        return Ok(());
    }
    say("\nThe book's page \"Shared pages\" has the program.");
    Ok(())
}

fn show(rows: &[Row]) {
    let mut table =
        Table::new(&["PROTOCOL", "FETCHES", "MESSAGES", "DIFFS", "CHANGED", "COMPUTE", "PAGES", "BARRIERS"]);
    table.align_right(&[1, 2, 3, 4, 5, 6, 7]);
    for row in rows {
        let [fetches, _, messages, diffs, changed, ..] = row.counts;
        let counts = [fetches, messages, diffs].map(|count| count.to_string());
        let times = row.times_ms.iter().take(3).map(|time| format!("{time:.1} ms"));
        table.row(
            [row.protocol.clone()].into_iter().chain(counts).chain([format_bytes(changed)]).chain(times).collect(),
        );
    }
    table.print_or("nothing was computed");
    println!("(sums of four ranks, and the mean of their times)");
    println!("Each time the plate equals that of one process, bit by bit.");
}

/// Starts the ranks with `ddss dsm run`.
fn start(cluster: &DemoCluster, options: &[&str], task: &[&str]) -> Result<ChildProcess, CommandError> {
    let mut arguments = vec![OsString::from("run"), "--dir".into(), cluster.folder(1).into(), "-n".into()];
    arguments.push(RANKS.to_string().into());
    arguments.extend(options.iter().map(OsString::from));
    let own = std::env::current_exe().map_err(CommandError::system("find the path of this program"))?;
    arguments.extend(["--".into(), own.into(), "demo-rank".into()]);
    arguments.extend(task.iter().map(OsString::from));
    ChildProcess::start("dsm", arguments)
}

fn compute(cluster: &DemoCluster, protocol: ProtocolName) -> Result<Row, CommandError> {
    let protocol = protocol.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let mut ranks = start(cluster, &["--protocol", &protocol], &[])?;
    let mut row = Row { protocol, counts: [0; COUNTS.len()], times_ms: [0.0; TIMES.len()] };
    for _ in 0..RANKS {
        let done = ranks.receive("computed")?;
        for (sum, name) in row.counts.iter_mut().zip(COUNTS) {
            *sum += done[name].as_u64().unwrap_or_default();
        }
        for (mean, name) in row.times_ms.iter_mut().zip(TIMES) {
            *mean += done[name].as_f64().unwrap_or_default() / f64::from(RANKS);
        }
    }
    ranks.finish()?;
    Ok(row)
}

/// Kills a rank between two checkpoints, and waits until the ranks, started again, have the right plate.
fn kill_and_restart(cluster: &DemoCluster, say: &dyn Fn(&str)) -> Result<Death, CommandError> {
    let mut ranks = start(cluster, &["--restart", "1"], &["--loses-rank"])?;
    let waits = ranks.receive("waits")?;
    let (step, pid) = (waits["step"].as_u64().unwrap_or_default(), waits["pid"].as_i64().unwrap_or_default());
    // The rank is there: it ends only when it is killed.
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| CommandError::Demo(format!("a rank replied {waits}")))?;
    let killed = Instant::now();
    kill_process(pid, Signal::KILL).map_err(|error| CommandError::system("kill a rank")(error.into()))?;
    say(&format!("\nrank {VICTIM}: killed (SIGKILL) in step {step}; every {STEPS_EACH}th step ends in a checkpoint"));
    let mut errors = Vec::new();
    for _ in 1..RANKS {
        let lost = ranks.receive("lost")?;
        let after_ms = killed.elapsed().as_secs_f64() * 1e3;
        let (rank, error) = (lost["rank"].as_u64().unwrap_or_default(), lost["error"].as_str().unwrap_or_default());
        say(&format!("rank {rank}, {after_ms:.0} ms later: {error}"));
        errors.push((rank, error.to_owned(), after_ms));
    }
    let mut restored = 0;
    for _ in 0..RANKS {
        restored = ranks.receive("computed")?["restored"].as_u64().unwrap_or_default();
    }
    ranks.finish()?;
    say(&format!("`ddss dsm run --restart 1` started all ranks again: they went on from step {restored},"));
    say("and the plate equals that of one process, bit by bit.");
    Ok(Death { step, errors, restored })
}
