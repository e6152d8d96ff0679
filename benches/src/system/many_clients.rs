//! Many clients on one daemon, each on a thread of its own with one operation in flight.
//!
//! Each client is attached by itself, so the daemon sees as many clients as there are threads. They share a process,
//! which spares the machine 512 of them; the daemon is another process.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, Strategy};
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use super::Cluster;
use super::cluster::CALL_MAX;
use crate::harness::{Cores, ExtraColumns, Sample, StandaloneResult, pin};

/// Arena of one client: its calls carry no bytes.
const ARENA_BYTES: usize = 64 << 10;

/// Number of clients whose time slices are as short as their start-up.
const LARGE: usize = 256;

const HOLD: u8 = 0;
const WARM_UP: u8 = 1;
const COUNT: u8 = 2;
const STOP: u8 = 3;

/// Interval at which a held-back thread polls for the start. No thread waits for a lock from then on, not even the
/// allocator's: lock waiters proceed one after the other, which takes seconds while the first threads of a crowd
/// already run.
const HELD_LOOKS_EVERY: Duration = Duration::from_millis(10);

/// Clients and their placement.
#[derive(Debug, Clone, Copy)]
pub struct Crowd {
    /// Number.
    pub clients: usize,
    /// IPC strategy.
    pub strategy: Strategy,
    /// True if the clients keep off the daemon's core.
    pub reserved: bool,
}

/// Result of one client.
pub(super) struct Share {
    pub(super) laps_ns: Histogram<u32>,
    pub(super) longest: Duration,
    pub(super) cpu: Duration,
}

impl Share {
    pub(super) fn none() -> Share {
        let laps_ns = Histogram::new_with_bounds(1, CALL_MAX.as_nanos() as u64, 2).expect("the bounds are in order");
        Share { laps_ns, longest: Duration::ZERO, cpu: Duration::ZERO }
    }

    /// Counts a finished lap with that beginning; returns its end.
    pub(super) fn lap(&mut self, last: Instant) -> Instant {
        let now = Instant::now();
        let lap = now - last;
        self.laps_ns.saturating_record(lap.as_nanos() as u64);
        self.longest = self.longest.max(lap);
        now
    }
}

/// Operation that one client repeats.
pub type Task = Box<dyn FnMut() + Send>;

/// Runs the clients on their daemon for that long; returns throughput, fairness and cost.
pub fn run_crowd(cluster: &Cluster, cores: Cores, crowd: Crowd, time: Duration) -> StandaloneResult {
    cluster.wake();
    let folder = cluster.own().folder();
    let tasks = (0..crowd.clients).map(|_| {
        let options = ConnectOptions::new().directory(folder).strategy(crowd.strategy).channels(1).local_reads(false);
        let client = Client::connect_with(options.arena_len(ARENA_BYTES).timeout(CALL_MAX));
        let client = client.expect("the daemon takes so many clients");
        Box::new(move || client.ping().expect("the daemon answers")) as Task
    });
    let tasks = tasks.collect();
    run_tasks(cluster, cores, crowd.reserved, tasks, time)
}

/// Lets each task run on a thread of its own for that long. If `reserved`, they keep off the core of the service.
pub fn run_tasks(
    cluster: &Cluster,
    cores: Cores,
    reserved: bool,
    tasks: Vec<Task>,
    time: Duration,
) -> StandaloneResult {
    cluster.wake();
    let alone = run_threads(cores, reserved, tasks, time, || cluster.cpu_times());
    cluster.rest();
    alone
}

/// Lets each task run on a thread of its own for `time`, for any server; `cpu_times` returns the processor time of the
/// servers so far.
pub(crate) fn run_threads(
    cores: Cores,
    reserved: bool,
    tasks: Vec<Task>,
    time: Duration,
    cpu_times: impl Fn() -> Vec<Duration>,
) -> StandaloneResult {
    let (phase, held) = (AtomicU8::new(HOLD), AtomicUsize::new(0));
    let (shares, elapsed, daemons) = thread::scope(|scope| {
        let begin = |task: Task| {
            let (phase, held) = (&phase, &held);
            scope.spawn(move || {
                place(cores, reserved);
                let share = Share::none();
                held.fetch_add(1, Ordering::Relaxed);
                while phase.load(Ordering::Acquire) == HOLD {
                    thread::sleep(HELD_LOOKS_EVERY);
                }
                call(task, share, phase)
            })
        };
        let threads: Vec<_> = tasks.into_iter().map(begin).collect();
        while held.load(Ordering::Relaxed) < threads.len() {
            thread::sleep(HELD_LOOKS_EVERY);
        }
        phase.store(WARM_UP, Ordering::Release);
        // A thread that used more of its core during start-up waits until the others have had as much.
        thread::sleep(if threads.len() < LARGE { time / 4 } else { time });
        let before = cpu_times();
        phase.store(COUNT, Ordering::Relaxed);
        let begin = Instant::now();
        thread::sleep(time);
        phase.store(STOP, Ordering::Relaxed);
        let elapsed = begin.elapsed();
        let daemons: Vec<Duration> =
            cpu_times().iter().zip(before).map(|(after, before)| after.saturating_sub(before)).collect();
        let shares: Vec<Share> = threads.into_iter().map(|one| one.join().expect("a client does not panic")).collect();
        (shares, elapsed, daemons)
    });
    summary(&shares, elapsed, &daemons)
}

