//! A rolling upgrade from the previous release to this one and back, while clients of both work on replicated segments.
//!
//! No client is started again, each goes on behind each restart, no acknowledged put may be lost, and commands of each release
//! read daemons of the other one.

use crate::cluster::{Cluster, NODES};
use crate::reboots::until_in_sync;
use crate::worker::{PATIENCE, PLACES, Plan};
use ddss_testkit::binary;
use serde_json::Value;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const WORKERS: u16 = 6;
/// Pause between two calls of a worker, whose log must hold the calls of the complete run.
const PAUSE: Duration = Duration::from_millis(2);
/// Time between two looks at the workers and at the cluster.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Protocols of the cluster after each restart of a round: all nodes speak the newest only while none is of the previous release,
/// whose own daemons know no such number.
const LEVELS: [Option<u64>; 2 * NODES as usize] = [Some(16), Some(16), Some(17), Some(16), Some(16), None];

/// Programs of one release.
#[derive(Clone)]
pub(crate) struct Programs {
    pub(crate) ddssd: PathBuf,
    pub(crate) ddss: PathBuf,
    pub(crate) chaos: PathBuf,
}

impl Programs {
    /// The programs that `scripts/previous-release` has built.
    pub(crate) fn below(folder: &Path) -> Self {
        let program = |name: &str| folder.join(name);
        Self { ddssd: program("ddssd"), ddss: program("ddss"), chaos: program("chaos") }
    }

    pub(crate) fn of_this_release() -> Result<Self, Box<dyn Error>> {
        Ok(Self { ddssd: binary("ddssd")?, ddss: binary("ddss")?, chaos: std::env::current_exe()? })
    }
}

/// Counters of the run.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) upgraded: u64,
    pub(crate) taken_back: u64,
    /// Protocols of the cluster, as `ddss cluster status` showed them after each restart.
    pub(crate) levels: Vec<Value>,
    /// Workers that found no daemon, or not their segments, for as long as they could wait.
    pub(crate) stranded: u64,
}

/// Upgrades the nodes of a cluster of the previous release one after the other, `rounds` times, each time with the way back.
pub(crate) fn upgrade(field: &mut Cluster, previous: &Programs, rounds: u64) -> Result<Run, Box<dyn Error>> {
    let (mut run, ours) = (Run::default(), Programs::of_this_release()?);
    for number in 0..WORKERS {
        let programs = if number < NODES { previous } else { &ours };
        field.hire_of(&programs.chaos, number % NODES + 1, Plan { pause: PAUSE, ..Plan::all() })?;
    }
    until_in_sync(field)?;
    for turn in 0..2 * rounds {
        let is_upgrade = turn % 2 == 0;
        let programs = if is_upgrade { &ours } else { previous };
        for node in 0..usize::from(NODES) {
            let expected = LEVELS[usize::from(!is_upgrade) * usize::from(NODES) + node];
            field.daemons[node].set_program(&programs.ddssd);
            field.daemons[node].restart()?;
            *(if is_upgrade { &mut run.upgraded } else { &mut run.taken_back }) += 1;
            until_in_sync(field)?;
            until_all_go_on(field)?;
            run.levels.push(until_level_is(expected, || read_by_both(field, previous, &ours))?);
        }
    }
    run.stranded = field.stop()?;
    Ok(run)
}

/// Waits until each worker has done something at each place, from now on: at homes of both releases.
fn until_all_go_on(field: &Cluster) -> Result<(), Box<dyn Error>> {
    let (end, mut workers) = (Instant::now() + PATIENCE, (0..field.workers.len()).collect::<Vec<_>>());
    let since: Vec<u64> = workers.iter().map(|worker| field.count(*worker)).collect();
    loop {
        let mut idle = Vec::new();
        for worker in workers {
            if field.places_done_since(worker, since[worker])?.len() < PLACES {
                idle.push(worker);
            }
        }
        if idle.is_empty() {
            return Ok(());
        }
        if Instant::now() > end {
            let first = idle[0];
            let done = field.places_done_since(first, since[first])?;
            return Err(format!(
                "{PATIENCE:?} after a restart workers {idle:?} did not work everywhere: worker {first} at {done:?}"
            )
            .into());
        }
        workers = idle;
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Reads the protocol of the cluster until it is the expected one: a node that is slow to answer makes it unknown.
fn until_level_is(
    expected: Option<u64>,
    read: impl Fn() -> Result<Value, Box<dyn Error>>,
) -> Result<Value, Box<dyn Error>> {
    let end = Instant::now() + PATIENCE;
    loop {
        let level = read()?;
        if level.as_u64() == expected {
            return Ok(level);
        }
        if Instant::now() > end {
            return Err(format!("all nodes speak protocol {level}, and {expected:?} was expected").into());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Reads the state of each daemon with the commands of both releases. Returns the protocol that a node of this release
/// reports for the cluster, or null if there is none.
fn read_by_both(field: &Cluster, previous: &Programs, ours: &Programs) -> Result<Value, Box<dyn Error>> {
    let mut level = Value::Null;
    for daemon in &field.daemons {
        for programs in [previous, ours] {
            let read = |words: &[&str]| -> Result<Value, Box<dyn Error>> {
                let output = Command::new(&programs.ddss)
                    .args(words)
                    .arg("--json")
                    .arg("--dir")
                    .arg(daemon.folder())
                    .output()?;
                let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                if !output.status.success() {
                    return Err(format!("{} {words:?}: {out}{error}", programs.ddss.display()).into());
                }
                Ok(serde_json::from_str(&out)?)
            };
            read(&["status"])?;
            let nodes = read(&["nodes"])?;
            if nodes.as_array().map(Vec::len) != Some(NODES.into()) {
                return Err(format!("{} nodes: {nodes}", programs.ddss.display()).into());
            }
            let found = &read(&["cluster", "status"])?["level"];
            if found.is_u64() {
                level = found.clone();
            }
        }
    }
    Ok(level)
}
