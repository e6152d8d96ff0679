//! Programs on DDSS beside the same programs without it, in one run: trees, STORM, checkpoints, monitoring.
//!
//! Rows: `name` is `ddss`, `none` (a network file system, or a server that is asked over TCP) or `redis`; `mode` begins
//! with PATH/WAIT. A row of `rtree` or `btree` is one query that touches so many percent of the places (`q20` .. `q100`);
//! `-data` is the part of it that the store took; `outstanding` is how many pages one call reads.
#![forbid(unsafe_code)]

mod compare;
mod road;
mod trees;

use ddss_benches::harness::Bench;

fn main() {
    let mut bench = Bench::start("apps", std::env::args_os().skip(1));
    let road = road::Road::lay(bench.cores);
    trees::measure(&mut bench, &road);
    bench.finish();
}
