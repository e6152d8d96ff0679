//! Waits of threads that share their cores: spin, offer the core, take turns, sleep.
//!
//! Two cores hold a client, a progress thread and everything else, so spinning may keep out the thread whose reply it
//! awaits. This policy finds out by offering the core, and costs code; with a core for each thread
//! [`spin_then_park`](super::spin_then_park) does as well.

use std::time::Instant;

use rustix::thread::sched_yield;

use super::same_core::SameCore;
use super::time_slice::TimeSlice;
use crate::strategy::WaitClass;
use crate::transport::channel_transport::WaitOutcome;
use crate::transport::ring_ends::RingEnds;
use crate::wait::config::WAIT;

/// Adaptive waits of one channel.
pub(crate) struct AdaptiveWait {
    time_slice: TimeSlice,
    same_core: SameCore,
}

impl AdaptiveWait {
    pub(crate) fn new() -> Self {
        Self { time_slice: TimeSlice::new(), same_core: SameCore::default() }
    }

    /// Waits under `Rcq`: polls, unless the caller is on the service's core.
    pub(crate) fn wait_polling(&mut self, ends: &mut RingEnds, class: WaitClass, deadline: Instant) -> WaitOutcome {
        match class {
            // On the service's own core polling would keep out the service for the rest of a slice.
            WaitClass::Polling | WaitClass::LockQueue if ends.connection().shared_core().is_none() => {
                self.wait_spinning(ends, deadline)
            }
            WaitClass::Polling if self.yield_to_service(ends) => WaitOutcome::Ready,
            _ => ends.wait_parked(deadline),
        }
    }

    /// Waits under `Auto`: spins a bounded time, then parks.
    pub(crate) fn wait_bounded(&mut self, ends: &mut RingEnds, class: WaitClass, deadline: Instant) -> WaitOutcome {
        // On the service's own core the caller yields or sleeps, and never yields before a sleep if that is known. A
        // yield gives up its claim to the core, so the service could finish its slice, spinning included, before the
        // caller runs.
        let polls = match class {
            WaitClass::Polling => true,
            // A lock queue is long: the awaited lock comes after all other waiters.
            WaitClass::LockQueue => ends.connection().is_spinning_useful(),
            WaitClass::Sleeping => false,
        };
        if polls {
            let shared = ends.connection().shared_core();
            if shared.is_none() && ends.connection().is_fair() {
                self.share_core(ends);
            }
            if self.spin_bounded(ends, shared) {
                return WaitOutcome::Ready;
            }
        }
        ends.wait_parked(deadline)
    }

    fn wait_spinning(&mut self, ends: &mut RingEnds, deadline: Instant) -> WaitOutcome {
        // Most replies arrive before the clock is worth a read.
        if ends.poll_first() {
            return WaitOutcome::Ready;
        }
        let start = Instant::now();
        let (mut liveness_check, mut offer) = (start + WAIT.liveness_interval, start + WAIT.spin);
        loop {
            if ends.poll_ready(WAIT.polls_per_clock_read) {
                return WaitOutcome::Ready;
            }
            let now = Instant::now();
            if now >= deadline {
                return WaitOutcome::TimedOut;
            }
            if now >= offer {
                // An operation of this length may wait for a thread that waits for this core.
                if let Some(core) = ends.connection().shared_core() {
                    self.time_slice.leave_service_core(core, ends.connection().is_oversubscribed());
                    return ends.wait_parked(deadline);
                }
                // The thread on this core may spin as well: neither must keep the other out.
                if self.time_slice.offer_core(now, ends.connection().is_oversubscribed()).is_none() {
                    return ends.wait_parked(deadline);
                }
                offer = Instant::now() + WAIT.spin;
            }
            if now >= liveness_check {
                if !ends.connection().is_alive() {
                    return ends.poll_last();
                }
                liveness_check = now + WAIT.liveness_interval;
            }
        }
    }

    /// Yields when the turn is over, on an oversubscribed machine.
    #[inline]
    fn share_core(&mut self, ends: &mut RingEnds) {
        let connection = ends.connection();
        let has_short_calls = connection.has_short_calls();
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
    fn spin_bounded(&mut self, ends: &mut RingEnds, shared: Option<usize>) -> bool {
        if let Some(core) = shared {
            self.time_slice.leave_service_core(core, ends.connection().is_oversubscribed());
            return self.yield_to_service(ends);
        }
        if !ends.connection().is_spinning_useful() {
            return Self::spin_if_core_idle(ends);
        }
        // Most replies arrive before the clock is worth a read.
        if ends.poll_first() {
            return true;
        }
        let spin = if ends.connection().is_oversubscribed() { WAIT.spin_oversubscribed } else { WAIT.spin };
        let mut start = Instant::now();
        for _ in 0..WAIT.spins_max {
            while start.elapsed() < spin {
                if ends.poll_ready(WAIT.polls_per_clock_read) {
                    return true;
                }
            }
            let took = self.time_slice.offer_core(Instant::now(), ends.connection().is_oversubscribed());
            if ends.is_ready() {
                return true;
            }
            if took.is_none_or(|took| took > WAIT.idle_offer_max) {
                return false;
            }
            start = Instant::now();
        }
        false
    }

    /// Spins when many threads call and calls are long, if the core is idle otherwise: the other threads may sleep, in
    /// a lock queue for example. The core is yielded once. Further yields could lose far more than they give, since the
    /// scheduler may charge each as a whole slice.
    fn spin_if_core_idle(ends: &RingEnds) -> bool {
        let offered = Instant::now();
        sched_yield();
        let start = Instant::now();
        if ends.is_ready() || start.duration_since(offered) > WAIT.idle_offer_max {
            return ends.is_ready();
        }
        while start.elapsed() < WAIT.spin_oversubscribed {
            if ends.poll_ready(WAIT.polls_per_clock_read) {
                return true;
            }
        }
        false
    }

    /// Yields to the service on its own core, if both are alone there and the service is quick. Returns true if the
    /// reply has arrived.
    fn yield_to_service(&mut self, ends: &mut RingEnds) -> bool {
        if ends.is_ready() {
            return true;
        }
        if !ends.connection().is_alone_with_service() || !self.same_core.should_yield() {
            return false;
        }
        ends.announce_yield();
        let (mut ready, mut tries) = (false, true);
        let mut yields = 0;
        while tries && yields < WAIT.same_core_yields_max {
            let began = Instant::now();
            sched_yield();
            ready = ends.is_ready();
            tries = self.same_core.record_yield(began.elapsed(), ready);
            yields += 1;
        }
        if tries {
            self.same_core.record_failure();
        }
        ends.announce_awake();
        ready
    }
}
