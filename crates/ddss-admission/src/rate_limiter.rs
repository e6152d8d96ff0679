//! Rate limiter for each of many sources: a burst, then a steady rate.

use std::collections::VecDeque;
use std::time::Duration;

/// Recent events of each source, with a burst and a rate. Times are durations since an epoch of the caller.
///
/// ```
/// use std::time::Duration;
/// let mut pace = ddss_admission::RateLimiter::new(2, Duration::from_millis(10), 64);
/// let now = Duration::from_secs(1);
/// for _ in 0..3 {
///     assert_eq!(pace.turn_of("crowd", now), now);
///     pace.took_turn("crowd", now);
/// }
/// assert_eq!(pace.turn_of("crowd", now), now + Duration::from_millis(10));
/// assert_eq!(pace.turn_of("other", now), now);
/// ```
#[derive(Debug)]
pub struct RateLimiter<K> {
    burst: Duration,
    every: Duration,
    known_max: usize,
    /// Source and the end of its reserved time, the most recent one last.
    taken: VecDeque<(K, Duration)>,
}

impl<K: PartialEq + Copy> RateLimiter<K> {
    /// Makes a limiter that allows `burst` events at once and then one each `every`. It remembers at most `known_max`
    /// sources and forgets the least recent.
    pub fn new(burst: u32, every: Duration, known_max: usize) -> Self {
        Self { burst: every * burst, every, known_max, taken: VecDeque::new() }
    }

    /// Returns the earliest time of a source's next event: now, or later.
    pub fn turn_of(&self, principal: K, now: Duration) -> Duration {
        let taken = self.taken.iter().find(|(other, _)| *other == principal);
        taken.map_or(now, |(_, until)| until.saturating_sub(self.burst).max(now))
    }

    /// Records an event of a source.
    pub fn took_turn(&mut self, principal: K, now: Duration) {
        let found = self.taken.iter().position(|(other, _)| *other == principal);
        let until = found.and_then(|index| self.taken.remove(index)).map_or(now, |(_, until)| until.max(now));
        if self.taken.len() == self.known_max {
            self.taken.pop_front();
        }
        self.taken.push_back((principal, until + self.every));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_own_burst_and_rate() {
        // If this broke, one frequent source would use up all capacity, or occasional sources would wait.
        let (every, begin) = (Duration::from_millis(50), Duration::from_secs(9));
        let mut pace = RateLimiter::new(8, every, 256);
        for turn in 0..9 {
            assert_eq!(pace.turn_of(1, begin), begin, "turn {turn}");
            pace.took_turn(1, begin);
        }
        assert_eq!(pace.turn_of(1, begin), begin + every);
        assert_eq!(pace.turn_of(2, begin), begin);
        let later = begin + every * 9;
        assert_eq!(pace.turn_of(1, later), later);
        (1000..1256).for_each(|other| pace.took_turn(other, later));
        assert_eq!(pace.taken.len(), 256, "what is known is bounded");
    }
}
