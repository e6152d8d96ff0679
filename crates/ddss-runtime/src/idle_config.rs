//! Configuration of an idle strategy, and its constants in one place.
//!
//! A thread that has a core for itself spins, then parks. All but [`IdleConfig::spin`], `rounds_per_clock` and the
//! constants of wasted spins are for threads that share a core, and were tuned on virtual machines with two cores.

use std::time::Duration;

/// Configuration of an idle strategy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdleConfig {
    /// Time to spin after the last work.
    pub spin: Duration,
    /// Number of yields after that, if the thread shares its core.
    pub yields: u32,
    /// True if other threads may want this thread's core: it then yields while it spins, and before it parks.
    pub shares_core: bool,
    /// Spins without ever parking, for a thread with a core of its own.
    pub busy: bool,
    /// Longest sleep, so that timers are served.
    pub park_max: Duration,
}

impl Default for IdleConfig {
    fn default() -> Self {
        Self {
            spin: Duration::from_micros(50),
            yields: 4,
            shares_core: true,
            busy: false,
            park_max: Duration::from_millis(50),
        }
    }
}

impl IdleConfig {
    /// Cores from which a thread counts as one with a core of its own.
    pub const MANY_CORES: usize = 4;

    /// Returns the defaults for a process that may run on that many cores.
    #[must_use]
    pub fn for_cores(cores: usize) -> Self {
        Self { shares_core: cores < Self::MANY_CORES, ..Self::default() }
    }
}

/// Constants of the idle strategy.
pub(crate) struct IdleConstants {
    // On any machine.
    /// Rounds without work between two readings of the clock, which costs as much as such a round.
    pub(crate) rounds_per_clock: u32,
    /// Wasted spins after which the thread spins only briefly.
    pub(crate) wasted_spins_max: u32,
    /// Upper bound of the counter of wasted spins.
    pub(crate) wasted_spins_cap: u32,
    /// Length of a brief spin.
    pub(crate) spin_short: Duration,

    // On a core that is shared: few cores.
    /// Rounds without work between two readings of the clock, on a contended core.
    pub(crate) rounds_per_clock_contended: u32,
    /// Upper bound of a yield that lets no other thread run.
    pub(crate) unused_yield_max: Duration,
    /// Upper bound of an unused yield if a client on this core waits for this thread: it checks and gives the core
    /// back.
    pub(crate) waiter_yield_max: Duration,
    /// Attempts to hand the core to a client whose result is ready.
    pub(crate) hand_overs_max: u32,
    /// Consecutive unused yields after which a core counts as uncontended. Another daemon on the core may just be
    /// asleep. If this thread forgot it immediately, that daemon would wait for a whole spin when it wakes, its client
    /// would sleep, and then the same would happen to this daemon.
    pub(crate) unused_yields_min: u32,
    /// Interval of early yields.
    pub(crate) early_yield_interval: Duration,
    /// Duration of a yield from which the other thread counts as compute-bound. Another daemon, which spins and does
    /// some work in its turn, needs less: two daemons that mistook each other for compute-bound would always keep each
    /// other waiting.
    pub(crate) occupied_min: Duration,
    /// Multiple of that yield's duration without another early yield.
    pub(crate) occupied_backoff: u32,
    /// Duration beyond which the yield is not the cause: the thread was stopped, or the hypervisor took its core. That
    /// may not repeat, and the threads on the core would pay for a pause of 16 times this length.
    pub(crate) occupied_max: Duration,
}

/// The constants in use.
pub(crate) const IDLE: IdleConstants = IdleConstants {
    rounds_per_clock: 8,
    wasted_spins_max: 4,
    wasted_spins_cap: 2 * 4,
    spin_short: Duration::from_micros(1),
    rounds_per_clock_contended: 4,
    unused_yield_max: Duration::from_nanos(900),
    waiter_yield_max: Duration::from_nanos(2_500),
    hand_overs_max: 4,
    unused_yields_min: 8,
    early_yield_interval: Duration::from_nanos(1_500),
    occupied_min: Duration::from_micros(500),
    occupied_backoff: 16,
    occupied_max: Duration::from_millis(4),
};
