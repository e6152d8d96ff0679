//! How long a call may take.

use std::time::{Duration, Instant};

/// The time of one call, whatever it has to do for it: wait for a lane, look for the next daemon, ask twice. Its deadline
/// is made when somebody has to wait for the first time, so that who need not wait reads no clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    timeout: Duration,
    deadline: Option<Instant>,
}

impl Time {
    pub(crate) const fn of(timeout: Duration) -> Self {
        Self { timeout, deadline: None }
    }

    pub(crate) const fn until(deadline: Instant) -> Self {
        Self { timeout: Duration::ZERO, deadline: Some(deadline) }
    }

    /// The same with its deadline made: for who makes several calls in that time.
    pub(crate) fn begun(mut self) -> Self {
        self.deadline();
        self
    }

    /// When it is over.
    #[inline]
    pub(crate) fn deadline(&mut self) -> Instant {
        let timeout = self.timeout;
        *self.deadline.get_or_insert_with(|| Instant::now() + timeout)
    }

    /// What is left of it.
    #[inline]
    pub(crate) fn left(&self) -> Duration {
        match self.deadline {
            None => self.timeout,
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
        }
    }
}
