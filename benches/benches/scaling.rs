//! Many clients on one progress thread, beside the limit of one client without DDSS.
//!
//! In `shm` clients and daemon share both cores; in `shm-reserved` the clients keep off the daemon's core. All clients
//! then share one core in slices of some 4 ms. A share is meaningful only if the run is longer than all slices
//! together, which with `--quick` holds up to 16 clients.
#![forbid(unsafe_code)]

use std::time::Duration;

use ddss::Strategy;
use ddss_benches::baseline::line_ping_pong;
use ddss_benches::harness::Bench;
use ddss_benches::system::{Cluster, Crowd, line_turns, run_crowd};

/// Number of clients in the row with many.
const LARGE: usize = 128;
/// Time slices of threads that use bare cache lines; none: they keep their core until the scheduler preempts them.
const TURNS_US: [Option<u64>; 4] = [None, Some(1000), Some(300), Some(100)];

fn main() {
    let mut bench = Bench::start("scaling", std::env::args_os().skip(1));
    let (most, time) = match (bench.options.bench, bench.options.quick) {
        (false, _) => (4, Duration::from_millis(5)),
        (true, true) => (if bench.options.only.is_some() { 512 } else { 64 }, Duration::from_millis(120)),
        (true, false) => (512, Duration::from_millis(500)),
    };
    // With many clients, the turns of each client are rare.
    let time_for = |clients| if clients < LARGE { time } else { 4 * time };
    let cores = bench.cores;
    let cluster = Cluster::single(cores);
    cluster.rest();
    bench.family(line_ping_pong(cores), Vec::new());
    let mut limit = line_ping_pong(cores);
    let doubling = std::iter::successors(Some(1), |clients| Some(clients * 2));
    let paths = [("shm", false), ("shm-reserved", true)];
    // A quick run measures the default: no reserved core.
    let paths = if bench.options.quick && bench.options.only.is_none() { &paths[..1] } else { &paths[..] };
    for clients in doubling.take_while(|clients| *clients <= most) {
        for &(path, reserved) in paths {
            // Cost of time slices alone: bare cache lines, with one core for all clients.
            for turn_us in TURNS_US.into_iter().filter(|_| reserved) {
                let word = turn_us.map_or_else(|| "slices".to_owned(), |micros| format!("turns-{micros}us"));
                let label = format!("raw,lines,8,{path}/{word}/t{clients},1");
                let turn = turn_us.map(Duration::from_micros);
                bench.by_itself(&mut limit, &label, time_for(clients), |time| line_turns(cores, clients, turn, time));
            }
            for strategy in Strategy::ALL {
                let crowd = Crowd { clients, strategy, reserved };
                let label = format!("ddss,null,8,{path}/{strategy}/t{clients},1");
                bench.by_itself(&mut limit, &label, time_for(clients), |time| run_crowd(&cluster, cores, crowd, time));
            }
        }
    }
    bench.finish();
}
