//! Timeouts and deadlines of calls.

use ddss_core::limits::TIMEOUT_MAX_US;
use ddss_core::{BadArgument, Failure};
use std::time::{Duration, Instant};

/// Maximum timeout of a call.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_micros(TIMEOUT_MAX_US as u64);

/// Refuses a longer timeout, at which a daemon would end the call sooner than its caller expects.
pub(crate) fn check_timeout(timeout: Duration) -> Result<(), BadArgument> {
    if timeout <= TIMEOUT_MAX {
        return Ok(());
    }
    let (value, range) = (format!("{timeout:?}"), format!("at most {TIMEOUT_MAX:?}"));
    Err(BadArgument::new("timeout", value, range, Failure::Malformed))
}

/// Encodes the remaining time for the wire, at least 1 µs; `None` if it exceeds the maximum of a call.
#[inline]
pub(crate) fn timeout_us(left: Duration) -> Option<u32> {
    let micros = u32::try_from(left.as_micros()).ok()?;
    (micros <= TIMEOUT_MAX_US).then_some(micros.max(1))
}

/// Returns the deadline of a call that begins now. A timeout that is too long yields one day: the call is refused
/// before that.
pub(crate) fn deadline_in(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(Duration::from_secs(86_400))
}

/// Deadline of one call, across all its steps: wait for a channel, find the next daemon, retry. It is computed at the
/// first wait, so that a call that need not wait reads no clock.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    timeout: Duration,
    deadline: Option<Instant>,
}

impl Deadline {
    pub(crate) const fn of(timeout: Duration) -> Self {
        Self { timeout, deadline: None }
    }

    pub(crate) const fn until(deadline: Instant) -> Self {
        Self { timeout: Duration::ZERO, deadline: Some(deadline) }
    }

    /// Computes the deadline now, for several calls that share it.
    pub(crate) fn started(mut self) -> Self {
        self.deadline();
        self
    }

    /// Returns the deadline, computing it at the first use.
    #[inline]
    pub(crate) fn deadline(&mut self) -> Instant {
        let timeout = self.timeout;
        *self.deadline.get_or_insert_with(|| deadline_in(timeout))
    }

    /// Returns the remaining time.
    #[inline]
    pub(crate) fn remaining(&self) -> Duration {
        match self.deadline {
            None => self.timeout,
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
        }
    }
}
