//! State of this node's part of the Raft group, for the metrics.

use ddss_core::status::Histogram;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Values that the control plane writes and the metrics thread reads. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RaftStatus(Arc<Mutex<RaftValues>>);

/// Values of one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct RaftValues {
    pub(crate) term: u64,
    pub(crate) applied_index: u64,
    /// Terms that have begun since this daemon started.
    pub(crate) elections: u64,
    pub(crate) log_bytes: u64,
    /// Durations of writes to the log, until they would survive a loss of power.
    pub(crate) log_syncs: Histogram,
    /// Microseconds by which this clock is ahead of the leader's.
    pub(crate) clock_ahead_us: i64,
}

impl RaftStatus {
    fn values(&self) -> MutexGuard<'_, RaftValues> {
        // A poisoned lock is safe: each value stands alone.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a copy of all values.
    pub(crate) fn read(&self) -> RaftValues {
        self.values().clone()
    }

    /// Records the progress of the group.
    pub(crate) fn set_progress(&self, term: u64, applied_index: u64, clock_ahead_us: i64) {
        let mut values = self.values();
        // The first term that is seen began before this daemon did.
        values.elections += if values.term == 0 { 0 } else { term.saturating_sub(values.term) };
        (values.term, values.applied_index, values.clock_ahead_us) = (term, applied_index, clock_ahead_us);
    }

    /// Records a write to the log.
    pub(crate) fn note_log_write(&self, took: Duration, log_bytes: u64) {
        let mut values = self.values();
        values.log_syncs.note(took.as_nanos() as u64);
        values.log_bytes = log_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_that_begin_while_the_daemon_runs_are_elections() {
        // If this broke, each restart would look like thousands of elections, or none would be seen.
        let status = RaftStatus::default();
        for term in [700, 700, 701, 703] {
            status.set_progress(term, 9, -5);
        }
        status.note_log_write(Duration::from_micros(3), 4096);
        let values = status.read();
        assert_eq!((values.elections, values.term, values.applied_index, values.clock_ahead_us), (3, 703, 9, -5));
        assert_eq!((values.log_syncs.count(), values.log_syncs.sum_ns(), values.log_bytes), (1, 3000, 4096));
    }
}
