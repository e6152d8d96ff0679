//! Programs on DDSS beside the same programs without it, in one run: trees, STORM, checkpoints, monitoring.
//!
//! Rows: `name` is `ddss`, `none` (a network file system, or a server that is asked over TCP), `redis`, or `raw` (pages
//! over bare sockets: the limit); `mode` begins with PATH/WAIT. A row of `rtree` or `btree` is one query that touches so many percent of the places (`q20` .. `q100`);
//! `-data` is the part of it that the store took; `outstanding` is how many pages one call reads. A row of `storm` is one
//! selection over so many records, `-data` the part of it that the directory took. A row of `checkpoint` is what comes after
//! the work of one process: a commit, or a restart; PATH is where the segments are. A row of `monitor` is one request of a
//! client to a proxy: `off` reads no loads, `watched` reads them every 10 ms, with the proxy's progress thread on its core
//! (`shared`) or on another one (`own`), and so many servers; rows with `ms` behind it are points of its curve over time.
#![forbid(unsafe_code)]

mod bare;
mod checkpoint;
mod compare;
mod farm;
mod road;
mod storm;
mod trees;

use ddss_benches::harness::Bench;

use road::Look;

/// What each part measures.
const PARTS: [&[&str]; 4] = [&["page", "get", "rtree", "btree"], &["storm"], &["checkpoint"], &["monitor"]];

/// Whether a part has to be run: with `--only`, unless that names an operation of another part.
fn wants(bench: &Bench, part: usize) -> bool {
    let named = |only: &str, part: &[&str]| part.iter().any(|op| only.contains(op));
    let only = bench.options.only.as_deref();
    only.is_none_or(|only| named(only, PARTS[part]) || !PARTS.iter().any(|part| named(only, part)))
}

fn main() {
    let mut bench = Bench::start("apps", std::env::args_os().skip(1));
    let road = road::Road::lay(bench.cores);
    let pairs = road.pairs();
    let [pages, records] = [Look::Pages, Look::Records].map(|look| pairs.place(look));
    if wants(&bench, 0) {
        trees::measure(&mut bench, &road, &pages);
    }
    if wants(&bench, 1) {
        storm::measure(&mut bench, &road, &records);
    }
    if wants(&bench, 2) {
        checkpoint::measure(&mut bench, &road, &records);
    }
    drop((pages, records, pairs));
    if wants(&bench, 3) {
        farm::measure(&mut bench, &road);
    }
    bench.finish();
}
