//! `Rcq` and `Auto`: rings both ways. They differ in how the client waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ddss_core::Entry;
use rustix::thread::{futex, sched_yield};

use super::channel_transport::{ChannelTransport, WaitOutcome};
use crate::client::connection::Connection;
use crate::client::thread_tag::ThreadTag;
use crate::shm::layout::Layout;
use crate::shm::ring::{Consumer, Kind, Producer};
use crate::strategy::WaitClass;
use crate::sync::Ordering;
use crate::sys::{MappedRing, MappedWord, MemoryError, SharedMemory};
use crate::trace_sampling::{clock_ns, encode_stamp, is_sampled};
use crate::wait::first_poll_delay::FirstPollDelay;
use crate::wait::park;
use crate::wait::park::SleepMode;
use crate::wait::same_core::{SameCore, YIELDS_MAX};
use crate::wait::time_slice::TimeSlice;

/// Time that a client spins before it yields its core.
const SPIN: Duration = Duration::from_micros(8);
/// Spin time of a client of `Auto` on an oversubscribed machine, when operations are short. The client has waited long
/// for its turn, a yield would lose the core, and a service with many channels may need some microseconds to find the
/// request.
const SPIN_OVERSUBSCRIBED: Duration = Duration::from_micros(32);
/// Spins of a client of `Auto` before it parks, while no other thread takes its yields. Together they take as long as a
/// wake-up on another core than the service's.
const SPINS_MAX: u32 = 4;
/// Upper limit of a yield that no other thread takes.
const IDLE_OFFER_MAX: Duration = Duration::from_nanos(900);
/// Polls of the slot between two reads of the clock.
const POLLS_PER_CLOCK_READ: u32 = 32;
/// Longest sleep before the client checks whether the daemon is alive.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// Interval at which a spinning client checks whether the daemon is alive.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(5);

/// The client's ends of a channel's ring.
pub(crate) struct RingEnds {
    connection: Arc<Connection>,
    requests: Producer<MappedRing>,
    completions: Consumer<MappedRing>,
    control: MappedWord,
    stamp: MappedWord,
    thread_tag: ThreadTag,
    rung_for: u64,
    time_slice: TimeSlice,
    first_poll_delay: FirstPollDelay,
    same_core: SameCore,
}

impl RingEnds {
    pub(crate) fn new(
        connection: &Arc<Connection>,
        memory: &SharedMemory,
        layout: &Layout,
        channel: usize,
    ) -> Result<Self, MemoryError> {
        Ok(Self {
            connection: Arc::clone(connection),
            requests: Producer::new(memory.ring_at(layout.ring_offset(channel))?, Kind::Request, 0),
            completions: Consumer::new(memory.ring_at(layout.ring_offset(channel))?, Kind::Completion, 0),
            control: memory.word_at(layout.control_offset(channel))?,
            stamp: memory.word_at(layout.stamp_offset(channel))?,
            thread_tag: ThreadTag::new(memory, layout, channel)?,
            rung_for: 0,
            time_slice: TimeSlice::new(),
            first_poll_delay: FirstPollDelay::default(),
            same_core: SameCore::default(),
        })
    }

    fn wait_spinning(&mut self, deadline: Instant) -> WaitOutcome {
        // Most replies arrive before the clock is worth a read.
        if self.poll_first() {
            return WaitOutcome::Ready;
        }
        let start = Instant::now();
        let (mut liveness_check, mut offer) = (start + LIVENESS_INTERVAL, start + SPIN);
        loop {
            if self.poll_ready(POLLS_PER_CLOCK_READ) {
                return WaitOutcome::Ready;
            }
            let now = Instant::now();
            if now >= deadline {
                return WaitOutcome::TimedOut;
            }
            if now >= offer {
                // An operation of this length may wait for a thread that waits for this core.
                if let Some(core) = self.connection.shared_core() {
                    self.time_slice.leave_service_core(core, self.connection.is_oversubscribed());
                    return self.wait_parked(deadline);
                }
                // The thread on this core may spin as well: neither must keep the other out.
                if self.time_slice.offer_core(now, self.connection.is_oversubscribed()).is_none() {
                    return self.wait_parked(deadline);
                }
                offer = Instant::now() + SPIN;
            }
            if now >= liveness_check {
                if !self.connection.is_alive() {
                    return self.poll_last();
                }
                liveness_check = now + LIVENESS_INTERVAL;
            }
        }
    }

