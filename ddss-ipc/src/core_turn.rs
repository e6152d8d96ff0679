//! A caller's turn on its core: when to hand it over, and how to stay out of the service's way.
//!
//! A client that is answered within its spin never sleeps, so the scheduler lets it run for its whole slice while others
//! that wait for the same core are not answered at all. And a client on the service's own core can only be answered by
//! taking turns with it. So: on a full machine a client yields after a short turn, and one that finds itself on the
//! service's core asks the kernel to be moved.

use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, sched_yield};

/// How long a turn is. A yield costs 1 to 3 microseconds, so this gives away about two percent.
const TURN: Duration = Duration::from_micros(100);
/// How long it is at the least: shorter ones would give away too much.
const TURN_MIN: Duration = Duration::from_micros(50);
/// How long it may take until everybody had a turn, on one core: the longest call is some two and a half times that.
const ROUND: Duration = Duration::from_millis(4);
/// The clock is looked at once in so many calls: reading it takes a tenth of a call.
const CALLS_PER_LOOK: u32 = 8;
/// A longer time than this between two looks was not a turn: the caller did something else, or did not have the core.
const GAP: Duration = Duration::from_micros(20 * CALLS_PER_LOOK as u64);
/// Waits in a row on the service's core before a client leaves it: it may be there by chance, and gone by itself. On a
/// full machine it leaves at the first.
const WAITS_ON_SERVICE_CORE_MAX: u32 = 4;
/// How often a client leaves the service's core at the most, if the kernel keeps putting it back.
const LEAVE_EVERY: Duration = Duration::from_micros(100);

/// One lane's view of its turn.
pub(crate) struct CoreTurn {
    began: Instant,
    last: Instant,
    calls: u32,
    left: Option<Instant>,
    waits_on_service_core: u32,
}

impl CoreTurn {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { began: now, last: now, calls: 0, left: None, waits_on_service_core: 0 }
    }

    /// Lets others run if the turn is over. So many threads call.
    #[inline]
    pub(crate) fn hand_over_when_due(&mut self, callers: u64) {
        self.calls = self.calls.wrapping_add(1);
        if !self.calls.is_multiple_of(CALLS_PER_LOOK) {
            return;
        }
        let now = Instant::now();
        if now - self.last > GAP {
            self.began = now;
        }
        self.last = now;
        if now - self.began >= turn(callers) {
            self.hand_over();
        }
    }

    /// Lets others run.
    pub(crate) fn hand_over(&mut self) {
        sched_yield();
        self.began = Instant::now();
        self.last = self.began;
    }

    /// The calling thread waits on the service's core: after some waits it leaves, if it may run elsewhere. Its
    /// affinity is as before when this returns; the kernel has only been made to pick another core.
    pub(crate) fn leave(&mut self, core: usize, crowded: bool) {
        self.waits_on_service_core += 1;
        if !crowded && self.waits_on_service_core < WAITS_ON_SERVICE_CORE_MAX {
            return;
        }
        self.waits_on_service_core = 0;
        let now = Instant::now();
        if self.left.is_some_and(|left| now - left < LEAVE_EVERY) {
            return;
        }
        self.left = Some(now);
        let Ok(allowed) = sched_getaffinity(None) else { return };
        let mut others: CpuSet = allowed;
        others.unset(core);
        if others.count() > 0 && sched_setaffinity(None, &others).is_ok() {
            // If it cannot be restored, the thread runs on: on fewer cores, but not on the service's.
            let _ = sched_setaffinity(None, &allowed);
        }
    }
}

/// The turn of each of so many callers.
fn turn(callers: u64) -> Duration {
    let callers = u32::try_from(callers).unwrap_or(u32::MAX).max(1);
    (ROUND / callers).clamp(TURN_MIN, TURN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_callers_have_short_turns() {
        // If this broke, a crowd would wait for long, or give its time away to yields.
        assert_eq!([1, 40, 50, 500].map(turn), [TURN, TURN, ROUND / 50, TURN_MIN]);
        assert_eq!((turn(0), turn(u64::MAX)), (TURN, TURN_MIN));
    }
}
