//! The clock of a progress thread.

use ddss_engine::Now;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A clock value that is a few rounds old at most: no request waits for a clock read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
    now: Now,
}

impl Clock {
    /// Starts the clock at this moment.
    pub(crate) fn start() -> Self {
        let began = Instant::now();
        Self { began, now: Self::read(began) }
    }

    fn read(began: Instant) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { steady_us: began.elapsed().as_micros() as u64, wall_us: wall.as_micros() as u64 }
    }

    /// Reads the system's clocks.
    pub(crate) fn update(&mut self) {
        self.now = Self::read(self.began);
    }

    /// Returns the last value read.
    #[inline(always)]
    pub(crate) fn now(&self) -> Now {
        self.now
    }

    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Converts an instant to the engine's steady time.
    pub(crate) fn steady_us(&self, at: Instant) -> u64 {
        let since: Duration = at.saturating_duration_since(self.began);
        since.as_micros() as u64
    }
}
