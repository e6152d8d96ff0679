//! Rolling reboots with loss of memory while clients work on replicated segments. No segment may lose data.

use crate::cluster::{Cluster, NODES};
use crate::worker::{PATIENCE, PLACES, Plan, attach, name, patiently};
use ddss::{ReplicationInfo, Strategy};
use ddss_testkit::Random;
use std::error::Error;
use std::time::{Duration, Instant};

const WORKERS: u16 = 6;
/// Pause between two calls of a worker, whose log must hold the calls of the complete run.
const PAUSE: Duration = Duration::from_millis(2);
/// Longest downtime of a node that returns before it is declared dead, and downtime of one that returns after it.
const AWAY_MS: [u64; 2] = [500, 6000];
/// Time limit until each segment is in sync again, after the cluster has waited for the node and copied the segments.
const IN_SYNC_MAX: Duration = Duration::from_secs(60);

/// Counters of the run.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) reboots: u64,
    /// Workers that found no daemon, or not their segments, for as long as they could wait.
    pub(crate) stranded: u64,
    /// The longest time from a start until all segments were in sync.
    pub(crate) slowest_s: f64,
}

/// Reboots some node `rounds` times, each time when all segments are in sync.
pub(crate) fn reboot(field: &mut Cluster, rounds: u64) -> Result<Run, Box<dyn Error>> {
    let mut run = Run::default();
    let mut random = Random::new(rounds ^ 0x5eed);
    for number in 0..WORKERS {
        field.hire(number % NODES + 1, Plan { pause: PAUSE, ..Plan::all() })?;
    }
    until_in_sync(field)?;
    for _ in 0..rounds {
        let daemon = &mut field.daemons[random.below(NODES.into()) as usize];
        if random.below(2) == 0 {
            daemon.kill()?
        } else {
            daemon.process().end()?
        }
        std::fs::remove_dir_all(daemon.folder().join("memory"))?;
        let away_ms = AWAY_MS[random.below(2) as usize];
        std::thread::sleep(Duration::from_millis(random.below(away_ms)));
        daemon.restart()?;
        run.reboots += 1;
        run.slowest_s = run.slowest_s.max(until_in_sync(field)?.as_secs_f64());
    }
    run.stranded = field.stop()?;
    Ok(run)
}

pub(crate) fn until_in_sync(field: &Cluster) -> Result<Duration, Box<dyn Error>> {
    let begin = Instant::now();
    loop {
        let said = match all_in_sync(field) {
            Ok(None) => return Ok(begin.elapsed()),
            Ok(Some(said)) => said,
            Err(error) => error.to_string(),
        };
        if begin.elapsed() > IN_SYNC_MAX {
            return Err(format!("not in sync {IN_SYNC_MAX:?} after a node came: {said}").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the first segment that is not in sync.
fn all_in_sync(field: &Cluster) -> Result<Option<String>, ddss::Error> {
    let client = attach(field.daemons[0].folder(), Strategy::Auto, false)?;
    for index in 0..PLACES {
        let listing = patiently(Instant::now() + PATIENCE, || client.segment(&name(index)).open())?.stat()?;
        if listing.replication != ReplicationInfo::InSync {
            return Ok(Some(format!("{} {:?} {:?}", listing.name, listing.replication, listing.degraded)));
        }
    }
    Ok(None)
}
