//! Time that is left of one lease. The holder counts it from before a request, so that it never ends later here than at the home.

use crate::error::Error;
use crate::error::reason::Reason;
use ddss_core::Failure;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Renewals of one lease, if each succeeds at once.
const RENEWALS_PER_LEASE: u32 = 3;
/// Maximum time until a failed renewal is repeated.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// End of a renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Renewal {
    Done,
    /// The home does not know the lock any more.
    LockLost,
    /// The home did not answer, or could not renew it now.
    Unknown,
}

impl Renewal {
    pub(crate) fn of(renewed: &Result<(), Error>) -> Self {
        match renewed {
            Ok(()) => Self::Done,
            Err(error) => match *error.reason() {
                Reason::Failed { failure, .. } => Self::of_failure(failure),
                _ => Self::Unknown,
            },
        }
    }

    pub(crate) fn of_failure(failure: Failure) -> Self {
        if matches!(failure, Failure::LockLost | Failure::NotFound) { Self::LockLost } else { Self::Unknown }
    }
}

/// End of a lease, and whether the lock is lost.
#[derive(Debug)]
pub(crate) struct Lease {
    lease: Duration,
    state: Mutex<LeaseState>,
}

/// State that renewals change.
#[derive(Debug)]
struct LeaseState {
    end: Instant,
    /// Time of the next renewal by the keeper.
    due: Instant,
    /// Stays true: a holder that was told of the loss never gets the lock back.
    is_lost: bool,
    /// Number of renewals that succeeded.
    #[cfg(test)]
    renewals: usize,
}

impl LeaseState {
    fn until(end: Instant, due: Instant) -> Self {
        Self {
            end,
            due,
            is_lost: false,
            #[cfg(test)]
            renewals: 0,
        }
    }
}

impl Lease {
    /// Creates the lease of a lock that was requested or renewed after `sent`.
    pub(crate) fn since(sent: Instant, lease: Duration) -> Self {
        Self { lease, state: Mutex::new(LeaseState::until(sent + lease, sent + lease / RENEWALS_PER_LEASE)) }
    }

    /// Creates the same lease for the keeper.
    pub(crate) fn to_keep(&self) -> Self {
        Self::since(self.state().end - self.lease, self.lease)
    }

    /// Returns true if a quarter of the lease has passed since the request. A holder that waited in the lock queue, or a task that
    /// was polled late, does not know when the home granted the lock.
    pub(crate) fn is_old(&self) -> bool {
        Instant::now() + self.lease / 4 * 3 > self.state().end
    }

    fn state(&self) -> std::sync::MutexGuard<'_, LeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the whole lease.
    pub(crate) fn duration(&self) -> Duration {
        self.lease
    }

    /// Returns the remaining time; zero once the lock is lost.
    pub(crate) fn left(&self) -> Duration {
        let mut state = self.state();
        let left = state.end.saturating_duration_since(Instant::now());
        state.is_lost |= left.is_zero();
        if state.is_lost { Duration::ZERO } else { left }
    }

    /// Returns true if the lock is known to be lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.state().is_lost
    }

    /// Returns the time of the next renewal.
    pub(crate) fn due(&self) -> Instant {
        self.state().due
    }

    /// Returns the number of renewals that succeeded.
    #[cfg(test)]
    pub(crate) fn renewals(&self) -> usize {
        self.state().renewals
    }

    /// Records the end of a renewal whose request went out after `sent`.
    pub(crate) fn record(&self, sent: Instant, renewal: Renewal) {
        let now = Instant::now();
        let mut state = self.state();
        match renewal {
            Renewal::Done => {
                state.end = state.end.max(sent + self.lease);
                state.due = sent + self.lease / RENEWALS_PER_LEASE;
                #[cfg(test)]
                {
                    state.renewals += 1;
                }
            }
            Renewal::LockLost => state.is_lost = true,
            Renewal::Unknown => {
                state.is_lost |= now >= state.end;
                state.due = now + (self.lease / 10).min(RETRY_MAX);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_that_ended_is_never_reported_as_held_again() {
        // If this broke, a leader that had stepped down would find itself leader again.
        let before = Instant::now();
        let lease = Lease { lease: Duration::from_secs(60), state: Mutex::new(LeaseState::until(before, before)) };
        assert!(!lease.is_lost());
        assert_eq!(lease.left(), Duration::ZERO);
        lease.record(Instant::now(), Renewal::Done);
        assert!(lease.is_lost());
        assert_eq!(lease.left(), Duration::ZERO);
    }

    #[test]
    fn failed_renewal_loses_the_lock_only_when_the_home_says_so() {
        // If this broke, a slow network would depose a leader, or a deposed leader would go on.
        let lease = Lease::since(Instant::now(), Duration::from_secs(600));
        for failure in
            [Failure::NodeDown, Failure::TimedOut, Failure::Busy(crate::Limit::Operations), Failure::GoingDown]
        {
            lease.record(Instant::now(), Renewal::of_failure(failure));
            assert!(!lease.is_lost(), "{failure}");
        }
        assert!(lease.left() > Duration::from_secs(300));
        lease.record(Instant::now(), Renewal::of_failure(Failure::LockLost));
        assert_eq!(lease.left(), Duration::ZERO);
    }
}
