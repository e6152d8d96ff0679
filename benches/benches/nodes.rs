//! One home against data spread over the nodes, with clients on all of them.
//!
//! Each node is a daemon in a network namespace of its own. Each but the first has attached clients, so that no client
//! is at home where its data is. With `get-one-home` all data is at node 1, and each client reads its own part of it.
//! With `get-spread` each client's data is at the node behind its own. All daemons and clients share two cores: the
//! columns with processor time show each node's own need.
#![forbid(unsafe_code)]

use std::time::Duration;

use ddss::Strategy;
use ddss_benches::baseline::line_ping_pong;
use ddss_benches::harness::{Bench, Cores};
use ddss_benches::system::{Cluster, Repeated, run_tasks};
use ddss_testkit::NetworkNamespaces;

const STRATEGIES: [Strategy; 3] = [Strategy::Mq, Strategy::Rmq, Strategy::Auto];
const SIZES: [usize; 2] = [8, 4096];

fn main() {
    let mut bench = Bench::start("nodes", std::env::args_os().skip(1));
    let cores = bench.cores;
    let (counts, time, clients): (&[u8], _, &[usize]) = match (bench.options.bench, bench.options.quick) {
        (false, _) => (&[3], Duration::from_millis(5), &[1]),
        (true, true) => (&[2, 4], Duration::from_millis(100), &[2]),
        (true, false) => (&[2, 3, 4, 5, 7], Duration::from_millis(250), &[1, 4]),
    };
    let mut limit = line_ping_pong(cores);
    for &count in counts {
        let network = match NetworkNamespaces::new(count) {
            Ok(network) => Some(network),
            Err(error) => {
                bench.skip("nodes over tcp-veth", &format!("all are on loopback: it needs root: {error}"));
                None
            }
        };
        let path = if network.is_some() { "tcp-veth" } else { "tcp-lo" };
        let cluster = Cluster::of_nodes(cores, count, network.as_ref());
        for (op, spread) in [("get-one-home", false), ("get-spread", true)] {
            for strategy in STRATEGIES {
                for (&each, size_bytes) in clients.iter().flat_map(|each| SIZES.map(|size_bytes| (each, size_bytes))) {
                    let all = each * (usize::from(count) - 1);
                    let label = format!("ddss,{op},{size_bytes},{path}-n{count}/{strategy}/t{all},1");
                    let load = Load { count: count.into(), each, spread, strategy, size_bytes };
                    bench.by_itself(&mut limit, &label, time, |time| {
                        let mut alone = run_tasks(&cluster, cores, false, load.tasks(&cluster), time);
                        alone.notes.push(format!("{} for all of {count} daemons and {all} clients", both(cores)));
                        alone
                    });
                }
            }
        }
    }
    bench.finish();
}

fn both(cores: Cores) -> &'static str {
    if cores.is_shared() { "one core" } else { "two cores" }
}

/// Placement of the data that each client reads.
#[derive(Clone, Copy)]
struct Load {
    count: usize,
    each: usize,
    spread: bool,
    strategy: Strategy,
    size_bytes: usize,
}

impl Load {
    fn tasks(self, cluster: &Cluster) -> Vec<Repeated> {
        let Load { count, each, spread, strategy, size_bytes } = self;
        let task = |number: usize| {
            let node = 1 + number % (count - 1);
            let client = cluster.client_of(node, strategy);
            let home = if spread { (node + 1) % count } else { 0 };
            let name = format!("{strategy}-{each}-{size_bytes}-{spread}-{number}");
            let segment = cluster.segment_at(home, &client, &name, size_bytes);
            let mut bytes = vec![0; size_bytes];
            Box::new(move || {
                let _stamp = segment.get_into(0, &mut bytes).expect("the home is there");
            }) as Repeated
        };
        (0..(count - 1) * each).map(task).collect()
    }
}
