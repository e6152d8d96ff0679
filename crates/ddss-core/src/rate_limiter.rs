//! A measured pace for each of those who come to a door: some at once, then one in a while.

use std::collections::VecDeque;
use std::time::Duration;

/// Who has had how many turns of late. Times are what has passed since some moment of the caller's.
///
/// ```
/// use std::time::Duration;
/// let mut pace = ddss_core::Pace::new(2, Duration::from_millis(10), 64);
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
    /// Somebody, and until when his turns are taken; who had one last stands last.
    taken: VecDeque<(K, Duration)>,
}

impl<K: PartialEq + Copy> RateLimiter<K> {
    /// `burst` turns ahead of the pace, then one `every` so often. Of so many it is known who had his turn; with more, the one
    /// is forgotten who had his longest ago.
    pub fn new(burst: u32, every: Duration, known_max: usize) -> Self {
        Self { burst: every * burst, every, known_max, taken: VecDeque::new() }
    }

    /// When it is somebody's turn: now, or later.
    pub fn turn_of(&self, who: K, now: Duration) -> Duration {
        let taken = self.taken.iter().find(|(other, _)| *other == who);
        taken.map_or(now, |(_, until)| until.saturating_sub(self.burst).max(now))
    }

    /// Somebody has had a turn.
    pub fn took_turn(&mut self, who: K, now: Duration) {
        let found = self.taken.iter().position(|(other, _)| *other == who);
        let until = found.and_then(|index| self.taken.remove(index)).map_or(now, |(_, until)| until.max(now));
        if self.taken.len() == self.known_max {
            self.taken.pop_front();
        }
        self.taken.push_back((who, until + self.every));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_burst_and_then_his_pace_and_nobody_waits_for_another() {
        // If this broke, one who comes again and again would be all that a door has time for, or those who come once would wait.
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
