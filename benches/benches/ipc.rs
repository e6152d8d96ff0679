//! Inside a node: what a question to the progress thread costs, beside a bare cache line between two cores.
//!
//! `null` is `Client::ping`: the client crate, the ring, the progress thread of a daemon in another process, its
//! engine, and back. `echo` is the road alone: a station that answers each entry with itself. `first` is a `null` of a
//! daemon that sleeps, and `trickle` one every 100 microseconds.
#![forbid(unsafe_code)]

use ddss::Strategy;
use ddss_benches::harness::Bench;
use ddss_benches::raw::{futex_wake, line_ping_pong, ring_stream};
use ddss_benches::road::{Cluster, Echo, Task, echo, first, ping, pipeline, trickle};
use std::time::Duration;

fn main() {
    let mut bench = Bench::start("ipc", std::env::args_os().skip(1));
    let (cluster, station) = (Cluster::single(bench.cores), Echo::start(bench.cores));

    // One operation that does nothing, under way at a time.
    let nulls = Strategy::ALL.map(|strategy| ping(&cluster, strategy));
    let echoes = Strategy::ALL.map(|strategy| echo(&station, strategy, 1));
    bench.family(line_ping_pong(bench.cores), nulls.into_iter().chain(echoes).collect());

    // As many a second as one ring takes. The limit goes one way only.
    for batch in [8, 32] {
        let rings = [Strategy::Rcq, Strategy::Auto];
        let nulls = rings.map(|strategy| pipeline(&cluster, Task::Null, "shm", strategy, batch));
        let echoes = rings.map(|strategy| echo(&station, strategy, batch));
        bench.family(ring_stream(bench.cores, batch), nulls.into_iter().chain(echoes).collect());
    }

    // A node that sleeps, beside a thread that sleeps; and one that is asked now and then.
    let sleepers = [Strategy::Mq, Strategy::Auto];
    bench.family(futex_wake(bench.cores), sleepers.map(|strategy| first(&cluster, strategy)).into());
    let time = Duration::from_millis(if bench.options.quick { 300 } else { 2000 });
    let time = if bench.options.bench { time } else { Duration::from_millis(5) };
    let mut limit = line_ping_pong(bench.cores);
    for strategy in sleepers {
        let label = format!("ddss,trickle,8,shm/{strategy}/t1,1");
        bench.by_itself(&mut limit, &label, time, |time| {
            cluster.wake();
            trickle(&cluster, strategy, time)
        });
    }
    bench.finish();
}
