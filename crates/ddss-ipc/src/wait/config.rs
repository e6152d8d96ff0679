//! Constants of the waits of a client, in one place. Its three settings are in [`BackOff`](super::back_off::BackOff).

use std::time::Duration;

/// Constants of the waits. Each names its unit and its reason.
pub(crate) struct WaitConfig {
    /// Polls of the slot between two reads of the clock: a read takes as long as some ten polls.
    pub(crate) polls_per_clock_read: u32,
    /// Interval at which a client that does not sleep checks whether the daemon is alive: the check is a system call.
    pub(crate) liveness_interval: Duration,

    // Yields.
    /// Duration of a yield beyond which another thread computes on the core.
    pub(crate) occupied_min: Duration,
    /// Upper limit of the duration that counts: beyond it, the caller was stopped.
    pub(crate) occupied_max: Duration,
    /// Pause without yields, as a multiple of that duration.
    pub(crate) occupied_pause: u32,

    // Turns of many callers.
    /// Time after which a caller gives up its core, if more clients call than there are cores.
    pub(crate) turn: Duration,
    /// Calls between two reads of the clock. A caller for which they take longer than a turn has waited, or computes.
    pub(crate) calls_per_clock_read: u32,

    // The service's own core: see `service_core`.
    /// Waits on the service's core before a client leaves it: it may be there by chance, and move by itself.
    pub(crate) waits_on_service_core_max: u32,
    /// Shortest interval between two moves, if the kernel keeps putting the client back.
    pub(crate) leave_interval: Duration,

    // Delay before the first poll: see `first_poll_delay`.
    /// Parts of a step that an early poll adds.
    pub(crate) early_parts: u32,
    /// Parts of a step that a poll in time subtracts.
    pub(crate) on_time_parts: u32,
    /// Parts of a step. A step is about two nanoseconds.
    pub(crate) parts_per_step: u32,
    /// Longest delay, some half a microsecond: longer operations gain nothing by it.
    pub(crate) delay_parts_max: u32,
    /// Polls after which the reply was so late that the first poll says nothing about the next reply.
    pub(crate) near_polls: u32,
}

/// The constants in use.
pub(crate) const WAIT: WaitConfig = WaitConfig {
    polls_per_clock_read: 32,
    liveness_interval: Duration::from_millis(5),
    occupied_min: Duration::from_micros(500),
    occupied_max: Duration::from_millis(4),
    occupied_pause: 16,
    turn: Duration::from_micros(150),
    calls_per_clock_read: 8,
    waits_on_service_core_max: 4,
    leave_interval: Duration::from_micros(100),
    early_parts: 16,
    on_time_parts: 1,
    parts_per_step: 8,
    delay_parts_max: 256 * 8,
    near_polls: 8,
};

const _: () = assert!(WAIT.delay_parts_max.is_multiple_of(WAIT.parts_per_step));
