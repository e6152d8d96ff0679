//! Counters of all ranks of a program.

use crate::Error;
use ddss_dsm::{Homes, Space, Statistics};
use std::fmt;

/// Counters that are added up.
const COUNTERS: usize = 18;
/// Their names. The last one is a time.
const NAMES: [&str; COUNTERS] = [
    "fetches",
    "retries",
    "own pages",
    "swaps",
    "forwards",
    "diffs",
    "runs",
    "diff bytes",
    "packed",
    "intervals",
    "notices",
    "invalidations",
    "handled",
    "handler bytes",
    "fences",
    "locks",
    "barriers",
    "handler ns",
];

/// Sums of the counters of all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts([u64; COUNTERS]);

impl Counts {
    fn new(of: &Statistics) -> Self {
        Self([
            of.fetches,
            of.retries,
            of.own_pages,
            of.swaps,
            of.forwards,
            of.diffs,
            of.runs,
            of.diff_bytes,
            of.packed,
            of.intervals,
            of.notices,
            of.invalidations,
            of.handled,
            of.handler_bytes,
            of.fences,
            of.locks,
            of.barriers,
            of.handler_ns,
        ])
    }

    /// Adds up the counters of all ranks, each of which calls it.
    pub(super) fn of_all(space: &mut Space) -> Result<Self, Error> {
        let own = Self::new(&space.statistics()?);
        let all = space.region::<[u64; COUNTERS]>("counts", space.ranks().into(), Homes::FirstTouch)?;
        all.put(space, space.rank().into(), own.0)?;
        space.barrier()?;
        let mut sums = [0; COUNTERS];
        for counts in all.read(space, ..)?.iter() {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        Ok(Self(sums))
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = NAMES.iter().zip(self.0).map(|(name, count)| format!("{name} {count}")).collect();
        f.write_str(&words.join(", "))
    }
}
