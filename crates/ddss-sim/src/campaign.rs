//! Runs many seeds on all cores.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs the seeds, and returns their reports in the order of the seeds.
///
/// # Panics
/// If a run panics.
pub fn run_seeds<R: Send>(seeds: &[u64], run: impl Fn(u64) -> R + Sync) -> Vec<(u64, R)> {
    let next = AtomicUsize::new(0);
    let claim = || {
        let place = next.fetch_add(1, Ordering::Relaxed);
        seeds.get(place).map(|seed| (place, *seed))
    };
    let work = || std::iter::from_fn(claim).map(|(place, seed)| (place, seed, run(seed))).collect::<Vec<_>>();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut reports: Vec<(usize, u64, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no seed panics")).collect()
    });
    reports.sort_by_key(|(place, ..)| *place);
    reports.into_iter().map(|(_, seed, report)| (seed, report)).collect()
}
