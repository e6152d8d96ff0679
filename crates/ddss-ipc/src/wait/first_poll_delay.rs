//! When a client that waits looks at its slot for the first time.
//!
//! Request and completion share a line. On many machines a read that finds a line changed in another core takes it away
//! from there altogether; so a client that looks between the service's reading and its answering takes the line from
//! under the pen: the service has to fetch it back before it can write. That costs a whole transfer, some 95 of 230
//! nanoseconds, and a client that looks all the time always hits that moment when the answer takes the service more
//! than 10 nanoseconds. (Measured: the round trip is a staircase. 10 to 80 nanoseconds of work in the service cost the
//! same 95, and none of it if the first look comes late enough.)
//!
//! So a client keeps still for a while first, and learns for how long: a look that comes too early makes the next wait
//! longer by much, one that finds the answer makes it shorter by little. Then some five in a hundred first looks come
//! too early, and the others a few nanoseconds late.

use std::hint::black_box;

/// What a look that came too early adds, in parts of a step.
const EARLY: u32 = 16;
/// What a look in time takes off.
const IN_TIME: u32 = 1;
/// Parts of a step. A step is about two nanoseconds.
const PARTS: u32 = 8;
/// The longest that a client keeps still, some half a microsecond: what takes longer gains nothing by it.
const PARTS_MAX: u32 = 256 * PARTS;
/// Looks after which the answer was so far away that the first one says nothing about the next answer.
const LOOKS_NEAR: u32 = 8;

/// One lane's patience.
#[derive(Debug, Default)]
pub(crate) struct FirstPollDelay {
    parts: u32,
}

impl FirstPollDelay {
    /// Keeps still. The looks behind it do not start before it ends.
    #[inline]
    pub(crate) fn keep_still(&self) {
        let steps = self.parts / PARTS;
        let mut step = 0;
        while step < steps {
            step = black_box(step + 1);
        }
        // The processor would start to read ahead otherwise.
        crate::sys::end_all_before();
    }

    /// The answer was there at that look, counted from zero.
    #[inline]
    pub(crate) fn found_at(&mut self, look: u32) {
        if look == 0 {
            self.parts = self.parts.saturating_sub(IN_TIME);
        } else if look < LOOKS_NEAR {
            self.parts = (self.parts + EARLY).min(PARTS_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_settles_where_the_answers_come_and_follows_them() {
        // If this broke, a client would keep still for longer than its answers take, or take the line away from the
        // service in the middle of each call.
        let mut first = FirstPollDelay::default();
        let mut early_in_a_thousand = |takes: u32| {
            let mut early = 0;
            for call in 0..11_000 {
                let too_early = first.parts / PARTS < takes;
                early += u32::from(too_early && call >= 10_000);
                first.found_at(u32::from(too_early));
            }
            early
        };
        for takes in [60, 200, 20] {
            let early = early_in_a_thousand(takes);
            assert!((30..100).contains(&early), "{early} of 1000 for {takes} steps");
        }
        assert!(first.parts / PARTS <= 20 + EARLY / PARTS);
    }

    #[test]
    fn an_answer_that_is_far_away_changes_nothing() {
        // If this broke, one call to another node would make the next local ones late.
        let mut first = FirstPollDelay { parts: 100 };
        first.found_at(LOOKS_NEAR);
        assert_eq!(first.parts, 100);
        (0..10_000).for_each(|_| first.found_at(1));
        assert_eq!(first.parts, PARTS_MAX);
    }
}
