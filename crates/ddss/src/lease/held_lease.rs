//! Lease of a lock guard, renewed by calls of its holder or by the keeper.

use super::keeper::{KeptLease, LeaseKeeper};
use super::lease_state::Lease;
use crate::error::Error;
use crate::location::SegmentLocation;
use crate::session::Inner;
use ddss_core::{Failure, LockToken};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Lease of a lock guard. A kept one is shared with the keeper.
#[derive(Debug)]
pub(crate) struct HeldLease {
    own: Lease,
    kept: Option<KeptLease>,
}

impl HeldLease {
    /// Creates the lease of a lock that was requested after `asked`.
    pub(crate) fn since(asked: Instant, lease: Duration) -> Self {
        Self { own: Lease::since(asked, lease), kept: None }
    }

    /// Has the keeper renew the lease until the guard ends.
    pub(crate) fn keep(
        &mut self,
        keeper: &Arc<LeaseKeeper>,
        inner: &Arc<Inner>,
        location: &SegmentLocation,
        token: LockToken,
    ) -> Result<(), Error> {
        self.kept = Some(KeptLease::begin(keeper, inner, location, (token, self.own.to_keep()))?);
        Ok(())
    }

    /// Ends the renewals.
    pub(crate) fn stop(&mut self) {
        self.kept = None;
    }

    /// Returns the lease that counts.
    pub(crate) fn current(&self) -> &Lease {
        self.kept.as_ref().map_or(&self.own, KeptLease::lease)
    }
}

/// Returns true if an unlock ended so that it is still owed: it found neither time nor capacity.
pub(crate) fn is_owed(ended: &Result<(), Error>) -> bool {
    let failure = ended.as_ref().err().filter(|error| !error.is_indeterminate()).and_then(Error::failure);
    matches!(failure, Some(Failure::TimedOut | Failure::Busy(_)))
}
