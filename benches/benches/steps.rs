//! Time of each step of a get: submit, post, complete and reply from the daemon's counters, and the remaining time at
//! the client. The wire time is that of a bare TCP ping-pong over the same path, measured beside it.
#![forbid(unsafe_code)]

use std::rc::Rc;
use std::time::Duration;

use ddss::Strategy;
use ddss_benches::baseline::{Over, Wait, line_ping_pong, tcp_ping_pong_over};
use ddss_benches::harness::Bench;
use ddss_benches::system::{Cluster, PLACEMENTS, VethPair, stepped_gets};

const STRATEGIES: [Strategy; 3] = [Strategy::Mq, Strategy::Rcq, Strategy::Auto];
const BYTES: usize = 8;

fn main() {
    let mut bench = Bench::start("steps", std::env::args_os().skip(1));
    let cores = bench.cores;
    steps(&mut bench, "shm", None, &Cluster::single(cores));
    // The client has a core of its own; its daemon and the home's share the other one.
    let placement = PLACEMENTS(cores)[1];
    steps(&mut bench, "tcp-lo", Some(Over::Loopback), &Cluster::pair(placement));
    match VethPair::create() {
        Ok(cable) => steps(&mut bench, "tcp-veth", Some(Over::Cable(&cable)), &Cluster::between(placement, &cable)),
        Err(error) => bench.skip("steps over tcp-veth", &format!("it needs root and network namespaces: {error}")),
    }
    bench.finish();
}

fn steps(bench: &mut Bench, path: &str, over: Option<Over<'_>>, cluster: &Rc<Cluster>) {
    let time = match (bench.options.bench, bench.options.quick) {
        (false, _) => Duration::from_millis(20),
        (true, true) => Duration::from_millis(200),
        (true, false) => Duration::from_millis(1000),
    };
    let mut limit = match over {
        Some(over) => tcp_ping_pong_over(over, bench.cores, Wait::Spin, BYTES, 1),
        None => line_ping_pong(bench.cores),
    };
    let mut wire = over.map(|over| tcp_ping_pong_over(over, bench.cores, Wait::Spin, BYTES, 1));
    for strategy in STRATEGIES {
        let client = cluster.client(strategy);
        let segment = cluster.segment(&client, &format!("steps-{strategy}"), BYTES);
        let stepped = stepped_gets(cluster, &segment, strategy, time);
        for step in stepped {
            let label = format!("ddss,step-{},{BYTES},{path}/{strategy}/t1,1", step.word);
            bench.by_itself(&mut limit, &label, Duration::ZERO, |_| step.alone);
        }
    }
    if let Some(wire) = wire.take() {
        bench.family(wire, Vec::new());
    }
}
