//! Units that workers claim and finish.

use std::thread;
use std::time::{Duration, Instant};

use ddss::Strategy;
use ddss_benches::baseline::line_ping_pong;
use ddss_benches::harness::{Bench, Sample, StandaloneResult, on_all_cores};
use ddss_benches::system::{Cluster, PLACEMENTS};
use ddss_river::{UnitOptions, UnitQueue};

/// Measures one worker and sixteen, of which half are on another node than the list.
pub(super) fn measure(bench: &mut Bench) {
    let label = |workers: usize| format!("ddss,claim,256,tcp-lo/auto/t{workers},1");
    let units_each = match (bench.options.bench, bench.options.quick) {
        (false, _) => 2,
        (true, true) => 200,
        (true, false) => 1000,
    };
    for workers in [1, 16] {
        if !bench.options.wants(&label(workers)) {
            continue;
        }
        let cluster = Cluster::pair(PLACEMENTS(bench.cores)[1]);
        let mut limit = line_ping_pong(bench.cores);
        bench.by_itself(&mut limit, &label(workers), Duration::ZERO, |_| {
            on_all_cores(|| run(&cluster, workers, units_each))
        });
    }
}

fn run(cluster: &Cluster, workers: usize, units_each: usize) -> StandaloneResult {
    let owner = cluster.client_of(1, Strategy::Auto);
    let units = UnitQueue::create(&owner, "claims", UnitOptions::new()).expect("the pool is large enough");
    units.add(&vec![[7; 256]; workers * units_each]).expect("the list has room");
    let clients: Vec<_> = (0..workers).map(|worker| cluster.client_of(worker % 2, Strategy::Auto)).collect();
    let begun = Instant::now();
    let samples: Vec<Sample> = thread::scope(|scope| {
        let work = |client| {
            scope.spawn(move || {
                let units = UnitQueue::open(client, "claims").expect("the list is there");
                let mut sample = Sample::empty();
                let mut last = Instant::now();
                while let Some(unit) = units.claim().expect("the home is there") {
                    unit.done(b"").expect("the unit is this worker's");
                    let now = Instant::now();
                    sample.record(now - last, 1, 1);
                    last = now;
                }
                sample
            })
        };
        let workers: Vec<_> = clients.iter().map(work).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker ends")).collect()
    });
    let elapsed = begun.elapsed();
    let mut all = Sample::empty();
    samples.iter().for_each(|sample| all.add(sample));
    all.elapsed = elapsed;
    assert_eq!(all.operations, (workers * units_each) as u64, "each unit is finished once");
    StandaloneResult::new(all)
}
