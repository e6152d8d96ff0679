//! The hybrid logical clock: never behind the wall by more than it must, never the same value twice.

use crate::Timestamp;

/// Gives timestamps that grow with every call and with everything heard from other nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct HybridClock {
    last: u64,
}

impl HybridClock {
    /// How far ahead of our wall a peer's timestamp may be before we stop believing it: 10 s.
    pub const AHEAD_MAX_US: u64 = 10_000_000;

    /// The next timestamp; `wall_us` is what this node's clock says.
    pub fn next(&mut self, wall_us: u64) -> Timestamp {
        self.last = (self.last + 1).max(wall_us << Timestamp::COUNTER_BITS);
        Timestamp(self.last)
    }

    /// The newest that was given or heard.
    pub fn last(&self) -> Timestamp {
        Timestamp(self.last)
    }

    /// Takes note of a timestamp from elsewhere, so that what follows here is later.
    pub fn hear(&mut self, heard: Timestamp, wall_us: u64) {
        if heard.micros() <= wall_us.saturating_add(Self::AHEAD_MAX_US) {
            self.last = self.last.max(heard.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_stands_still_or_goes_back() {
        // If this broke, two puts could carry one timestamp, or a later put an earlier one.
        let mut clock = HybridClock::default();
        let first = clock.next(1000);
        let second = clock.next(1000);
        let third = clock.next(10);
        assert!(first < second && second < third);
        clock.hear(Timestamp(5000 << Timestamp::COUNTER_BITS), 10);
        assert!(clock.next(10).micros() >= 5000);
        clock.hear(Timestamp(u64::MAX), 10);
        assert!(clock.next(10).micros() < 6000);
    }
}
