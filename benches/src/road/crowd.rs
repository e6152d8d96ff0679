//! Many clients on one daemon, each on a thread of its own, each with one operation under way.
//!
//! Each client is attached by itself, so the daemon sees as many clients as there are threads. They share a process,
//! which spares the machine 512 of them; the daemon is another process.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ddss::{Client, Strategy};
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::Cluster;
use crate::harness::{Cores, Sample, pin};

/// Memory of one client: nothing is carried.
const ARENA_BYTES: usize = 64 << 10;
/// A call that takes longer than this is none.
const CALL_MAX: Duration = Duration::from_secs(60);

const WARM_UP: u8 = 0;
const COUNT: u8 = 1;
const STOP: u8 = 2;

/// Who comes, and where they run.
#[derive(Debug, Clone, Copy)]
pub struct Crowd {
    /// How many.
    pub clients: usize,
    /// How they talk.
    pub strategy: Strategy,
    /// Whether they keep off the daemon's core.
    pub reserved: bool,
}

/// What one client did.
struct Share {
    laps_ns: Histogram<u32>,
    longest: Duration,
}

/// Lets the crowd call for that long; what they did together, and how fairly.
pub fn run_crowd(cluster: &Cluster, cores: Cores, crowd: Crowd, time: Duration) -> (Sample, Vec<String>) {
    cluster.wake();
    let folder = cluster.own().folder();
    let connect = |_| {
        let builder = Client::builder().folder(folder).strategy(crowd.strategy).lanes(1).near(false);
        builder.arena_bytes(ARENA_BYTES).timeout(CALL_MAX).connect().expect("the daemon takes so many clients")
    };
    let clients: Vec<Client> = (0..crowd.clients).map(connect).collect();
    let (phase, ready) = (AtomicU8::new(WARM_UP), Barrier::new(crowd.clients + 1));
    let (shares, elapsed) = thread::scope(|scope| {
        let begin = |client: Client| {
            let (phase, ready) = (&phase, &ready);
            scope.spawn(move || {
                place(cores, crowd.reserved);
                ready.wait();
                call(&client, phase)
            })
        };
        let threads: Vec<_> = clients.into_iter().map(begin).collect();
        ready.wait();
        thread::sleep(time / 4);
        phase.store(COUNT, Ordering::Relaxed);
        let begin = Instant::now();
        thread::sleep(time);
        phase.store(STOP, Ordering::Relaxed);
        let elapsed = begin.elapsed();
        let shares: Vec<Share> = threads.into_iter().map(|one| one.join().expect("a client does not panic")).collect();
        (shares, elapsed)
    });
    cluster.rest();
    (together(&shares, elapsed), vec![fairness(&shares)])
}

fn place(cores: Cores, reserved: bool) {
    let placed = if reserved {
        pin(cores.client)
    } else {
        let mut both = CpuSet::new();
        both.set(cores.client);
        both.set(cores.service);
        sched_setaffinity(None, &both)
    };
    placed.expect("the cores are among those that this process may use");
}

fn call(client: &Client, phase: &AtomicU8) -> Share {
    let laps_ns = Histogram::new_with_bounds(1, CALL_MAX.as_nanos() as u64, 2).expect("the bounds are in order");
    let mut share = Share { laps_ns, longest: Duration::ZERO };
    let mut last = Instant::now();
    let mut counts = false;
    loop {
        client.ping().expect("the daemon answers");
        let now = Instant::now();
        let lap = now - last;
        last = now;
        if counts {
            share.laps_ns.saturating_record(lap.as_nanos() as u64);
            share.longest = share.longest.max(lap);
        }
        match phase.load(Ordering::Relaxed) {
            STOP => return share,
            phase => counts = phase == COUNT,
        }
    }
}

fn together(shares: &[Share], elapsed: Duration) -> Sample {
    let mut sample = Sample::empty();
    for share in shares {
        for laps in share.laps_ns.iter_recorded() {
            sample.record_many(Duration::from_nanos(laps.value_iterated_to()), u64::from(laps.count_at_value()));
        }
    }
    sample.elapsed = elapsed;
    sample
}

/// How much of its share the slowest client got, and how long the longest call took.
fn fairness(shares: &[Share]) -> String {
    let calls = |share: &Share| share.laps_ns.len();
    let mean = shares.iter().map(calls).sum::<u64>() as f64 / shares.len() as f64;
    if mean == 0.0 {
        return "nobody got an answer".to_owned();
    }
    let least = shares.iter().map(calls).min().unwrap_or(0) as f64;
    let longest = shares.iter().map(|share| share.longest).max().unwrap_or_default();
    format!("slowest {:.2} of its share, longest call {:.1} ms", least / mean, longest.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(calls: u64, longest: Duration) -> Share {
        let mut laps_ns = Histogram::new_with_bounds(1, 1_000_000, 2).unwrap();
        laps_ns.record_n(500, u32::try_from(calls).unwrap()).unwrap();
        Share { laps_ns, longest }
    }

    // If this failed, a crowd in which one client starves would pass for a fair one.
    #[test]
    fn a_client_that_got_little_is_seen() {
        let shares = [share(300, Duration::from_millis(1)), share(100, Duration::from_millis(40))];
        assert_eq!(fairness(&shares), "slowest 0.50 of its share, longest call 40.0 ms");
        let sample = together(&shares, Duration::from_millis(100));
        assert_eq!(sample.operations, 400);
        assert!((sample.operations_per_s() - 4000.0).abs() < 1.0);
        assert!((sample.quantile_us(0.5) - 0.5).abs() < 0.01, "{}", sample.quantile_us(0.5));
    }
}
