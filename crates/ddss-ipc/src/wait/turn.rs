//! Turns of many callers: a caller whose replies come at once would never wait, and so keep its core for a scheduler's slice.
//!
//! With 32 callers on two cores a slice of 4 milliseconds for each is a call of 64 milliseconds for the last.

use std::time::Instant;

use super::config::WAIT;

/// Turn of one caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    began: Instant,
    /// Last read of the clock, and the calls since.
    read_at: Instant,
    calls: u32,
}

impl Turn {
    pub(crate) fn begin() -> Self {
        let now = Instant::now();
        Self { began: now, read_at: now, calls: 0 }
    }

    /// Records a call that did not wait. Returns true if the turn is over.
    #[inline]
    pub(crate) fn record_call(&mut self) -> bool {
        self.calls += 1;
        self.calls >= WAIT.calls_per_clock_read && self.is_over(Instant::now())
    }

    #[cold]
    fn is_over(&mut self, now: Instant) -> bool {
        if now - self.read_at >= WAIT.turn {
            // Others had the core meanwhile, or the caller computes, and the scheduler divides the core.
            self.began = now;
        }
        (self.read_at, self.calls) = (now, 0);
        now - self.began >= WAIT.turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_ends_only_for_a_caller_that_keeps_its_core() {
        // If this failed, one of many callers would wait for the slices of all others, or a computing one would yield.
        let mut turn = Turn::begin();
        let step = WAIT.turn / 4;
        assert!((1..4).all(|steps| !turn.is_over(turn.began + step * steps)));
        assert!(turn.is_over(turn.began + WAIT.turn));
        assert!(!turn.is_over(turn.read_at + WAIT.turn), "the caller was away for a whole turn");
        assert!(!turn.is_over(turn.began + step) && turn.is_over(turn.read_at + step * 3));
    }
}
