//! The whole road of a get, a put and a lock: out of mapped memory, and from another node.
#![forbid(unsafe_code)]

use ddss_benches::harness::Bench;
use ddss_benches::raw::{Wait, line_ping_pong, seqlock_copy, tcp_ping_pong};

fn main() {
    let mut bench = Bench::start("get", std::env::args_os().skip(1));
    for size_bytes in [8, 4096, 65536] {
        near(&mut bench, size_bytes);
    }
    through_the_daemon(&mut bench);
    for (size_bytes, outstanding) in [(8, 1), (4096, 1), (65536, 1), (8, 32)] {
        remote(&mut bench, size_bytes, outstanding);
    }
    bench.finish();
}

/// Mapped memory of the same node. `ddss,get,SIZE,near/spin/t1,1` belongs beside this limit.
fn near(bench: &mut Bench, size_bytes: usize) {
    bench.family(seqlock_copy(size_bytes), Vec::new());
}

/// The same node, by way of the progress thread. `ddss` `get` and `put` over `shm` belong beside this limit.
fn through_the_daemon(bench: &mut Bench) {
    bench.family(line_ping_pong(bench.cores), Vec::new());
}

/// Another node. `ddss` `get`, `put` and `lock+unlock` over `tcp-lo` belong beside this limit.
fn remote(bench: &mut Bench, size_bytes: usize, outstanding: usize) {
    bench.family(tcp_ping_pong(bench.cores, Wait::Spin, size_bytes, outstanding), Vec::new());
}
