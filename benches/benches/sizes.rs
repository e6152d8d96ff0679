//! Gets, puts and atomics over their size: local reads, through the daemon of the node, and from another node over each
//! available path. Limits are a copy of memory and bare sockets.
//!
//! `DDSS_RDMA_A` and `DDSS_RDMA_B` name the addresses of two RDMA adapters and `DDSS_RDMA_PATH` their kind (`rxe`,
//! `siw`, ..). With them only the adapters are measured, since both ends are on one machine, as in `scripts/vm bench`.
#![forbid(unsafe_code)]

use std::net::IpAddr;
use std::rc::Rc;

use ddss::Strategy;
use ddss_benches::baseline::{Over, Wait, line_ping_pong, memory_copy, seqlock_copy, tcp_ping_pong_over};
use ddss_benches::harness::{Bench, Figure, Plan};
use ddss_benches::system::{Cluster, Kind, PLACEMENTS, Placement, VethPair, Word, atomic, call, near_get};

const SIZES: [usize; 8] = [1, 8, 64, 512, 4096, 32_768, 262_144, 1 << 20];
const QUICK_SIZES: [usize; 4] = [8, 4096, 65_536, 1 << 20];
const WORDS: [Word; 2] = [Word::FetchAdd, Word::CompareSwap];

fn main() {
    let mut bench = Bench::start("sizes", std::env::args_os().skip(1));
    bench.set_plan(if bench.options.quick { Plan::QUICK_CURVE } else { Plan::CURVE });
    if let Some((path, own, home)) = adapters() {
        let clusters = PLACEMENTS(bench.cores).map(|placement| Cluster::on_adapters(placement, own, home));
        from_afar(&mut bench, &path, Over::Loopback, &clusters);
        return bench.finish();
    }
    near(&mut bench);
    through_the_daemon(&mut bench);
    let clusters = PLACEMENTS(bench.cores).map(Cluster::pair);
    from_afar(&mut bench, "tcp-lo", Over::Loopback, &clusters);
    drop(clusters);
    match VethPair::create() {
        Ok(cable) => {
            let clusters = PLACEMENTS(bench.cores).map(|placement| Cluster::between(placement, &cable));
            from_afar(&mut bench, "tcp-veth", Over::Cable(&cable), &clusters);
        }
        Err(error) => bench.skip("sizes over tcp-veth", &format!("it needs root and network namespaces: {error}")),
    }
    bench.finish();
}

/// The kind of the two adapters, and their addresses.
fn adapters() -> Option<(String, IpAddr, IpAddr)> {
    let read = |name| std::env::var(name).ok();
    let address = |name| read(name)?.parse().ok();
    Some((read("DDSS_RDMA_PATH")?, address("DDSS_RDMA_A")?, address("DDSS_RDMA_B")?))
}

fn sizes(bench: &Bench) -> &'static [usize] {
    if bench.options.quick { &QUICK_SIZES } else { &SIZES }
}

/// Local reads from mapped memory, while the daemon is stopped.
fn near(bench: &mut Bench) {
    let cluster = Cluster::single(bench.cores);
    let client = cluster.near_client();
    for &size_bytes in sizes(bench) {
        let segment = cluster.segment(&client, &format!("near-{size_bytes}"), size_bytes);
        let mut figures = vec![near_get(&cluster, &segment)];
        // The seqlock reads words of 8 bytes.
        if size_bytes.is_multiple_of(8) {
            figures.push(seqlock_copy(size_bytes));
        }
        bench.family(memory_copy(size_bytes), figures);
    }
}

/// The same node, by way of the progress thread of its daemon.
fn through_the_daemon(bench: &mut Bench) {
    let cluster = Cluster::single(bench.cores);
    for &size_bytes in sizes(bench) {
        let figures = Strategy::ALL.into_iter().flat_map(|strategy| figures(&cluster, "shm", strategy, size_bytes));
        bench.family(line_ping_pong(bench.cores), figures.collect());
    }
    bench.family(
        line_ping_pong(bench.cores),
        Strategy::ALL.into_iter().flat_map(|strategy| words(&cluster, "shm", strategy)).collect(),
    );
}

/// Another node. Three threads share two cores, and their placement matters: each strategy gets the fastest placement
/// for an 8-byte get.
fn from_afar(bench: &mut Bench, path: &str, over: Over<'_>, clusters: &[Rc<Cluster>; 3]) {
    let (placements, cores): ([Placement; 3], _) = (PLACEMENTS(bench.cores), bench.cores);
    let raw = |size_bytes| tcp_ping_pong_over(over, cores, Wait::Spin, size_bytes, 1);
    let chosen = Strategy::ALL.map(|strategy| {
        let candidate = |cluster: &Rc<Cluster>| {
            let segment = cluster.segment(&cluster.client(strategy), &format!("{strategy}-choice"), 8);
            call(cluster, &segment, Kind::Get, path, strategy)
        };
        let names = placements.iter().map(|placement| placement.name);
        bench.quickest(raw(8), names.zip(clusters.iter().map(candidate)).collect())
    });
    let placed = || Strategy::ALL.into_iter().zip(chosen.iter().map(|(index, note)| (&clusters[*index], note)));
    for &size_bytes in sizes(bench) {
        let all = placed().flat_map(|(strategy, (cluster, note))| {
            figures(cluster, path, strategy, size_bytes).map(|figure| figure.note(note))
        });
        bench.family(raw(size_bytes), all.collect());
    }
    let all =
        placed().flat_map(|(strategy, (cluster, note))| words(cluster, path, strategy).map(|figure| figure.note(note)));
    bench.family(raw(8), all.collect());
}

/// A get and a put of that size.
fn figures(cluster: &Rc<Cluster>, path: &str, strategy: Strategy, size_bytes: usize) -> [Figure; 2] {
    let segment = cluster.segment(&cluster.client(strategy), &format!("{strategy}-{size_bytes}"), size_bytes);
    [Kind::Get, Kind::Put].map(|kind| call(cluster, &segment, kind, path, strategy))
}

fn words(cluster: &Rc<Cluster>, path: &str, strategy: Strategy) -> [Figure; 2] {
    WORDS.map(|word| {
        let segment = cluster.segment(&cluster.client(strategy), &format!("{strategy}-{word:?}"), 8);
        atomic(cluster, &segment, word, path, strategy)
    })
}
