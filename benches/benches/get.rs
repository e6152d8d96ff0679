//! The full path of a get and a put: local read, through the daemon of the same node, and from another node.
#![forbid(unsafe_code)]

use std::rc::Rc;

use ddss::Strategy;
use ddss_benches::baseline::{HandOver, Wait, hop, line_ping_pong, seqlock_copy, tcp_ping_pong};
use ddss_benches::harness::Bench;
use ddss_benches::system::{Cluster, Kind, PLACEMENTS, Task, call, near_get, ping, pipeline};

const KINDS: [Kind; 2] = [Kind::Get, Kind::Put];
/// Operations in flight in the rows with many.
const WINDOW: usize = 32;
/// Transfers of this size or larger take longer than any wait for a core.
const LARGE_BYTES: usize = 65_536;

fn main() {
    let mut bench = Bench::start("get", std::env::args_os().skip(1));
    near(&mut bench);
    through_the_daemon(&mut bench);
    remote(&mut bench);
    bench.finish();
}

/// Returns the sizes of the measured gets and puts; a quick run has no large ones.
fn sizes(bench: &Bench) -> Vec<usize> {
    let mut sizes = vec![8, 4096, 65536];
    if !bench.options.quick {
        sizes.push(1 << 20);
    }
    sizes
}

/// Local reads from mapped memory, while the daemon is stopped.
fn near(bench: &mut Bench) {
    let cluster = Cluster::single(bench.cores);
    let client = cluster.near_client();
    for size_bytes in sizes(bench) {
        let segment = cluster.segment(&client, &format!("near-{size_bytes}"), size_bytes);
        bench.family(seqlock_copy(size_bytes), vec![near_get(&cluster, &segment)]);
    }
}

/// The same node, by way of the progress thread of its daemon.
fn through_the_daemon(bench: &mut Bench) {
    let cluster = Cluster::single(bench.cores);
    for size_bytes in sizes(bench) {
        let mut figures = Vec::new();
        for strategy in Strategy::ALL {
            let client = cluster.client(strategy);
            let segment = cluster.segment(&client, &format!("{strategy}-{size_bytes}"), size_bytes);
            figures.extend(KINDS.map(|kind| call(&cluster, &segment, kind, "shm", strategy)));
            if size_bytes == 8 {
                figures.push(ping(&cluster, strategy));
            }
        }
        bench.family(line_ping_pong(bench.cores), figures);
    }
}

/// Another node. Three threads share two cores, and their placement matters: each strategy gets the fastest placement
/// for an 8-byte get, or for large transfers; the note names it.
fn remote(bench: &mut Bench) {
    let placements = PLACEMENTS(bench.cores);
    let clusters = placements.map(Cluster::pair);
    let (small, large) = (choose(bench, &clusters, 8), choose(bench, &clusters, LARGE_BYTES));
    for size_bytes in sizes(bench) {
        let chosen = if size_bytes < LARGE_BYTES { &small } else { &large };
        let mut figures = Vec::new();
        for (strategy, (choice, note)) in Strategy::ALL.into_iter().zip(chosen) {
            let cluster = &clusters[*choice];
            let client = cluster.client(strategy);
            let segment = cluster.segment(&client, &format!("{strategy}-{size_bytes}"), size_bytes);
            let figure = |kind| call(cluster, &segment, kind, "tcp-lo", strategy).note(note);
            figures.extend(KINDS.map(figure));
        }
        figures.extend([HandOver::Yield, HandOver::Sleep].map(|hand_over| hop(bench.cores, hand_over, size_bytes)));
        bench.family(tcp_ping_pong(bench.cores, Wait::Spin, size_bytes, 1), figures);
    }
    for size_bytes in [8, 4096] {
        let mut figures = Vec::new();
        for (strategy, placement) in [(Strategy::Rcq, 1), (Strategy::Auto, 0), (Strategy::Auto, 1)] {
            let cluster = &clusters[placement];
            let segment =
                cluster.segment(&cluster.client(strategy), &format!("{strategy}-many-{size_bytes}"), size_bytes);
            let task = Task::Transfer(Kind::Get, segment.id(), size_bytes);
            let figure = pipeline(cluster, task, "tcp-lo", strategy, WINDOW);
            figures.push(figure.note(placements[placement].name));
        }
        bench.family(tcp_ping_pong(bench.cores, Wait::Spin, size_bytes, WINDOW), figures);
    }
}

/// Returns the fastest placement for a get of this size, for each strategy, with a note.
fn choose(bench: &mut Bench, clusters: &[Rc<Cluster>; 3], size_bytes: usize) -> [(usize, String); 4] {
    let placements = PLACEMENTS(bench.cores);
    Strategy::ALL.map(|strategy| {
        let candidate = |cluster: &Rc<Cluster>| {
            let client = cluster.client(strategy);
            let segment = cluster.segment(&client, &format!("{strategy}-choice-{size_bytes}"), size_bytes);
            call(cluster, &segment, Kind::Get, "tcp-lo", strategy)
        };
        let names = placements.iter().map(|placement| placement.name);
        let candidates = names.zip(clusters.iter().map(candidate)).collect();
        bench.quickest(tcp_ping_pong(bench.cores, Wait::Spin, size_bytes, 1), candidates)
    })
}
