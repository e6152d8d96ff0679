//! One thread's own road to the service and back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ddss_core::Entry;
use ddss_core::limits::RING_SLOTS;

use crate::attachment::Shared;
use crate::park::{self, Sleep};
use crate::ring::{Consumer, MappedRing, Producer};
use crate::strategy::{Strategy, WaitClass};
use crate::sync::order;
use crate::sys::MappedWord;

/// How long a client spins before it yields and parks, under `Auto`.
const SPIN: Duration = Duration::from_micros(8);
/// How many looks at the slot between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 32;
/// How long one sleep lasts at the most before the client looks whether the daemon is alive.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// How often a spinning client looks whether the daemon is alive.
const SPIN_ALIVE_EVERY: Duration = Duration::from_millis(5);

/// No more fits: reap first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the lane already has {} requests under way", RING_SLOTS)]
pub struct LaneFull;

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// [`Lane::reap`] has something.
    Ready,
    /// The deadline came first.
    TimedOut,
    /// The daemon is gone (or cut this client off), and nothing is left to reap.
    Gone,
}

/// What a lane keeps from one holder to the next.
pub(crate) struct LaneState {
    pub(crate) index: u8,
    pub(crate) requests: Producer<MappedRing>,
    pub(crate) completions: Consumer<MappedRing>,
    pub(crate) control: MappedWord,
    pub(crate) outstanding: usize,
    /// The service's sleep that this lane has rung for already.
    pub(crate) rung: u64,
}

impl LaneState {
    /// Throws away what an earlier holder left behind; true when nothing of it is under way any more.
    pub(crate) fn drain(&mut self) -> bool {
        while self.outstanding > 0 && self.completions.take().is_some() {
            self.outstanding -= 1;
        }
        self.outstanding == 0
    }
}

/// One thread's own road to the service and back: a ring of requests and a ring of completions.
///
/// A lane is handed out once ([`Attachment::take_lane`](crate::Attachment::take_lane)) and goes back when it is
/// dropped. At most `RING_SLOTS` requests are under way on it.
pub struct Lane {
    shared: Arc<Shared>,
    /// Only `None` while it is being dropped.
    state: Option<LaneState>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            park::awaken(&state.control);
            self.shared.give_back(state);
        }
    }
}

impl Lane {
    pub(crate) fn new(shared: Arc<Shared>, state: LaneState) -> Self {
        Self { shared, state: Some(state) }
    }

    #[inline(always)]
    fn state(&mut self) -> &mut LaneState {
        self.state.as_mut().expect("only drop takes the state")
    }

    #[inline(always)]
    fn state_ref(&self) -> &LaneState {
        self.state.as_ref().expect("only drop takes the state")
    }

    /// Which lane of its client.
    pub fn index(&self) -> u8 {
        self.state_ref().index
    }

    /// How many requests are under way: submitted and not reaped.
    pub fn outstanding(&self) -> usize {
        self.state_ref().outstanding
    }

    /// Publishes a request (the low half of word 0 is overwritten). The service may see it at once, but one that
    /// sleeps is only woken by [`ring`](Self::ring).
    #[inline]
    pub fn submit(&mut self, entry: Entry) -> Result<(), LaneFull> {
        let state = self.state();
        if state.outstanding == RING_SLOTS {
            return Err(LaneFull);
        }
        state.requests.publish(&entry);
        state.outstanding += 1;
        Ok(())
    }

    /// Wakes the service if it said that it sleeps. Call it once after the last of a batch of submits.
    #[inline]
    pub fn ring(&mut self) {
        order::before_ring();
        let rest = self.shared.board().rest();
        if rest != 0 && rest != self.state_ref().rung {
            self.state().rung = rest;
            self.shared.wake_service();
        }
    }

    /// Takes a completion, if one is there.
    #[inline]
    pub fn reap(&mut self) -> Option<Entry> {
        let state = self.state();
        if state.outstanding == 0 {
            return None;
        }
        let entry = state.completions.take()?;
        state.outstanding -= 1;
        Some(entry)
    }

