//! How long a call may take.

use ddss_core::limits::TIMEOUT_MAX_US;
use ddss_core::{BadArgument, Failure};
use std::time::{Duration, Instant};

/// The longest time that a call may have.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_micros(TIMEOUT_MAX_US as u64);

/// Refuses a time that is longer. A daemon would end the call sooner than its caller expects.
pub(crate) fn check_timeout(timeout: Duration) -> Result<(), BadArgument> {
    if timeout <= TIMEOUT_MAX {
        return Ok(());
    }
    let (value, range) = (format!("{timeout:?}"), format!("at most {TIMEOUT_MAX:?}"));
    Err(BadArgument::new("timeout", value, range, Failure::Malformed))
}

/// The time that is left to a call as it travels, at least a microsecond; nothing if it is longer than a call may have.
#[inline]
pub(crate) fn timeout_us(left: Duration) -> Option<u32> {
    let micros = u32::try_from(left.as_micros()).ok()?;
    (micros <= TIMEOUT_MAX_US).then_some(micros.max(1))
}

/// When a call that begins now has to end. Of a time that is too long it is a day: the call is refused before that.
pub(crate) fn deadline_in(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(Duration::from_secs(86_400))
}

/// The time of one call, whatever it has to do for it: wait for a lane, look for the next daemon, ask twice. Its deadline
/// is made when somebody has to wait for the first time, so that who need not wait reads no clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
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

    /// The same with its deadline made: for who makes several calls in that time.
    pub(crate) fn begun(mut self) -> Self {
        self.deadline();
        self
    }

    /// When it is over.
    #[inline]
    pub(crate) fn deadline(&mut self) -> Instant {
        let timeout = self.timeout;
        *self.deadline.get_or_insert_with(|| deadline_in(timeout))
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
