//! A node that has nothing to do, or little.

use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use ddss::{Client, Strategy};

use super::Cluster;
use crate::harness::{Figure, RoundTrip, Sample};
use crate::raw::IDLE;

/// Between two requests of a trickle.
const TRICKLE_EVERY: Duration = Duration::from_micros(100);

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

/// One request every 100 microseconds, for that long: what the calls take, and what the daemon does for them.
pub fn trickle(cluster: &Cluster, strategy: Strategy, time: Duration) -> (Sample, Vec<String>) {
    let client = cluster.client(strategy);
    let mut sample = Sample::empty();
    let (begin, used_before) = (Instant::now(), cluster.own_cpu_time());
    let mut due = begin;
    while begin.elapsed() < time {
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        due += TRICKLE_EVERY;
        let asked = Instant::now();
        client.ping().expect("the daemon answers");
        sample.record(asked.elapsed(), 1, 1);
    }
    let (elapsed, used) = (begin.elapsed(), cluster.own_cpu_time() - used_before);
    sample.elapsed = elapsed;
    cluster.rest();
    let share = 100.0 * used.as_secs_f64() / elapsed.as_secs_f64();
    (sample, vec![format!("the daemon took {share:.0} % of a core")])
}
