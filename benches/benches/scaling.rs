//! Many clients on one progress thread, beside what one client could reach with nothing in between.
#![forbid(unsafe_code)]

use ddss_benches::harness::Bench;
use ddss_benches::raw::line_ping_pong;

fn main() {
    let mut bench = Bench::start("scaling", std::env::args_os().skip(1));
    clients(&mut bench);
    bench.finish();
}

/// `ddss,null,8,shm/WAIT/tN,1` for 1 to 512 clients belong beside this limit.
fn clients(bench: &mut Bench) {
    bench.family(line_ping_pong(bench.cores), Vec::new());
}
