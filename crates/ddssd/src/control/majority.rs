//! Flag for a lost majority, and the error of calls that need one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time for which the leader's last call counts.
pub(crate) const LEADER_HEARD_WITHIN: Duration = Duration::from_secs(3);
/// Time for which the last answer of a leader with a majority counts: voters elect another one in two rounds at most.
pub(super) const CONFIRMED_WITHIN: Duration = Duration::from_secs(4);

/// Shared flag: a majority of the voters is reachable. Clones share the flag.
#[derive(Clone, Debug)]
pub(crate) struct Majority(Arc<AtomicBool>);

impl Default for Majority {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Majority {
    /// Sets the flag; returns its value before.
    pub(super) fn swap(&self, has_majority: bool) -> bool {
        self.0.swap(has_majority, Ordering::AcqRel)
    }

    pub(super) fn is_lost(&self) -> bool {
        !self.0.load(Ordering::Acquire)
    }
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
