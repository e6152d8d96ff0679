//! `Rcq` and `Auto`: rings both ways. They differ in how the client waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ddss_core::Entry;
use rustix::thread::{futex, sched_yield};

use super::channel_transport::{ChannelTransport, WaitOutcome};
use crate::client::connection::Connection;
use crate::client::thread_tag::ThreadTag;
use crate::shm::layout::Layout;
use crate::shm::ring::{Consumer, Kind, MappedRing, Producer};
use crate::strategy::WaitClass;
use crate::sync::Ordering;
use crate::sys::{MappedWord, MemoryError, SharedMemory};
use crate::trace_sampling::{clock_ns, is_followed, stamp};
use crate::wait::first_poll_delay::FirstPollDelay;
use crate::wait::park;
use crate::wait::park::SleepMode;
use crate::wait::same_core::{SameCore, YIELDS_MAX};
use crate::wait::time_slice::TimeSlice;

/// How long a client spins before it offers its core to others.
const SPIN: Duration = Duration::from_micros(8);
/// The same for a client of `Auto` on a full machine, when operations are short: it has waited long for its turn on its
/// core, the offer would be taken, and a service that has many lanes to look at may need some microseconds to find it.
const SPIN_CROWDED: Duration = Duration::from_micros(32);
/// How often a client of `Auto` spins that long before it parks, as long as nobody takes what it offers. Together as
/// long as it takes to wake it up again on another core than the service's.
const SPINS_MAX: u32 = 4;
/// An offer that nobody takes is over sooner.
const ALONE_MAX: Duration = Duration::from_nanos(900);
/// How many looks at the slot between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 32;
/// How long one sleep lasts at the most before the client looks whether the daemon is alive.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// How often a spinning client looks whether the daemon is alive.
const SPIN_ALIVE_EVERY: Duration = Duration::from_millis(5);

/// The client's ends of a lane's ring.
pub(crate) struct RingEnds {
    link: Arc<Connection>,
    requests: Producer<MappedRing>,
    completions: Consumer<MappedRing>,
    control: MappedWord,
    stamp: MappedWord,
    caller: ThreadTag,
    rung: u64,
    turn: TimeSlice,
    first_look: FirstPollDelay,
    beside: SameCore,
}

impl RingEnds {
    pub(crate) fn new(
        link: &Arc<Connection>,
        memory: &SharedMemory,
        layout: &Layout,
        lane: usize,
    ) -> Result<Self, MemoryError> {
        Ok(Self {
            link: Arc::clone(link),
            requests: Producer::new(memory.ring_at(layout.ring(lane))?, Kind::Request, 0),
            completions: Consumer::new(memory.ring_at(layout.ring(lane))?, Kind::Completion, 0),
            control: memory.word_at(layout.control(lane))?,
            stamp: memory.word_at(layout.stamp(lane))?,
            caller: ThreadTag::new(memory, layout, lane)?,
            rung: 0,
            turn: TimeSlice::new(),
            first_look: FirstPollDelay::default(),
            beside: SameCore::default(),
        })
    }

    fn wait_spinning(&mut self, deadline: Instant) -> WaitOutcome {
        // Most answers come before the clock is worth a look.
        if self.looks_first() {
            return WaitOutcome::Ready;
        }
        let start = Instant::now();
        let (mut look_alive, mut offer) = (start + SPIN_ALIVE_EVERY, start + SPIN);
        loop {
            if self.looks_ready(LOOKS_PER_CLOCK) {
                return WaitOutcome::Ready;
            }
            let now = Instant::now();
            if now >= deadline {
                return WaitOutcome::TimedOut;
            }
            if now >= offer {
                // An operation that takes so long may wait for somebody who waits for this core.
                if let Some(core) = self.link.shared_core() {
                    self.turn.leave(core, self.link.is_crowded());
                    return self.wait_parked(deadline);
                }
                // Who works on this core may be another one that spins: neither must keep the other out.
                if self.turn.offer(now, self.link.is_crowded()).is_none() {
                    return self.wait_parked(deadline);
                }
                offer = Instant::now() + SPIN;
            }
            if now >= look_alive {
                if !self.link.is_alive() {
                    return self.last_look();
                }
                look_alive = now + SPIN_ALIVE_EVERY;
            }
        }
    }

    /// In a crowd: lets others run if the caller's turn is over.
    #[inline]
    fn take_turns(&mut self) {
        let (link, are_short) = (&self.link, self.link.calls_are_short());
        let crowded = link.is_crowded();
        if crowded {
            self.turn.hand_over_when_due(link.present().crowd, link.service_core(), are_short);
        }
        if !(crowded && are_short) {
            self.turn.end_turns();
        }
    }

    /// Spins a bounded time, if that can pay. `shared` is the service's core, if the caller is on it.
    fn spin_awhile(&mut self, shared: Option<usize>) -> bool {
        if let Some(core) = shared {
            self.turn.leave(core, self.link.is_crowded());
            return self.give_way();
        }
        if !self.link.spinning_pays() {
            return self.spin_unwanted();
        }
        // Most answers come before the clock is worth a look.
        if self.looks_first() {
            return true;
        }
        let spin = if self.link.is_crowded() { SPIN_CROWDED } else { SPIN };
        let mut start = Instant::now();
        for _ in 0..SPINS_MAX {
            while start.elapsed() < spin {
                if self.looks_ready(LOOKS_PER_CLOCK) {
                    return true;
                }
            }
            let took = self.turn.offer(Instant::now(), self.link.is_crowded());
            if self.completions.is_ready() {
                return true;
            }
            if took.is_none_or(|took| took > ALONE_MAX) {
                return false;
            }
            start = Instant::now();
        }
        false
    }

