//! Inside a node: what a question to the progress thread costs, beside a bare cache line between two cores.
#![forbid(unsafe_code)]

use ddss_benches::harness::Bench;
use ddss_benches::raw::{line_ping_pong, ring_stream};

fn main() {
    let mut bench = Bench::start("ipc", std::env::args_os().skip(1));
    null(&mut bench);
    pipelined(&mut bench);
    bench.finish();
}

/// One operation that does nothing, under way at a time. `ddss,null,8,shm/WAIT/t1,1` belong beside this limit.
fn null(bench: &mut Bench) {
    bench.family(line_ping_pong(bench.cores), Vec::new());
}

/// As many a second as one ring takes. `ddss,null,8,shm/WAIT/t1,BATCH` belong beside these limits.
fn pipelined(bench: &mut Bench) {
    for batch in [1, 8, 32] {
        bench.family(ring_stream(bench.cores, batch), Vec::new());
    }
}
