//! Hybrid logical clock: as close to the wall clock as possible, and never the same value twice.

use crate::Timestamp;

/// Source of timestamps that grow with every call and exceed every timestamp received from other nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct HybridClock {
    last: u64,
}

impl HybridClock {
    /// Maximum lead of a peer's timestamp over the local wall clock before it is ignored: 10 s.
    pub const AHEAD_MAX_US: u64 = 10_000_000;

    /// Returns the next timestamp; `wall_us` is this node's wall clock.
    pub fn next(&mut self, wall_us: u64) -> Timestamp {
        self.last = (self.last + 1).max(wall_us << Timestamp::COUNTER_BITS);
        Timestamp(self.last)
    }

    /// Returns the newest timestamp that was given or received.
    pub fn last(&self) -> Timestamp {
        Timestamp(self.last)
    }

    /// Returns a timestamp that is neither older than the wall clock nor than any that was given or received.
    pub fn at(&self, wall_us: u64) -> Timestamp {
        Timestamp(self.last.max(wall_us << Timestamp::COUNTER_BITS))
    }

    /// Records a received timestamp, so that later ones here are greater.
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
    fn clock_is_strictly_monotonic() {
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
