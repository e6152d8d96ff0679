//! One seed.

use super::files::{self, FileCounts, run_files};
use super::queue::{self, QueueCounts, run_queue};
use super::scenario::{RiverReport, RiverScenario};
use super::units::{self, UnitCounts, run_units};
use crate::random::Random;

/// Runs one seed: a queue, a unit queue, and readers of mirrored parts.
pub fn run_river(seed: u64, scenario: &RiverScenario) -> RiverReport {
    let mut seeds = Random::new(seed);
    let mut randoms = [(); 3].map(|()| Random::new(seeds.word()));
    #[cfg_attr(not(feature = "planted"), expect(unused_mut, reason = "only a bug changes it"))]
    let (mut queue_plan, mut files_plan, mut units_plan) =
        (queue::random_plan(&mut randoms[0]), files::random_plan(&mut randoms[1]), units::random_plan(&mut randoms[2]));
    #[cfg(feature = "planted")]
    {
        (queue_plan.bug, files_plan.bug, units_plan.bug) = (scenario.bug, scenario.bug, scenario.bug);
    }
    #[cfg(not(feature = "planted"))]
    let _ = scenario;
    let [queue_random, files_random, units_random] = randoms;
    let queue = run_queue(queue_plan, queue_random);
    let files = run_files(files_plan, files_random);
    let units = run_units(units_plan, units_random);
    RiverReport {
        violations: [queue.violations, files.violations, units.violations].concat(),
        trace: queue.trace.rotate_left(1) ^ files.trace.rotate_left(2) ^ units.trace ^ seed,
        counts: [queue_counts(&queue.counts), file_counts(&files.counts), unit_counts(&units.counts)].concat(),
    }
}

fn unit_counts(counts: &UnitCounts) -> Vec<(&'static str, u64)> {
    vec![
        ("units_claimed", counts.claims),
        ("units_finished", counts.finished),
        ("units_refused", counts.refused),
        ("units_failed", counts.failed),
        ("workers_lost", counts.deaths),
        ("units_renewed", counts.renewals),
        ("table_outages", counts.outages),
    ]
}

fn file_counts(counts: &FileCounts) -> Vec<(&'static str, u64)> {
    vec![
        ("chunks", counts.chunks),
        ("chunks_refused", counts.refused),
        ("parts_failed", counts.parts_failed),
        ("nodes_lost", counts.nodes_lost),
    ]
}

fn queue_counts(counts: &QueueCounts) -> Vec<(&'static str, u64)> {
    vec![
        ("messages", counts.messages),
        ("processed", counts.processed),
        ("doubles", counts.doubles),
        ("redelivered", counts.redelivered),
        ("recalled", counts.recalled),
        ("failed", counts.failed),
        ("dropped", counts.dropped),
        ("kills", counts.kills),
        ("stops", counts.stops),
        ("fenced", counts.fenced),
        ("cuts", counts.cuts),
        ("withdrawals", counts.withdrawals),
        ("flows_lost", counts.flows_lost),
    ]
}