    /// Yields when the turn is over, on an oversubscribed machine.
    #[inline]
    fn share_core(&mut self) {
        let (connection, has_short_calls) = (&self.connection, self.connection.has_short_calls());
        let is_oversubscribed = connection.is_oversubscribed();
        if is_oversubscribed {
            self.time_slice.yield_when_due(
                connection.active_threads().recent,
                connection.service_core(),
                has_short_calls,
            );
        }
        if !(is_oversubscribed && has_short_calls) {
            self.time_slice.stop_sharing();
        }
    }

    /// Spins a bounded time, if that can pay. `shared` is the service's core, if the caller is on it.
    fn spin_bounded(&mut self, shared: Option<usize>) -> bool {
        if let Some(core) = shared {
            self.time_slice.leave_service_core(core, self.connection.is_oversubscribed());
            return self.yield_to_service();
        }
        if !self.connection.is_spinning_useful() {
            return self.spin_if_core_idle();
        }
        // Most replies arrive before the clock is worth a read.
        if self.poll_first() {
            return true;
        }
        let spin = if self.connection.is_oversubscribed() { SPIN_OVERSUBSCRIBED } else { SPIN };
        let mut start = Instant::now();
        for _ in 0..SPINS_MAX {
            while start.elapsed() < spin {
                if self.poll_ready(POLLS_PER_CLOCK_READ) {
                    return true;
                }
            }
            let took = self.time_slice.offer_core(Instant::now(), self.connection.is_oversubscribed());
            if self.completions.is_ready() {
                return true;
            }
            if took.is_none_or(|took| took > IDLE_OFFER_MAX) {
                return false;
            }
            start = Instant::now();
        }
        false
    }

    /// Spins when many threads call and calls are long, if the core is idle otherwise: the other threads may sleep, in
    /// a lock queue for example. The core is yielded once. Further yields could lose far more than they give, since the
    /// scheduler may charge each as a whole slice.
    fn spin_if_core_idle(&mut self) -> bool {
        let offered = Instant::now();
        sched_yield();
        let start = Instant::now();
        if self.completions.is_ready() || start.duration_since(offered) > IDLE_OFFER_MAX {
            return self.completions.is_ready();
        }
        while start.elapsed() < SPIN_OVERSUBSCRIBED {
            if self.poll_ready(POLLS_PER_CLOCK_READ) {
                return true;
            }
        }
        false
    }

