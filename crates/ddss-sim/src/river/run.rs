//! One seed.

use super::files::{self, FileCounts, run_files};
use super::queue::{self, QueueCounts, run_queue};
use super::scenario::{RiverReport, RiverScenario};
use crate::random::Random;

/// Runs one seed: a queue, and readers of mirrored parts.
pub fn run_river(seed: u64, scenario: &RiverScenario) -> RiverReport {
    let mut random = Random::new(seed);
    let (mut queue_random, mut files_random) = (Random::new(random.word()), Random::new(random.word()));
    #[cfg_attr(not(feature = "planted"), expect(unused_mut, reason = "only a bug changes it"))]
    let (mut queue_plan, mut files_plan) =
        (queue::random_plan(&mut queue_random), files::random_plan(&mut files_random));
    #[cfg(feature = "planted")]
    {
        (queue_plan.bug, files_plan.bug) = (scenario.bug, scenario.bug);
    }
    #[cfg(not(feature = "planted"))]
    let _ = scenario;
    let queue = run_queue(queue_plan, queue_random);
    let files = run_files(files_plan, files_random);
    let trace = queue.trace.rotate_left(1) ^ files.trace ^ seed;
    let violations = [queue.violations, files.violations].concat();
    let counts = [queue_counts(&queue.counts), file_counts(&files.counts)].concat();
    RiverReport { violations, trace, counts }
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
