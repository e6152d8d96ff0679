//! Calls inside a node, beside a bare cache line between two cores.
//!
//! `null` is `Client::ping`: the client crate, the ring, the progress thread of a daemon in another process, its
//! engine, and back. `echo` is the transport alone: a server that echoes each entry. `first` is a `null` of a sleeping
//! daemon, `trickle` one every 100 microseconds, `paced` one at a fixed rate. These two do not wait for earlier
//! replies, and their latency counts from the time when a request was due. `shm-threads` and `shm-processes` are
//! several clients at the same time.
#![forbid(unsafe_code)]

use ddss::Strategy;
use ddss_benches::baseline::{futex_wake, line_ping_pong, ring_stream};
use ddss_benches::harness::Bench;
use ddss_benches::system::{
    Cluster, Crowd, Echo, Members, Task, echo, first, paced, ping, pipeline, run_as_member, run_crowd, run_members,
};
use std::time::Duration;

/// Pause between two requests of a slow client.
const TRICKLE_EVERY: Duration = Duration::from_micros(100);
/// Interval between two paced requests, in microseconds.
const PACES_US: [u64; 6] = [1000, 100, 30, 10, 3, 1];

fn main() {
    if run_as_member() {
        return;
    }
    let mut bench = Bench::start("ipc", std::env::args_os().skip(1));
    let (cluster, station) = (Cluster::single(bench.cores), Echo::start(bench.cores));

    // One null call in flight at a time.
    let nulls = Strategy::ALL.map(|strategy| ping(&cluster, strategy));
    let echoes = Strategy::ALL.map(|strategy| echo(&station, strategy, 1));
    bench.family(line_ping_pong(bench.cores), nulls.into_iter().chain(echoes).collect());

    // The maximum rate of one ring. The limit measures one direction only.
    for batch in [8, 32] {
        let rings = [Strategy::Rcq, Strategy::Auto];
        let nulls = rings.map(|strategy| pipeline(&cluster, Task::Null, "shm", strategy, batch));
        let echoes = rings.map(|strategy| echo(&station, strategy, batch));
        bench.family(ring_stream(bench.cores, batch), nulls.into_iter().chain(echoes).collect());
    }

    // A sleeping node beside a sleeping thread, and a node with occasional requests.
    let sleepers = [Strategy::Mq, Strategy::Auto];
    bench.family(futex_wake(bench.cores), sleepers.map(|strategy| first(&cluster, strategy)).into());
    open_loop(&mut bench, &cluster);
    several(&mut bench, &cluster);
    bench.finish();
}

/// Duration of a measurement that runs by itself.
fn time(bench: &Bench, full_ms: u64) -> Duration {
    match (bench.options.bench, bench.options.quick) {
        (false, _) => Duration::from_millis(5),
        (true, true) => Duration::from_millis(full_ms / 5),
        (true, false) => Duration::from_millis(full_ms),
    }
}

/// A client that calls at an interval.
fn open_loop(bench: &mut Bench, cluster: &Cluster) {
    let mut limit = line_ping_pong(bench.cores);
    for strategy in [Strategy::Mq, Strategy::Auto] {
        let label = format!("ddss,trickle,8,shm/{strategy}/t1,1");
        let time = time(bench, 1500);
        bench.by_itself(&mut limit, &label, time, |time| paced(cluster, strategy, TRICKLE_EVERY, time));
    }
    for strategy in [Strategy::Rcq, Strategy::Auto] {
        for pace_us in PACES_US {
            let label = format!("ddss,paced,8,shm-every-{pace_us}us/{strategy}/t1,1");
            let time = time(bench, 500);
            let every = Duration::from_micros(pace_us);
            bench.by_itself(&mut limit, &label, time, |time| paced(cluster, strategy, every, time));
        }
    }
}

/// Concurrent clients, as threads and as processes.
fn several(bench: &mut Bench, cluster: &Cluster) {
    let (mut limit, cores, time) = (line_ping_pong(bench.cores), bench.cores, time(bench, 400));
    for count in [1, 2, 4, 8] {
        for strategy in Strategy::ALL {
            // A single client has a core of its own, as in every measurement of one operation at a time.
            let crowd = Crowd { clients: count, strategy, reserved: count == 1 };
            let label = format!("ddss,null,8,shm-threads/{strategy}/t{count},1");
            bench.by_itself(&mut limit, &label, time, |time| run_crowd(cluster, cores, crowd, time));
            let members = Members { count, strategy, segment: None };
            let label = format!("ddss,null,8,shm-processes/{strategy}/t{count},1");
            bench.by_itself(&mut limit, &label, time, |time| {
                run_members(cluster, cores, &members, time).expect("this program can be started again")
            });
        }
    }
}
