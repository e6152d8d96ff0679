//! One seed.

use super::queue::{QueueCounts, random_plan, run_queue};
use super::scenario::{RiverReport, RiverScenario};
use crate::random::Random;

/// Runs one seed.
pub fn run_river(seed: u64, scenario: &RiverScenario) -> RiverReport {
    let mut random = Random::new(seed);
    #[cfg_attr(not(feature = "planted"), expect(unused_mut, reason = "only a bug changes it"))]
    let mut plan = random_plan(&mut random);
    #[cfg(feature = "planted")]
    {
        plan.bug = scenario.bug;
    }
    #[cfg(not(feature = "planted"))]
    let _ = scenario;
    let result = run_queue(plan, random);
    RiverReport { violations: result.violations, trace: result.trace ^ seed, counts: queue_counts(&result.counts) }
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
