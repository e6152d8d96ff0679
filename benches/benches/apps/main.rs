//! Programs on DDSS beside the same programs without it, in one run: trees, STORM, checkpoints, monitoring.
//!
//! Rows: `name` is `ddss`, `none` (a network file system, or a server that is asked over TCP) or `redis`; `mode` begins
//! with PATH/WAIT. A row of `rtree` or `btree` is one query that touches so many percent of the places (`q20` .. `q100`);
//! `-data` is the part of it that the store took; `outstanding` is how many pages one call reads. A row of `storm` is one
//! selection over so many records, `-data` the part of it that the directory took. A row of `checkpoint` is what comes after
//! the work of one process: a commit, or a restart; PATH is where the segments are. A row of `monitor` is one request of a
//! client to a proxy: `off` reads no loads, `watched` reads them every 10 ms, with the proxy's progress thread on its core
//! (`shared`) or on another one (`own`), and so many servers.
#![forbid(unsafe_code)]

mod checkpoint;
mod compare;
mod farm;
mod road;
mod storm;
mod trees;

use ddss_benches::harness::Bench;

fn main() {
    let mut bench = Bench::start("apps", std::env::args_os().skip(1));
    let road = road::Road::lay(bench.cores);
    let placed = road.place();
    trees::measure(&mut bench, &road, &placed);
    storm::measure(&mut bench, &road, &placed);
    checkpoint::measure(&mut bench, &road, &placed);
    drop(placed);
    farm::measure(&mut bench, &road);
    bench.finish();
}
