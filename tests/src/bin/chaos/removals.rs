//! Rolling departures and removals of nodes while clients work on replicated segments.
//!
//! Each removed node ends by itself, even one that was dead and returns, and a fresh node joins under a new id. No
//! segment may lose data.

use crate::cluster::Cluster;
use crate::reboots::until_in_sync;
use crate::worker::Plan;
use ddss_testkit::{Daemon, DaemonOptions, Random, binary};
use std::error::Error;
use std::process::Command;
use std::time::Duration;

const WORKERS: u16 = 6;
/// Pause between two calls of a worker, whose log must hold the calls of the complete run.
const PAUSE: Duration = Duration::from_millis(2);
/// Index of the node that is removed. The workers are clients of the other nodes.
const SEAT: usize = 2;
/// Time limit until a removed daemon has ended.
const END_MAX: Duration = Duration::from_secs(30);
/// Exit codes of a decommissioned and of a removed daemon.
const LEFT: i32 = 0;
const REMOVED: i32 = 8;

/// Counters of the run.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) left: u64,
    pub(crate) removed_alive: u64,
    pub(crate) removed_dead: u64,
    /// Workers that found no daemon, or not their segments, for as long as they could wait.
    pub(crate) stranded: u64,
    /// The longest time from a join until all segments were in sync.
    pub(crate) slowest_s: f64,
}

/// Removes `rounds` nodes from the cluster, each time when all segments are in sync.
pub(crate) fn remove(field: &mut Cluster, rounds: u64) -> Result<Run, Box<dyn Error>> {
    let mut run = Run::default();
    let mut random = Random::new(rounds ^ 0x1eaf);
    for number in 0..WORKERS {
        field.hire(number % SEAT as u16 + 1, Plan { pause: PAUSE, ..Plan::all() })?;
    }
    until_in_sync(field)?;
    let mut number = SEAT as u16 + 1;
    for round in 0..rounds {
        let daemon = &mut field.daemons[SEAT];
        match (round + random.below(2)) % 3 {
            0 => {
                cluster(daemon, &["leave"])?;
                ends(daemon, LEFT)?;
                run.left += 1;
            }
            1 => {
                take_out(field, number, &["--force"])?;
                ends(&mut field.daemons[SEAT], REMOVED)?;
                run.removed_alive += 1;
            }
            _ => {
                daemon.kill()?;
                take_out(field, number, &[])?;
                let daemon = &mut field.daemons[SEAT];
                // The daemon may end before it reports that it is ready.
                let _ = daemon.restart();
                ends(daemon, REMOVED)?;
                run.removed_dead += 1;
            }
        }
        number += 1;
        let fresh = DaemonOptions::new(number)?.joins(field.daemons[0].listen()).pool_bytes(64 << 20);
        let mut fresh = fresh.argument("--core").argument("none").start()?;
        if !fresh.process().stdout().starts_with(&format!("ready node {number} ")) {
            return Err(format!("not node {number}: {}", fresh.process().stdout()).into());
        }
        field.daemons[SEAT] = fresh;
        run.slowest_s = run.slowest_s.max(until_in_sync(field)?.as_secs_f64());
    }
    run.stranded = field.stop()?;
    Ok(run)
}

/// Removes a node by a command to another node.
fn take_out(field: &Cluster, node: u16, words: &[&str]) -> Result<(), Box<dyn Error>> {
    cluster(&field.daemons[0], &[&["remove", &node.to_string()], words].concat())
}

fn cluster(daemon: &Daemon, words: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut command = Command::new(binary("ddss")?);
    let output = command.arg("cluster").args(words).arg("--json").arg("--dir").arg(daemon.folder()).output()?;
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // Each segment has a copy on another node, so none is lost.
    let said: serde_json::Value = serde_json::from_str(&out).unwrap_or_default();
    if output.status.success() && said["dropped"] == 0 {
        Ok(())
    } else {
        Err(format!("{words:?}: {out}{error}").into())
    }
}

fn ends(daemon: &mut Daemon, code: i32) -> Result<(), Box<dyn Error>> {
    match daemon.process().wait(END_MAX)? {
        Some(status) if status.code() == Some(code) => Ok(()),
        ended => Err(format!("ended as {ended:?} and not as {code}: {}", daemon.process().stderr()).into()),
    }
}
