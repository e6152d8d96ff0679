//! Flag for a lost majority, and the error of calls that need one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time for which the leader's last call counts.
pub(crate) const LEADER_HEARD_WITHIN: Duration = Duration::from_secs(3);
/// Time for which the last answer of a leader with a majority counts: voters elect another one in two rounds at most.
pub(super) const CONFIRMED_WITHIN: Duration = Duration::from_secs(4);

/// Findings of the last answer of the leader. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Majority(Arc<Learned>);

#[derive(Debug, Default)]
struct Learned {
    /// No majority of the voters is reachable.
    is_lost: AtomicBool,
    /// Microseconds by which the clock of this node is ahead of the leader's.
    clock_ahead_us: AtomicI64,
}

impl Majority {
    /// Sets whether a majority is reachable; returns the value before.
    pub(super) fn swap(&self, has_majority: bool) -> bool {
        !self.0.is_lost.swap(!has_majority, Ordering::AcqRel)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.0.is_lost.load(Ordering::Acquire)
    }

    /// Sets the distance of the clocks.
    pub(super) fn set_clock_ahead(&self, micros: i64) {
        self.0.clock_ahead_us.store(micros, Ordering::Relaxed);
    }

    /// Returns the microseconds by which the clock of this node is ahead of the leader's.
    pub(super) fn clock_ahead_us(&self) -> i64 {
        self.0.clock_ahead_us.load(Ordering::Relaxed)
    }
}

/// Returns the wall clock in microseconds since 1970.
pub(crate) fn wall_clock_us() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}

/// The reason of a failed call: no majority can decide.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no majority of the cluster's voters can be reached")]
pub(super) struct NoMajority;

impl NoMajority {
    /// Returns true if this is the reason of an error.
    pub(super) fn is_in(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inside| inside.is::<NoMajority>())
    }
}