pub(super) fn summary(shares: &[Share], elapsed: Duration, daemons: &[Duration]) -> StandaloneResult {
    let (fair, longest_ms) = fairness(shares, elapsed);
    let mut alone = StandaloneResult::new(together(shares, elapsed));
    let each = |time: Duration| Some(time.as_secs_f64() * 1e6 / alone.sample.operations.max(1) as f64);
    let clients = shares.iter().map(|share| share.cpu).sum();
    alone.more = ExtraColumns {
        fair: Some(fair),
        longest_ms: Some(longest_ms),
        client_cpu_us: each(clients),
        service_cpu_us: daemons.first().copied().and_then(each),
        home_cpu_us: daemons.get(1..).and_then(<[Duration]>::last).copied().and_then(each),
        ..ExtraColumns::default()
    };
    alone.notes.push(format!("slowest {fair:.2} of its share, longest call {longest_ms:.1} ms"));
    let without = shares.iter().filter(|share| share.laps_ns.is_empty()).count();
    if without > 0 {
        alone.notes.push(format!("{without} of {} got no answer in all that time", shares.len()));
    }
    alone
}

pub(super) fn place(cores: Cores, reserved: bool) {
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

fn call(mut task: Task, mut share: Share, phase: &AtomicU8) -> Share {
    let mut last = Instant::now();
    let mut since = None;
    loop {
        task();
        last = if since.is_some() { share.lap(last) } else { Instant::now() };
        match (phase.load(Ordering::Relaxed), since) {
            (STOP, since) => {
                share.cpu = since.map_or(Duration::ZERO, |since| thread_time().saturating_sub(since));
                return share;
            }
            (COUNT, None) => since = Some(thread_time()),
            _ => {}
        }
    }
}

/// Processor time of the calling thread.
pub(super) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
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

/// Share of the slowest client, and the longest call, in milliseconds. A client without any reply waited all the time.
fn fairness(shares: &[Share], elapsed: Duration) -> (f64, f64) {
    let calls = |share: &Share| share.laps_ns.len();
    let mean = shares.iter().map(calls).sum::<u64>() as f64 / shares.len() as f64;
    let least = shares.iter().map(calls).min().unwrap_or(0) as f64;
    let waited = |share: &Share| if share.laps_ns.is_empty() { elapsed } else { share.longest };
    let longest = shares.iter().map(waited).max().unwrap_or_default();
    (if mean == 0.0 { 0.0 } else { least / mean }, longest.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(calls: u64, longest: Duration) -> Share {
        let mut laps_ns = Histogram::new_with_bounds(1, 1_000_000, 2).unwrap();
        laps_ns.record_n(500, u32::try_from(calls).unwrap()).unwrap();
        Share { laps_ns, longest, cpu: Duration::from_micros(600) }
    }

    #[test]
    fn client_without_replies_counts_as_waiting_throughout() {
        // If this failed, the strategy with the worst starvation would have the shortest wait.
        let shares = [share(300, Duration::from_millis(1)), Share::none()];
        let StandaloneResult { more, notes, .. } = summary(&shares, Duration::from_millis(100), &[]);
        assert_eq!((more.fair, more.longest_ms), (Some(0.0), Some(100.0)));
        assert_eq!(notes[1], "1 of 2 got no answer in all that time");
    }

    // If this failed, a crowd with a starving client would pass for a fair one.
    #[test]
    fn starved_client_is_detected() {
        let shares = [share(300, Duration::from_millis(1)), share(100, Duration::from_millis(40))];
        let elapsed = Duration::from_millis(100);
        let StandaloneResult { sample, more, notes } = summary(&shares, elapsed, &[Duration::from_micros(800)]);
        assert_eq!(notes, ["slowest 0.50 of its share, longest call 40.0 ms"]);
        assert_eq!((more.fair, more.longest_ms), (Some(0.5), Some(40.0)));
        assert_eq!((more.client_cpu_us, more.service_cpu_us, more.home_cpu_us), (Some(3.0), Some(2.0), None));
        assert_eq!(sample.operations, 400);
        assert!((sample.operations_per_s() - 4000.0).abs() < 1.0);
        assert!((sample.quantile_us(0.5) - 0.5).abs() < 0.01, "{}", sample.quantile_us(0.5));
    }
}
