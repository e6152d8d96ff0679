//! Resource cost of an operation: processor time and system calls on both sides, and bytes on the wire for each byte
//! requested. It also measures an idle node.
#![forbid(unsafe_code)]

use std::rc::Rc;
use std::time::Duration;

use ddss::{Segment, Strategy};
use ddss_benches::baseline::line_ping_pong;
use ddss_benches::harness::{Bench, Cores, Sample, StandaloneResult};
use ddss_benches::system::{
    Cluster, Members, PLACEMENTS, Repeated, VethPair, idle, run_as_member, run_tasks, system_calls,
};

const SEGMENT: &str = "cost";
/// Sizes for which the bytes on the wire are counted.
const WIRE_SIZES: [usize; 4] = [8, 512, 4096, 65_536];

fn main() {
    if run_as_member() {
        return;
    }
    let mut bench = Bench::start("resource_cost", std::env::args_os().skip(1));
    let near = Cluster::single(bench.cores);
    let far = Cluster::pair(PLACEMENTS(bench.cores)[1]);
    for (path, cluster) in [("shm", &near), ("tcp-lo", &far)] {
        processor_time(&mut bench, path, cluster);
        calls_of_the_system(&mut bench, path, cluster);
    }
    drop(far);
    on_the_wire(&mut bench);
    for strategy in Strategy::ALL {
        let mut limit = line_ping_pong(bench.cores);
        let time = time(&bench, 1000);
        let label = format!("ddss,idle,0,shm/{strategy}/t1,0");
        bench.by_itself(&mut limit, &label, time, |time| idle(&near, strategy, time));
    }
    bench.finish();
}

fn time(bench: &Bench, full_ms: u64) -> Duration {
    match (bench.options.bench, bench.options.quick) {
        (false, _) => Duration::from_millis(5),
        (true, true) => Duration::from_millis(full_ms / 5),
        (true, false) => Duration::from_millis(full_ms),
    }
}

/// Processor time of client, own daemon and home for each operation of one client.
fn processor_time(bench: &mut Bench, path: &str, cluster: &Rc<Cluster>) {
    let (cores, time) = (bench.cores, time(bench, 500));
    let mut limit = line_ping_pong(cores);
    for strategy in Strategy::ALL {
        let client = cluster.client(strategy);
        let segment = cluster.segment(&client, &format!("{SEGMENT}-{strategy}"), 8);
        let (get, put) = (segment.clone(), segment);
        let tasks: [(&str, Repeated); 3] = [
            ("null", Box::new(move || client.ping().expect("the daemon answers"))),
            ("get", getting(get, 8)),
            (
                "put",
                Box::new(move || {
                    let _stamp = put.put(0, &[5; 8]).expect("the home is there");
                }),
            ),
        ];
        for (op, task) in tasks {
            // A request to the client's own daemon is equal for every path.
            if op == "null" && path != "shm" {
                continue;
            }
            let label = format!("ddss,{op},8,{path}-cost/{strategy}/t1,1");
            bench.by_itself(&mut limit, &label, time, |time| run_tasks(cluster, cores, true, vec![task], time));
        }
    }
}

fn getting(segment: Segment, size_bytes: usize) -> Repeated {
    let mut bytes = vec![0; size_bytes];
    Box::new(move || {
        let _stamp = segment.get_into(0, &mut bytes).expect("the home is there");
    })
}

/// System calls, by strace, of a client in a process of its own and of the daemons.
fn calls_of_the_system(bench: &mut Bench, path: &str, cluster: &Rc<Cluster>) {
    let owner = cluster.client(Strategy::Auto);
    let _made = cluster.segment(&owner, SEGMENT, 8);
    let mut limit = line_ping_pong(bench.cores);
    for strategy in Strategy::ALL {
        let count = match (bench.options.bench, bench.options.quick) {
            (false, _) => 10,
            (true, true) => 300,
            (true, false) => 2000,
        };
        let segment = (path != "shm").then_some(SEGMENT);
        let op = if segment.is_some() { "get" } else { "null" };
        let label = format!("ddss,{op},8,{path}-traced/{strategy}/t1,1");
        if !bench.options.wants(&label) {
            continue;
        }
        let members = Members { count: 1, strategy, segment };
        match system_calls(cluster, bench.cores, &members, count) {
            Ok(calls) => bench.by_itself(&mut limit, &label, Duration::ZERO, |_| {
                let mut alone = StandaloneResult::new(Sample::empty());
                alone.more.client_calls = Some(calls.client);
                alone.more.service_calls = calls.daemons.first().copied();
                alone.more.home_calls = calls.daemons.get(1).copied();
                let most = if calls.most.is_empty() { "none" } else { &calls.most };
                alone.notes.push(format!("counted by strace; the client's own: {most}"));
                alone
            }),
            Err(error) => bench.skip(&label, &format!("strace cannot count here: {error}")),
        }
    }
}

/// Bytes on a cable between two namespaces, with all headers, for each get and put.
fn on_the_wire(bench: &mut Bench) {
    let cable = match VethPair::create() {
        Ok(cable) => cable,
        Err(error) => return bench.skip("bytes on the wire", &format!("it needs root and namespaces: {error}")),
    };
    let cluster = Cluster::between(PLACEMENTS(bench.cores)[1], &cable);
    let client = cluster.client(Strategy::Auto);
    let (cores, time) = (bench.cores, time(bench, 200));
    let mut limit = line_ping_pong(cores);
    for size_bytes in WIRE_SIZES {
        let segment = cluster.segment(&client, &format!("wire-{size_bytes}"), size_bytes);
        for op in ["get", "put"] {
            let label = format!("ddss,{op},{size_bytes},tcp-veth-wire/auto/t1,1");
            bench.by_itself(&mut limit, &label, time, |time| counted(&cluster, cores, &cable, &segment, op, time));
        }
    }
}

fn counted(
    cluster: &Cluster,
    cores: Cores,
    cable: &VethPair,
    segment: &Segment,
    op: &str,
    time: Duration,
) -> StandaloneResult {
    let size_bytes = usize::try_from(segment.len()).expect("a segment of a bench is small");
    let count = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (counter, segment, gets) = (std::sync::Arc::clone(&count), segment.clone(), op == "get");
    let mut bytes = vec![0; size_bytes];
    let task = Box::new(move || {
        let done = if gets { segment.get_into(0, &mut bytes) } else { segment.put(0, &bytes) };
        done.expect("the home is there");
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    let before = cable.bytes().expect("the cable is there");
    let mut alone = run_tasks(cluster, cores, true, vec![task], time);
    let moved = cable.bytes().expect("the cable is there") - before;
    // The calls of the warm-up count as well, because the bytes on the cable include theirs.
    let calls = count.load(std::sync::atomic::Ordering::Relaxed).max(1);
    alone.more.wire_bytes = Some(moved as f64 / calls as f64);
    alone.notes.push("bytes on the wire with all headers, both ways".to_owned());
    alone
}
