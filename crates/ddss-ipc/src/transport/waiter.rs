//! Waits of a client on a ring: spin, yield, sleep.

use std::time::{Duration, Instant};

use super::channel_transport::WaitOutcome;
use super::ring_ends::RingEnds;
use crate::strategy::WaitClass;
use crate::wait::back_off::BackOff;
use crate::wait::config::WAIT;
use crate::wait::service_core::ServiceCore;
use crate::wait::turn::Turn;

/// Waits of one channel.
pub(crate) struct Waiter {
    back_off: BackOff,
    /// The strategy is `Rcq`: the client yields instead of sleeping.
    is_polling: bool,
    /// Until then another thread computes on this core, and yields are left out.
    occupied_until: Option<Instant>,
    service_core: ServiceCore,
    turn: Turn,
}

impl Waiter {
    pub(crate) fn new(back_off: BackOff, is_polling: bool) -> Self {
        Self { back_off, is_polling, occupied_until: None, service_core: ServiceCore::default(), turn: Turn::begin() }
    }

    /// Waits for a completion.
    pub(crate) fn wait(&mut self, ends: &mut RingEnds, class: WaitClass, deadline: Instant) -> WaitOutcome {
        let BackOff { yield_after, sleep_after, sleep_max } = self.back_off;
        if class == WaitClass::Sleeping {
            return ends.wait_parked(deadline, sleep_max);
        }
        if ends.connection().is_on_service_core() {
            self.service_core.record_wait();
            return ends.wait_parked(deadline, sleep_max);
        }
        self.service_core.record_wait_elsewhere();
        // Most replies arrive before the clock is worth a read.
        if ends.poll_first() {
            if ends.connection().is_crowded() && self.turn.record_call() {
                self.yield_core(ends, Instant::now());
            }
            return WaitOutcome::Ready;
        }
        let start = Instant::now();
        let mut liveness_check = start + WAIT.liveness_interval;
        loop {
            if ends.poll_ready(WAIT.polls_per_clock_read) {
                return WaitOutcome::Ready;
            }
            let now = Instant::now();
            let waited = now - start;
            if now >= deadline || waited >= sleep_after && !self.is_polling {
                return ends.wait_parked(deadline, sleep_max);
            }
            if waited >= yield_after && !self.yield_core(ends, now) {
                return ends.wait_parked(deadline, sleep_max);
            }
            if now >= liveness_check {
                if !ends.connection().is_alive() {
                    return ends.poll_last();
                }
                liveness_check = now + WAIT.liveness_interval;
            }
        }
    }

    /// Yields the core. Returns false if the caller should sleep instead: on the service's core, or next to a thread
    /// that computes. The scheduler lets that thread run for a slice of milliseconds, but a woken thread runs first.
    fn yield_core(&mut self, ends: &RingEnds, now: Instant) -> bool {
        if self.occupied_until.is_some_and(|until| now < until) || ends.connection().is_on_service_core() {
            return false;
        }
        rustix::thread::sched_yield();
        self.turn = Turn::begin();
        if !ends.connection().is_crowded() {
            self.record_yield(now, now.elapsed());
        }
        true
    }

    /// Records a yield at `began` and its duration.
    fn record_yield(&mut self, began: Instant, took: Duration) {
        if took > WAIT.occupied_min {
            self.occupied_until = Some(began + took + took.min(WAIT.occupied_max) * WAIT.occupied_pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_yield_suppresses_yields_for_a_while() {
        // If this failed, a client next to a computing program would wait for a slice of milliseconds in each call.
        let mut waiter = Waiter::new(BackOff::for_cores(2), false);
        let now = Instant::now();
        waiter.record_yield(now, WAIT.occupied_min);
        assert_eq!(waiter.occupied_until, None, "a waiting thread gives the core back soon");
        let rest = |waiter: &Waiter| waiter.occupied_until.unwrap() - now;
        waiter.record_yield(now, Duration::from_millis(3));
        assert_eq!(rest(&waiter), Duration::from_millis(3) * (1 + WAIT.occupied_pause));
        waiter.record_yield(now, Duration::from_secs(10));
        assert_eq!(rest(&waiter), Duration::from_secs(10) + WAIT.occupied_max * WAIT.occupied_pause);
    }
}
