//! One-sided operations between nodes, beside bare sockets with the same bytes.
#![forbid(unsafe_code)]

use ddss_benches::baseline::{Wait, tcp_ping_pong, tcp_stream, tcp_window};
use ddss_benches::harness::Bench;
use ddss_benches::system::{FabricOp, FabricPair, one_sided, read_window};

/// Operations in flight in the rows with many: posted and awaited together, or one posted for each that ended.
const WINDOW: usize = 32;

fn main() {
    let mut bench = Bench::start("fabric", std::env::args_os().skip(1));
    let (checked, unchecked) = (FabricPair::connect(bench.cores, true), FabricPair::connect(bench.cores, false));
    for size_bytes in [8, 4096, 8192, 65536] {
        for outstanding in [1, WINDOW] {
            let limit = tcp_ping_pong(bench.cores, Wait::Spin, size_bytes, outstanding);
            let mut figures = vec![
                one_sided(&checked, FabricOp::Read, "tcp-lo", size_bytes, outstanding),
                one_sided(&checked, FabricOp::Write, "tcp-lo", size_bytes, outstanding),
                // The same without a checksum over each frame.
                one_sided(&unchecked, FabricOp::Read, "tcp-lo-nocrc", size_bytes, outstanding),
            ];
            if size_bytes == 8 {
                let atomics = [FabricOp::CompareSwap, FabricOp::FetchAdd];
                figures.extend(atomics.map(|op| one_sided(&checked, op, "tcp-lo", size_bytes, outstanding)));
                figures.push(tcp_ping_pong(bench.cores, Wait::Block, size_bytes, outstanding));
            }
            bench.family(limit, figures);
        }
    }
    for size_bytes in [8, 8192, 65536] {
        let figures = [(&checked, "tcp-lo"), (&unchecked, "tcp-lo-nocrc")]
            .map(|(pair, path)| read_window(pair, path, size_bytes, WINDOW));
        bench.family(tcp_window(bench.cores, size_bytes, WINDOW), figures.into());
    }
    // The greatest throughput of the path, without waiting for replies.
    bench.family(tcp_stream(bench.cores, 65536), Vec::new());
    bench.finish();
}
