//! Components by themselves, on one thread: codec, engine, rings, and reads between two fabrics.
//!
//! The workloads are those whose instructions `scripts/guard` counts, with Criterion's statistics and its comparison
//! with the previous run.
//!
//! Criterion fits short, repeatable runs in one process. The other benches have a client, daemons and a raw limit in
//! several processes on two cores. They need interleaving, and must discard measurements when the machine changes: that
//! is the task of `ddss_benches::harness`.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "what Criterion's macros make is no interface of ours")]

use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use ddss_benches::regression::{WORKLOADS, workload};

fn parts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("components");
    for (name, _) in WORKLOADS {
        let mut run = workload(name).expect("every load that is listed is there");
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| {
                let begin = Instant::now();
                run(rounds);
                begin.elapsed()
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = all;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    targets = parts
}
criterion_main!(all);