    /// Spins where many call and each call takes long, if nobody wants the core: the others may be asleep, in a line for a lock
    /// say. The core is offered once. Who goes on offering it can lose far more than it gave: each offer may be charged as a
    /// whole slice, whether somebody takes it or not.
    fn spin_unwanted(&mut self) -> bool {
        let offered = Instant::now();
        sched_yield();
        let start = Instant::now();
        if self.completions.is_ready() || start.duration_since(offered) > ALONE_MAX {
            return self.completions.is_ready();
        }
        while start.elapsed() < SPIN_CROWDED {
            if self.looks_ready(LOOKS_PER_CLOCK) {
                return true;
            }
        }
        false
    }

    /// The looks after a request, of which the first one decides how long the next call keeps still.
    #[inline(always)]
    fn looks_first(&mut self) -> bool {
        self.first_look.keep_still();
        for look in 0..LOOKS_PER_CLOCK {
            if self.completions.is_ready() {
                self.first_look.found_at(look);
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    #[inline(always)]
    fn looks_ready(&self, looks: u32) -> bool {
        for _ in 0..looks {
            if self.completions.is_ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// On the service's own core: yields to it, if both are alone there and it is quick. Whether the answer is there.
    fn give_way(&mut self) -> bool {
        if self.completions.is_ready() {
            return true;
        }
        if !self.link.is_alone_with_service() || !self.beside.pays() {
            return false;
        }
        park::wait_beside(&self.control, self.completions.awaited());
        let (mut ready, mut tries) = (false, true);
        let mut yields = 0;
        while tries && yields < YIELDS_MAX {
            let began = Instant::now();
            sched_yield();
            ready = self.completions.is_ready();
            tries = self.beside.yielded(began.elapsed(), ready);
            yields += 1;
        }
        if tries {
            self.beside.was_in_vain();
        }
        park::awaken(&self.control);
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
            if !self.park(left.min(SLEEP_MAX)) && !self.link.is_alive() {
                return self.last_look();
            }
        }
    }

    /// Sleeps until the next completion or for that long. False when the time ran out.
    fn park(&mut self, duration: Duration) -> bool {
        if !park::announce(&self.control, SleepMode::Futex, &mut self.completions) {
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
        park::awaken(&self.control);
        !timed_out
    }

    /// The daemon is gone: what it published before it went still counts.
    fn last_look(&self) -> WaitOutcome {
        if self.completions.is_ready() { WaitOutcome::Ready } else { WaitOutcome::Gone }
    }
}

/// Both sides poll: no system call in the steady state, a core busy while it waits.
pub(crate) struct Rcq(pub(crate) RingEnds);

/// Spins a bounded time, then parks.
pub(crate) struct Auto(pub(crate) RingEnds);

impl RingEnds {
    #[inline(always)]
    fn submit(&mut self, entry: &Entry) {
        let position = self.requests.count();
        if is_followed(position) {
            // The request behind it makes it seen.
            self.stamp.store(stamp(position, clock_ns()), Ordering::Relaxed);
        }
        self.caller.tell();
        self.requests.publish(entry);
    }

    #[inline(always)]
    fn ring(&mut self) {
        self.link.ring(&mut self.rung);
    }

    fn arm_async(&mut self) -> bool {
        park::announce(&self.control, SleepMode::Socket, &mut self.completions)
    }
}

impl ChannelTransport for Rcq {
    fn submit(&mut self, entry: &Entry) {
        self.0.submit(entry);
    }

    fn ring(&mut self) {
        self.0.ring();
    }

    fn link(&self) -> &Connection {
        &self.0.link
    }

    fn take(&mut self) -> Option<Entry> {
        self.0.completions.take()
    }

    fn is_ready(&mut self) -> bool {
        self.0.completions.is_ready()
    }

    fn wait(&mut self, class: WaitClass, deadline: Instant) -> WaitOutcome {
        match class {
            // On the service's own core polling would keep out who is to answer, for the rest of a slice.
            WaitClass::Polling | WaitClass::InLine if self.0.link.shared_core().is_none() => {
                self.0.wait_spinning(deadline)
            }
            WaitClass::Polling if self.0.give_way() => WaitOutcome::Ready,
            _ => self.0.wait_parked(deadline),
        }
    }

    fn arm_async(&mut self) -> bool {
        self.0.arm_async()
    }

    fn disarm_async(&mut self) {
        park::awaken(&self.0.control);
    }
}

impl ChannelTransport for Auto {
    fn submit(&mut self, entry: &Entry) {
        self.0.submit(entry);
    }

    fn ring(&mut self) {
        self.0.ring();
    }

    fn link(&self) -> &Connection {
        &self.0.link
    }

    fn take(&mut self) -> Option<Entry> {
        self.0.completions.take()
    }

    fn is_ready(&mut self) -> bool {
        self.0.completions.is_ready()
    }

    fn wait(&mut self, class: WaitClass, deadline: Instant) -> WaitOutcome {
        // On the service's own core the caller yields or sleeps, and never one before the other where that is known: a yield
        // costs it its claim to the core, so the service could finish its slice, spinning and all, before the caller runs.
        let polls = match class {
            WaitClass::Polling => true,
            // The others in line are many: what this one waits for comes after all of them.
            WaitClass::InLine => self.0.link.spinning_pays(),
            WaitClass::Sleeping => false,
        };
        if polls {
            let shared = self.0.link.shared_core();
            if shared.is_none() && self.0.link.is_fair() {
                self.0.take_turns();
            }
            if self.0.spin_awhile(shared) {
                return WaitOutcome::Ready;
            }
        }
        self.0.wait_parked(deadline)
    }

    fn arm_async(&mut self) -> bool {
        self.0.arm_async()
    }

    fn disarm_async(&mut self) {
        park::awaken(&self.0.control);
    }
}