    /// Whether [`reap`](Self::reap) has something.
    #[inline]
    pub fn is_ready(&self) -> bool {
        let state = self.state_ref();
        state.outstanding > 0 && state.completions.is_ready()
    }

    /// Waits for a completion the way that the client's strategy and the operation's class say.
    pub fn wait(&mut self, class: WaitClass, deadline: Instant) -> Waited {
        if self.is_ready() {
            return Waited::Ready;
        }
        match (self.shared.strategy(), class) {
            (Strategy::Rcq, WaitClass::Polling) => self.wait_spinning(deadline),
            (_, WaitClass::Polling) => {
                if self.spin_awhile() {
                    return Waited::Ready;
                }
                rustix::thread::sched_yield();
                self.wait_parked(deadline)
            }
            (_, WaitClass::Sleeping) => self.wait_parked(deadline),
        }
    }

    /// Says that a task waits for this lane: from now on a completion makes
    /// [`async_descriptor`](crate::Attachment::async_descriptor) readable. False when a completion is there already,
    /// and then nothing was said.
    pub fn arm_async(&mut self) -> bool {
        let outstanding = self.outstanding() > 0;
        let state = self.state_ref();
        !outstanding || park::announce(&state.control, &state.completions, Sleep::Socket)
    }

    /// Says that no task waits any more. The waiting task calls it when it runs again.
    pub fn disarm_async(&mut self) {
        park::awaken(&self.state_ref().control);
    }

    fn wait_spinning(&mut self, deadline: Instant) -> Waited {
        let mut look_alive = Instant::now() + SPIN_ALIVE_EVERY;
        loop {
            if self.looks_ready(LOOKS_PER_CLOCK) {
                return Waited::Ready;
            }
            let now = Instant::now();
            if now >= deadline {
                return Waited::TimedOut;
            }
            if now >= look_alive {
                if !self.shared.is_alive() {
                    return self.last_look();
                }
                look_alive = now + SPIN_ALIVE_EVERY;
            }
        }
    }

    /// Spins a bounded time, if that can pay.
    fn spin_awhile(&self) -> bool {
        if !self.shared.spinning_pays() {
            return self.is_ready();
        }
        let start = Instant::now();
        loop {
            if self.looks_ready(LOOKS_PER_CLOCK) {
                return true;
            }
            if start.elapsed() >= SPIN {
                return false;
            }
        }
    }

    #[inline(always)]
    fn looks_ready(&self, looks: u32) -> bool {
        for _ in 0..looks {
            if self.is_ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    fn wait_parked(&mut self, deadline: Instant) -> Waited {
        loop {
            if self.is_ready() {
                return Waited::Ready;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Waited::TimedOut;
            }
            if !self.park(left.min(SLEEP_MAX)) && !self.shared.is_alive() {
                return self.last_look();
            }
        }
    }

    /// Sleeps until the next completion or for that long. False when the time ran out.
    fn park(&mut self, duration: Duration) -> bool {
        use rustix::thread::futex;

        let state = self.state_ref();
        if !park::announce(&state.control, &state.completions, Sleep::Futex) {
            return true;
        }
        let position = state.completions.position();
        let word = state.completions.slots().sequence_word(position);
        let seen = word.load(std::sync::atomic::Ordering::Relaxed);
        let mut timed_out = false;
        if seen != state.completions.awaited() {
            let limit = crate::socket::timespec(duration);
            let slept = futex::wait(word, futex::Flags::empty(), seen, Some(&limit));
            timed_out = slept == Err(rustix::io::Errno::TIMEDOUT);
        }
        park::awaken(&state.control);
        !timed_out
    }

    /// The daemon is gone: what it published before it went still counts.
    fn last_look(&self) -> Waited {
        if self.is_ready() { Waited::Ready } else { Waited::Gone }
    }
}
