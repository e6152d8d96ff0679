//! Settings of a progress thread's back-off, and its constants in one place.

use std::time::Duration;

/// Settings of a progress thread without work: it spins, then yields its core, then sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdleConfig {
    /// Time after the last work from which the thread yields: until then it spins.
    pub yield_after: Duration,
    /// Time after which it sleeps.
    pub sleep_after: Duration,
    /// Longest sleep, so that timers are served.
    pub sleep_max: Duration,
    /// Yields without ever sleeping, for a thread with a core of its own.
    pub busy: bool,
}

impl Default for IdleConfig {
    fn default() -> Self {
        Self::for_cores(1)
    }
}

impl IdleConfig {
    /// Cores from which a thread counts as one with a core of its own.
    pub const MANY_CORES: usize = 4;

    /// Returns the defaults for a process that may run on that many cores. With few cores the thread yields early,
    /// because the work that it waits for may depend on another thread of this core.
    #[must_use]
    pub fn for_cores(cores: usize) -> Self {
        let sleep_after = Duration::from_micros(50);
        let yield_after = if cores < Self::MANY_CORES { Duration::from_nanos(500) } else { sleep_after };
        Self { yield_after, sleep_after, sleep_max: Duration::from_millis(50), busy: false }
    }
}

/// Constants of the back-off.
pub(crate) struct IdleConstants {
    /// Rounds without work between two readings of the clock: a reading takes as long as such a round.
    pub(crate) rounds_per_clock: u32,
    /// Waits in vain after which the thread waits only briefly before it sleeps. Twice as many are counted.
    pub(crate) wasted_waits_max: u32,
    /// Length of a brief wait.
    pub(crate) wait_short: Duration,
    /// Duration of a yield from which another thread counts as compute-bound.
    pub(crate) occupied_min: Duration,
    /// Upper limit of the duration that counts: beyond it, the thread was stopped.
    pub(crate) occupied_max: Duration,
    /// Pause without yields, as a multiple of that duration.
    pub(crate) occupied_pause: u32,
}

/// The constants in use.
pub(crate) const IDLE: IdleConstants = IdleConstants {
    rounds_per_clock: 4,
    wasted_waits_max: 4,
    wait_short: Duration::from_micros(1),
    occupied_min: Duration::from_micros(500),
    occupied_max: Duration::from_millis(4),
    occupied_pause: 16,
};
