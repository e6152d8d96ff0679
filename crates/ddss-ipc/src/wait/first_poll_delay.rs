//! Adaptive delay before a waiting client first polls its slot.
//!
//! Request and completion share a cache line. On many machines a read that finds a line changed in another core takes
//! it away from that core. A client that polls between the service's read and its answer takes the line away, and the
//! service has to fetch it back before it can write. That costs a whole transfer, some 95 of 230 nanoseconds. A client
//! that polls all the time always hits that moment when the service takes more than 10 nanoseconds. (Measured: the
//! round trip is a staircase. 10 to 80 nanoseconds of work in the service cost the same 95, and none of it if the first
//! poll comes late enough.)
//!
//! So a client delays its first poll, and learns the delay: a poll that is too early adds much to the next delay, one
//! that finds the reply subtracts little. Then some five in a hundred first polls are too early, and the others a few
//! nanoseconds late.

use std::hint::black_box;

use super::config::WAIT;

/// Delay of one channel.
#[derive(Debug, Default)]
pub(crate) struct FirstPollDelay {
    parts: u32,
}

impl FirstPollDelay {
    /// Waits for the delay. Later polls do not start before it ends.
    #[inline]
    pub(crate) fn wait_before_poll(&self) {
        let steps = self.parts / WAIT.parts_per_step;
        let mut step = 0;
        while step < steps {
            step = black_box(step + 1);
        }
        // Otherwise the processor would start to read ahead.
        crate::sys::end_all_before();
    }

    /// Adapts the delay to the poll that found the reply, counted from zero.
    #[inline]
    pub(crate) fn record_poll(&mut self, poll: u32) {
        if poll == 0 {
            self.parts = self.parts.saturating_sub(WAIT.on_time_parts);
        } else if poll < WAIT.near_polls {
            self.parts = (self.parts + WAIT.early_parts).min(WAIT.delay_parts_max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_converges_to_answer_time() {
        // If this failed, a client would wait longer than its replies take, or take the line away from the service in
        // each call.
        let mut first = FirstPollDelay::default();
        let mut early_in_a_thousand = |takes: u32| {
            let mut early = 0;
            for call in 0..11_000 {
                let too_early = first.parts / WAIT.parts_per_step < takes;
                early += u32::from(too_early && call >= 10_000);
                first.record_poll(u32::from(too_early));
            }
            early
        };
        for takes in [60, 200, 20] {
            let early = early_in_a_thousand(takes);
            assert!((30..100).contains(&early), "{early} of 1000 for {takes} steps");
        }
        assert!(first.parts / WAIT.parts_per_step <= 20 + WAIT.early_parts / WAIT.parts_per_step);
    }

    #[test]
    fn late_answer_does_not_change_delay() {
        // If this failed, one call to another node would delay the next local ones.
        let mut first = FirstPollDelay { parts: 100 };
        first.record_poll(WAIT.near_polls);
        assert_eq!(first.parts, 100);
        (0..10_000).for_each(|_| first.record_poll(1));
        assert_eq!(first.parts, WAIT.delay_parts_max);
    }
}
