//! Bytes that a rank has read since its last call that synchronises.

use ddss_dsm_core::merge_ranges;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Bytes that a rank has read since its last call that synchronises.
#[derive(Debug, Default)]
pub(crate) struct ReadLog(Mutex<Ranges>);

#[derive(Debug, Default)]
struct Ranges {
    all: Vec<Range<u64>>,
    /// Number of ranges behind the last merge.
    merged: usize,
}

impl ReadLog {
    /// Number of new ranges behind which they are merged.
    const MERGE_EACH: usize = 1024;

    pub(crate) fn add(&self, bytes: Range<u64>) {
        let mut ranges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ranges.all.push(bytes);
        if ranges.all.len() >= 2 * ranges.merged + Self::MERGE_EACH {
            merge_ranges(&mut ranges.all);
            ranges.merged = ranges.all.len();
        }
    }

    /// Takes the ranges.
    pub(crate) fn take(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_merged_and_none_is_lost() {
        // If this broke, reads would be missing in a trace, or a loop over elements would fill the memory.
        let log = ReadLog::default();
        for round in 0..4 {
            (0..10_000).for_each(|at| log.add(at * 8..at * 8 + 8));
            assert!(log.0.lock().unwrap().all.len() <= ReadLog::MERGE_EACH + 2, "round {round}");
        }
        log.add(90_000..90_001);
        log.add(79_000..80_004);
        let mut found = log.take();
        merge_ranges(&mut found);
        assert_eq!(found, [0..80_004, 90_000..90_001]);
        assert_eq!(log.take(), []);
    }
}
