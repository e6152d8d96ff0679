//! The parts of the road by themselves, on one thread: codec, engine, rings, and reads between two fabrics. The same loads
//! whose instructions `scripts/guard` counts, with Criterion's statistics and its comparison with the run before.
//!
//! This is where Criterion fits: short, repeatable, in one process. Everything else here has a client, daemons and a raw limit
//! in several processes on two cores, has to be interleaved with what it is compared with, and is thrown away when the machine
//! changes in between; that is what the harness of this package is for (`ddss_benches::harness`).
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "what Criterion's macros make is no interface of ours")]

use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use ddss_benches::regression::{LOADS, load};

fn parts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parts");
    for (name, _) in LOADS {
        let mut run = load(name).expect("every load that is listed is there");
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
