//! Clients and daemons are killed while sixteen clients work.

use crate::cluster::{Cluster, NODES};
use crate::worker::Plan;
use ddss_testkit::Random;
use std::error::Error;
use std::time::{Duration, Instant};

pub(crate) const WORKERS: u16 = 16;
pub(crate) const CLIENT_KILL_EVERY: Duration = Duration::from_millis(250);
pub(crate) const DAEMON_KILL_EVERY: Duration = Duration::from_secs(5);
/// Longest absence of a daemon. With two copies every second absence is longer, so that the replicas take over.
const AWAY_MS_MAX: u64 = 500;
const AWAY_UNTIL_TAKEOVER_MS: u64 = 6000;
/// Time before the first kill; the second half of it gives the rate.
const QUIET: Duration = Duration::from_secs(4);

/// End condition of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Until {
    pub(crate) seconds: u64,
    /// Number of calls after which the run ends early.
    pub(crate) operations: u64,
}

/// Counters of the run, besides the checker's result.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) quiet_per_second: f64,
    pub(crate) seconds: f64,
    pub(crate) client_kills: u64,
    pub(crate) daemon_kills: u64,
    /// Workers that found no daemon, or not their segments, for as long as they could wait.
    pub(crate) stranded: u64,
}

/// Runs the workers, kills workers and daemons all the time, and stops the workers.
pub(crate) fn torment(field: &mut Cluster, until: Until, copies: u8) -> Result<Run, Box<dyn Error>> {
    let mut run = Run::default();
    let mut random = Random::new(until.seconds ^ 0x5eed);
    for number in 0..WORKERS {
        field.hire(number % NODES + 1, Plan::all())?;
    }
    std::thread::sleep(QUIET / 2);
    let (before, since) = (field.counted(), Instant::now());
    std::thread::sleep(QUIET / 2);
    run.quiet_per_second = (field.counted() - before) as f64 / since.elapsed().as_secs_f64();
    let begin = Instant::now();
    let (mut next_client, mut next_daemon) = (begin, begin + DAEMON_KILL_EVERY / 2);
    let mut away: Option<(usize, Instant)> = None;
    while begin.elapsed() < Duration::from_secs(until.seconds) && field.counted() < until.operations {
        if let Some((index, _)) = away.take_if(|(_, back)| *back <= Instant::now()) {
            field.daemons[index].restart()?;
        }
        if away.is_none() && Instant::now() >= next_daemon {
            let index = random.below(NODES.into()) as usize;
            field.daemons[index].kill()?;
            let is_long = copies > 1 && run.daemon_kills.is_multiple_of(2);
            let away_ms = random.below(AWAY_MS_MAX) + if is_long { AWAY_UNTIL_TAKEOVER_MS } else { 0 };
            away = Some((index, Instant::now() + Duration::from_millis(away_ms)));
            run.daemon_kills += 1;
            next_daemon += DAEMON_KILL_EVERY;
        }
        field.replace(random.below(WORKERS.into()) as usize)?;
        run.client_kills += 1;
        next_client += CLIENT_KILL_EVERY;
        std::thread::sleep(next_client.saturating_duration_since(Instant::now()));
    }
    run.seconds = begin.elapsed().as_secs_f64();
    if let Some((index, _)) = away {
        field.daemons[index].restart()?;
    }
    run.stranded = field.stop()?;
    Ok(run)
}
