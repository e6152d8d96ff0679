//! Constants of the wait policy of a client, in one place.
//!
//! Two classes of machines matter. On a process with [`many_cores`](WaitConfig::many_cores) and fewer calling threads
//! than cores, each thread has a core: it spins, then sleeps, and only `spin_many_cores`, `polls_per_clock_read`, the
//! first-poll delay and the two safeguards apply. Everything else is for threads that share their cores, and was tuned
//! on virtual machines with two cores (`docs/notes/tuning.md`).

use std::time::Duration;

/// Constants of the wait policy. Each names its unit, its reason, and the machine class for which it was tuned.
pub(crate) struct WaitConfig {
    // Choice of the policy.
    /// Cores from which threads need not share: client, progress thread, and two for everything else.
    pub(crate) many_cores: u64,

    // Spinning, on any machine.
    /// Polls of the slot between two reads of the clock: a read takes as long as some ten polls.
    pub(crate) polls_per_clock_read: u32,
    /// Longest sleep before the client checks whether the daemon is alive. A safeguard.
    pub(crate) sleep_max: Duration,
    /// Interval at which a spinning client checks whether the daemon is alive: the check is a system call.
    pub(crate) liveness_interval: Duration,
    /// Spin of a client with a core of its own, before it sleeps. As long as the four spins of `auto` with few cores.
    pub(crate) spin_many_cores: Duration,

    // Delay before the first poll, on any machine: see `first_poll_delay`.
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

    // Spinning on a core that is wanted by others: few cores.
    /// Time that a client spins before it yields its core. A remote get over loopback takes about twice as long.
    pub(crate) spin: Duration,
    /// Spin time of a client of `Auto` on an oversubscribed machine, when operations are short. The client has waited
    /// long for its turn, a yield would lose the core, and a service with many channels may need some microseconds to
    /// find the request.
    pub(crate) spin_oversubscribed: Duration,
    /// Spins of a client of `Auto` before it parks, while no other thread takes its yields. Together they take as long
    /// as a wake-up on another core than the service's.
    pub(crate) spins_max: u32,
    /// Upper limit of a yield that no other thread takes.
    pub(crate) idle_offer_max: Duration,
    /// Upper limit of an operation's latency for spinning on an oversubscribed machine.
    pub(crate) latency_worth_spinning_ns: u64,

    // The service's own core, where only one of the two can run: few cores. See `same_core`.
    /// Maximum of yields in one wait.
    pub(crate) same_core_yields_max: u32,
    /// Time beyond which a reply is worth a sleep.
    pub(crate) quick_yield_max: Duration,
    /// Calls that sleep after a failed yield. Few, because one interrupt is enough to delay a reply, and each core has
    /// hundreds a second. Each further failure in a row doubles the number.
    pub(crate) backoff_calls: u32,
    /// Upper limit of that number.
    pub(crate) backoff_calls_max: u32,

    // Turns on an oversubscribed machine: see `time_slice`.
    /// Length of a turn. A yield costs 1 to 3 microseconds, so this gives away about two percent.
    pub(crate) turn: Duration,
    /// Shortest turn: shorter ones would give away too much.
    pub(crate) turn_min: Duration,
    /// Length of a turn for more than [`few_threads`](Self::few_threads) threads off the service's core. Their longest
    /// call takes about one round, and not two: they have the usual slices. For fewer threads it is a
    /// [`turn`](Self::turn): shorter turns gain nothing beside their slices.
    pub(crate) turn_many_off_core: Duration,
    /// Time until every thread of a core had a turn, unless turns would be too short. The longest call takes about
    /// twice as long.
    pub(crate) round: Duration,
    /// Scheduler slice, in nanoseconds, of threads that take turns off the service's core: about a turn.
    ///
    /// A thread that yields moves to the end of its slice. With the system's slices of milliseconds it pays for a turn
    /// like a thread that ran all that time, and gets less of the core beside threads that do not yield. Only where
    /// calls are short: clients that sleep and are woken would interrupt each other. And not where the service runs as
    /// well. A thread that comes from another core with a debt of a millisecond or two waits until all others have had
    /// as much. That takes longer the less each of them pays for its turns.
    pub(crate) slice_ns: u64,
    /// Maximum of threads with short slices, for the same reason.
    pub(crate) few_threads: u32,
    /// Calls between two reads of the clock: a read takes a tenth of a call.
    pub(crate) calls_per_clock_read: u32,
    /// Turns between two checks of the thread's affinity.
    pub(crate) turns_per_affinity_check: u32,
    /// Turn at whose end the first of these checks comes: by then the number of threads is known.
    pub(crate) first_affinity_check: u32,
    /// Longest time between two reads within a turn. After a longer one the caller did something else, or did not have
    /// the core.
    pub(crate) idle_gap: Duration,
    /// Duration of a yield beyond which the core went to a busy thread. The scheduler lets that thread run for a slice,
    /// so such a yield costs milliseconds where a sleep costs a wake-up.
    pub(crate) busy_offer_min: Duration,
    /// Pause without yields, as a multiple of such a yield's duration. Other threads may just have started, and sleep
    /// soon.
    pub(crate) busy_backoff: u32,
    /// Growth of the pause with each such yield in a row, until they do not show in the 99th percentile.
    pub(crate) busy_backoff_growth: u32,
    /// Longest pause.
    pub(crate) busy_backoff_max: Duration,
    /// Waits in a row on the service's core before a client leaves it: it may be there by chance, and move by itself.
    /// On an oversubscribed machine it leaves at the first.
    pub(crate) waits_on_service_core_max: u32,
    /// Shortest interval between two moves off the service's core, if the kernel keeps putting the client back.
    pub(crate) leave_interval: Duration,
}

/// The constants in use.
pub(crate) const WAIT: WaitConfig = WaitConfig {
    many_cores: 4,
    polls_per_clock_read: 32,
    sleep_max: Duration::from_millis(20),
    liveness_interval: Duration::from_millis(5),
    spin_many_cores: Duration::from_micros(32),
    early_parts: 16,
    on_time_parts: 1,
    parts_per_step: 8,
    delay_parts_max: 256 * 8,
    near_polls: 8,
    spin: Duration::from_micros(8),
    spin_oversubscribed: Duration::from_micros(32),
    spins_max: 4,
    idle_offer_max: Duration::from_nanos(900),
    latency_worth_spinning_ns: 2_000,
    same_core_yields_max: 8,
    quick_yield_max: Duration::from_micros(40),
    backoff_calls: 2,
    backoff_calls_max: 1024,
    turn: Duration::from_micros(100),
    turn_min: Duration::from_micros(30),
    turn_many_off_core: Duration::from_micros(150),
    round: Duration::from_millis(3),
    slice_ns: 100_000,
    few_threads: 64,
    calls_per_clock_read: 8,
    turns_per_affinity_check: 64,
    first_affinity_check: 2,
    idle_gap: Duration::from_micros(20 * 8),
    busy_offer_min: Duration::from_micros(500),
    busy_backoff: 8,
    busy_backoff_growth: 2,
    busy_backoff_max: Duration::from_millis(500),
    waits_on_service_core_max: 4,
    leave_interval: Duration::from_micros(100),
};

const _: () = assert!(WAIT.slice_ns as u128 == WAIT.turn.as_nanos(), "a slice is a turn");
const _: () = assert!(WAIT.delay_parts_max.is_multiple_of(WAIT.parts_per_step));
const _: () = assert!(
    WAIT.spin_many_cores.as_nanos() == WAIT.spin.as_nanos() * WAIT.spins_max as u128,
    "both policies spin equally long before they sleep"
);
