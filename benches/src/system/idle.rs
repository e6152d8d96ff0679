//! An idle node, and one with little load.

use std::fs;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use ddss::{Client, Strategy};

use super::Cluster;
use crate::baseline::IDLE;
use crate::harness::{Figure, RoundTrip, Sample, StandaloneResult};

/// Time for a node to become idle.
const SETTLE: Duration = Duration::from_millis(100);

struct First {
    cluster: Rc<Cluster>,
    client: Client,
    took: Duration,
}

/// `Client::ping` of a daemon that sleeps.
pub fn first(cluster: &Rc<Cluster>, strategy: Strategy) -> Figure {
    let client = cluster.client(strategy);
    cluster.rest();
    let trip = First { cluster: Rc::clone(cluster), client, took: Duration::ZERO };
    Figure::new("ddss", "first", 8, format!("shm/{strategy}/t1"), trip)
}

impl RoundTrip for First {
    fn once(&mut self) {
        thread::sleep(IDLE);
        let begin = Instant::now();
        self.client.ping().expect("the daemon answers");
        self.took = begin.elapsed();
    }

    fn took(&self) -> Option<Duration> {
        Some(self.took)
    }

    fn wake(&mut self) {
        self.cluster.wake();
    }

    fn rest(&mut self) {
        self.cluster.rest();
    }
}

/// Requests with a fixed interval, for that long: their latency, and the daemon's work for them.
///
/// The load is open-loop: a late client sends immediately, and its latency counts from the time when the request was
/// due.
pub fn paced(cluster: &Cluster, strategy: Strategy, every: Duration, time: Duration) -> StandaloneResult {
    let client = cluster.client(strategy);
    let mut sample = Sample::empty();
    let (begin, used_before) = (Instant::now(), cluster.cpu_times());
    let mut due = begin;
    while begin.elapsed() < time {
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        client.ping().expect("the daemon answers");
        sample.record(due.elapsed(), 1, 1);
        due += every;
    }
    let (elapsed, used) = (begin.elapsed(), cluster.cpu_times()[0].saturating_sub(used_before[0]));
    sample.elapsed = elapsed;
    cluster.rest();
    let share = 100.0 * used.as_secs_f64() / elapsed.as_secs_f64();
    let mut alone = StandaloneResult::new(sample);
    alone.more.service_cpu_us = Some(used.as_secs_f64() * 1e6 / alone.sample.operations as f64);
    alone.notes.push(format!("the daemon took {share:.0} % of a core"));
    alone
}

/// A node with one client that asks for nothing: processor time and voluntary switches, for each second.
pub fn idle(cluster: &Cluster, strategy: Strategy, time: Duration) -> StandaloneResult {
    let client = cluster.client(strategy);
    client.ping().expect("the daemon answers");
    // The daemon spins for a while before it sleeps.
    thread::sleep(SETTLE.min(time));
    let before = (Instant::now(), cluster.cpu_times()[0], switches(cluster.own().pid()));
    thread::sleep(time);
    let seconds = before.0.elapsed().as_secs_f64();
    let used = cluster.cpu_times()[0].saturating_sub(before.1);
    let switched = switches(cluster.own().pid()).saturating_sub(before.2);
    cluster.rest();
    let mut sample = Sample::empty();
    sample.elapsed = time;
    let mut alone = StandaloneResult::new(sample);
    alone.more.service_cpu_us = Some(used.as_secs_f64() * 1e6 / seconds);
    alone.notes.push(format!("for each second; it went to sleep {:.0} times a second", switched as f64 / seconds));
    alone
}

/// Voluntary context switches of the threads of a process.
fn switches(pid: u32) -> u64 {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let of = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("status")).ok()?;
        text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok())
    };
    tasks.flatten().filter_map(of).sum()
}
