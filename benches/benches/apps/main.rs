//! Applications on DDSS beside the same applications without it, in one run: trees, STORM, checkpoints, monitoring.
//!
//! `name` is `ddss`, `none` (a network file system, or a server over TCP), `redis`, or `raw` (pages over bare sockets:
//! the limit). `mode` begins with PATH/WAIT.
//!
//! - `rtree`, `btree`: one query over that percentage of the records (`q20` .. `q100`). `-data` is the part in the
//!   store; `outstanding` is the number of pages of one call.
//! - `storm`: one selection over that many records, `-data` its part in the directory.
//! - `checkpoint`: the end of one process's work, a commit or a restart; PATH is the placement of the segments.
//! - `monitor`: one request of a client to a proxy. `off` reads no loads; `watched` reads them every 10 ms, with the
//!   proxy's progress thread on its core (`shared`) or on another one (`own`), and that many servers. Rows with `ms`
//!   are points of its curve over time.
#![forbid(unsafe_code)]

mod bare_pages;
mod checkpoint;
mod compare;
mod storm;
mod testbed;
mod trees;
mod web_farm;

use ddss_benches::harness::Bench;

use testbed::Rounds;

/// Operations of each part.
const PARTS: [&[&str]; 4] = [&["page", "get", "rtree", "btree"], &["storm"], &["checkpoint"], &["monitor"]];

/// Returns true if a part must run: with `--only`, unless that names an operation of another part.
fn wants(bench: &Bench, part: usize) -> bool {
    let named = |only: &str, part: &[&str]| part.iter().any(|op| only.contains(op));
    let only = bench.options.only.as_deref();
    only.is_none_or(|only| named(only, PARTS[part]) || !PARTS.iter().any(|part| named(only, part)))
}

fn main() {
    let mut bench = Bench::start("apps", std::env::args_os().skip(1));
    let testbed = testbed::Testbed::set_up(bench.cores);
    let pairs = testbed.pairs();
    let [pages, records] = [Rounds::Pages, Rounds::Records].map(|look| pairs.place(look));
    if wants(&bench, 0) {
        trees::measure(&mut bench, &testbed, &pages);
    }
    if wants(&bench, 1) {
        storm::measure(&mut bench, &testbed, &records);
    }
    if wants(&bench, 2) {
        checkpoint::measure(&mut bench, &testbed, &records);
    }
    drop((pages, records, pairs));
    if wants(&bench, 3) {
        web_farm::measure(&mut bench, &testbed);
    }
    bench.finish();
}
