//! Settings of a run, and its report.

use crate::random::Random;
use ddss_dsm_core::{Config, LogShape, Ordering, Protocol, Rank, Stamps, Statistics, Tuning};

/// Settings of one run that a caller may fix; a seed selects the others.
#[derive(Clone, Copy, Debug, Default)]
pub struct DsmScenario {
    /// Protocol.
    pub protocol: Option<Protocol>,
    /// Ordering.
    pub ordering: Option<Ordering>,
    /// Stamps.
    pub stamps: Option<Stamps>,
    /// True if every log ring has two records, and threads have long phases: records are overwritten soon.
    pub has_tiny_log: bool,
    /// True if a rank dies in some runs.
    pub deaths: bool,
    /// The bug that every rank has.
    #[cfg(feature = "planted")]
    pub bug: Option<ddss_dsm_core::Bug>,
}

/// Result of one run.
#[derive(Clone, Debug, Default)]
pub struct DsmReport {
    /// Rules that were broken; empty if none was.
    pub violations: Vec<String>,
    /// Hash over the run: the same for the same seed and build.
    pub trace: u64,
    /// Steps of the simulation.
    pub steps: u64,
    /// Accesses of threads to bytes.
    pub accesses: u64,
    /// Calls of threads, apart from those that fetch pages.
    pub calls: u64,
    /// Messages that arrived.
    pub messages: u64,
    /// Runs in which a rank died.
    pub deaths: u64,
    /// Bytes that two ranks used without an order, one of them writing, in runs that record accesses.
    pub races: u64,
    /// Sums of all ranks' counters.
    pub statistics: Statistics,
}

/// Returns the settings of rank 0 for a seed. Ring, messages, slots and limit of runs are often tiny, so that rare paths
/// are common.
pub(crate) fn random_config(scenario: &DsmScenario, random: &mut Random) -> Config {
    fn pick<T: Copy>(fixed: Option<T>, all: &[T], random: &mut Random) -> T {
        let picked = all[random.below(all.len() as u64) as usize];
        fixed.unwrap_or(picked)
    }
    let ranks = 2 + random.below(3) as usize;
    let ranks = if scenario.has_tiny_log { ranks.max(3) } else { ranks };
    let slots = if random.one_in(2) { 64 } else { 2 + random.below(4) as u32 };
    let record_bytes = 16 + 8 * (1 + random.below(4) as u32);
    Config {
        rank: Rank::ZERO,
        ranks,
        pages: 2 + random.below(9) as u32,
        page_bytes: 16 << random.below(3),
        message_bytes: 128,
        protocol: pick(scenario.protocol, &Protocol::ALL, random),
        ordering: pick(scenario.ordering, &[Ordering::Stamped, Ordering::Placed], random),
        stamps: pick(scenario.stamps, &[Stamps::PerHome, Stamps::PerPage], random),
        log: LogShape { slots: if scenario.has_tiny_log { 2 } else { slots }, record_bytes },
        tuning: Tuning {
            runs_max: random.below(4) as usize,
            window: if random.one_in(2) { 1 } else { 16 },
            retries_max: random.below(4) as u32,
            fetches: 1 + random.below(4) as u16,
            // Few twins let calls fail while they wait for other pages.
            twins: if random.one_in(8) { 1 + random.below(3) as u32 } else { Tuning::default().twins },
            ..Tuning::default()
        },
    }
}