    /// Polls right after a request. The first poll adapts the delay of the next call.
    #[inline(always)]
    fn poll_first(&mut self) -> bool {
        self.first_poll_delay.wait_before_poll();
        for poll in 0..POLLS_PER_CLOCK_READ {
            if self.completions.is_ready() {
                self.first_poll_delay.record_poll(poll);
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    #[inline(always)]
    fn poll_ready(&self, polls: u32) -> bool {
        for _ in 0..polls {
            if self.completions.is_ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// Yields to the service on its own core, if both are alone there and the service is quick. Returns true if the
    /// reply has arrived.
    fn yield_to_service(&mut self) -> bool {
        if self.completions.is_ready() {
            return true;
        }
        if !self.connection.is_alone_with_service() || !self.same_core.should_yield() {
            return false;
        }
        park::announce_yield(&self.control, self.completions.awaited());
        let (mut ready, mut tries) = (false, true);
        let mut yields = 0;
        while tries && yields < YIELDS_MAX {
            let began = Instant::now();
            sched_yield();
            ready = self.completions.is_ready();
            tries = self.same_core.record_yield(began.elapsed(), ready);
            yields += 1;
        }
        if tries {
            self.same_core.record_failure();
        }
        park::announce_awake(&self.control);
        ready
    }

    fn wait_parked(&mut self, deadline: Instant) -> WaitOutcome {
        loop {
            if self.completions.is_ready() {
                return WaitOutcome::Ready;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return WaitOutcome::TimedOut;
            }
            if !self.park(left.min(SLEEP_MAX)) && !self.connection.is_alive() {
                return self.poll_last();
            }
        }
    }

    /// Sleeps until the next completion, at most for that time. Returns false on time-out.
    fn park(&mut self, duration: Duration) -> bool {
        if !park::announce_sleep(&self.control, SleepMode::Futex, &mut self.completions) {
            return true;
        }
        let word = self.completions.slots().sequence_word(self.completions.awaited());
        let seen = word.load(Ordering::Relaxed);
        let mut timed_out = false;
        if seen != self.completions.awaited() {
            let limit = crate::socket::timespec(duration);
            let slept = futex::wait(word, futex::Flags::empty(), seen, Some(&limit));
            timed_out = slept == Err(rustix::io::Errno::TIMEDOUT);
        }
        park::announce_awake(&self.control);
        !timed_out
    }

    /// Polls once more after the end of the daemon: published completions still count.
    fn poll_last(&self) -> WaitOutcome {
        if self.completions.is_ready() { WaitOutcome::Ready } else { WaitOutcome::Gone }
    }
}

/// Both sides poll: no system call in the steady state, and a busy core while waiting.
pub(crate) struct Rcq(pub(crate) RingEnds);

/// Spins a bounded time, then parks.
pub(crate) struct Auto(pub(crate) RingEnds);

impl RingEnds {
    #[inline(always)]
    fn submit(&mut self, entry: &Entry) {
        let position = self.requests.count();
        if is_sampled(position) {
            // The Release of the request that follows publishes it.
            self.stamp.store(encode_stamp(position, clock_ns()), Ordering::Relaxed);
        }
        self.thread_tag.record_caller();
        self.requests.publish(entry);
    }

    #[inline(always)]
    fn ring_doorbell(&mut self) {
        self.connection.ring_doorbell(&mut self.rung_for);
    }

    fn arm_async(&mut self) -> bool {
        park::announce_sleep(&self.control, SleepMode::Socket, &mut self.completions)
    }
}

impl ChannelTransport for Rcq {
    fn submit(&mut self, entry: &Entry) {
        self.0.submit(entry);
    }

    fn ring_doorbell(&mut self) {
        self.0.ring_doorbell();
    }

    fn connection(&self) -> &Connection {
        &self.0.connection
    }

    fn take(&mut self) -> Option<Entry> {
        self.0.completions.take()
    }

    fn is_ready(&mut self) -> bool {
        self.0.completions.is_ready()
    }

    fn wait(&mut self, class: WaitClass, deadline: Instant) -> WaitOutcome {
        match class {
            // On the service's own core polling would keep out the service for the rest of a slice.
            WaitClass::Polling | WaitClass::LockQueue if self.0.connection.shared_core().is_none() => {
                self.0.wait_spinning(deadline)
            }
            WaitClass::Polling if self.0.yield_to_service() => WaitOutcome::Ready,
            _ => self.0.wait_parked(deadline),
        }
    }

    fn arm_async(&mut self) -> bool {
        self.0.arm_async()
    }

    fn disarm_async(&mut self) {
        park::announce_awake(&self.0.control);
    }
}

impl ChannelTransport for Auto {
    fn submit(&mut self, entry: &Entry) {
        self.0.submit(entry);
    }

    fn ring_doorbell(&mut self) {
        self.0.ring_doorbell();
    }

    fn connection(&self) -> &Connection {
        &self.0.connection
    }

    fn take(&mut self) -> Option<Entry> {
        self.0.completions.take()
    }

    fn is_ready(&mut self) -> bool {
        self.0.completions.is_ready()
    }

    fn wait(&mut self, class: WaitClass, deadline: Instant) -> WaitOutcome {
        // On the service's own core the caller yields or sleeps, and never yields before a sleep if that is known. A
        // yield gives up its claim to the core, so the service could finish its slice, spinning included, before the
        // caller runs.
        let polls = match class {
            WaitClass::Polling => true,
            // A lock queue is long: the awaited lock comes after all other waiters.
            WaitClass::LockQueue => self.0.connection.is_spinning_useful(),
            WaitClass::Sleeping => false,
        };
        if polls {
            let shared = self.0.connection.shared_core();
            if shared.is_none() && self.0.connection.is_fair() {
                self.0.share_core();
            }
            if self.0.spin_bounded(shared) {
                return WaitOutcome::Ready;
            }
        }
        self.0.wait_parked(deadline)
    }

    fn arm_async(&mut self) -> bool {
        self.0.arm_async()
    }

    fn disarm_async(&mut self) {
        park::announce_awake(&self.0.control);
    }
}
