//! Between nodes: what one-sided operations cost, beside bare sockets with the same bytes.
#![forbid(unsafe_code)]

use ddss_benches::harness::Bench;
use ddss_benches::raw::{Wait, tcp_ping_pong, tcp_stream};

fn main() {
    let mut bench = Bench::start("fabric", std::env::args_os().skip(1));
    for size_bytes in [8, 4096, 65536] {
        for outstanding in [1, 32] {
            round_trips(&mut bench, size_bytes, outstanding);
        }
    }
    one_way(&mut bench);
    bench.finish();
}

/// `ddss` `read`, `write`, `cas` and `fetch_add` of this size belong beside this limit.
fn round_trips(bench: &mut Bench, size_bytes: usize, outstanding: usize) {
    let limit = tcp_ping_pong(bench.cores, Wait::Spin, size_bytes, outstanding);
    let blocking = tcp_ping_pong(bench.cores, Wait::Block, size_bytes, outstanding);
    bench.family(limit, vec![blocking]);
}

/// What the road carries at the most, with nobody waiting.
fn one_way(bench: &mut Bench) {
    bench.family(tcp_stream(bench.cores, 65536), Vec::new());
}
