//! How many calls are in a state, on average over a time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Calls in one state, and the time that they have spent in it, all together.
#[derive(Debug)]
pub(crate) struct Occupancy(Mutex<Sum>);

#[derive(Debug)]
struct Sum {
    calls: u32,
    /// Time of the calls before `since`.
    spent: Duration,
    since: Instant,
}

impl Default for Occupancy {
    fn default() -> Self {
        Self(Mutex::new(Sum { calls: 0, spent: Duration::ZERO, since: Instant::now() }))
    }
}

/// A call in a state, until it is dropped.
#[derive(Debug)]
pub(crate) struct Stay<'o>(&'o Occupancy);

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Occupancy {
    /// Returns the sum, with the time up to now.
    fn sum(&self) -> MutexGuard<'_, Sum> {
        let mut sum = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let spent = now.saturating_duration_since(sum.since) * sum.calls;
        sum.spent += spent;
        sum.since = now;
        sum
    }

    /// Counts a call until the value is dropped.
    pub(crate) fn stay(&self) -> Stay<'_> {
        self.begin();
        Stay(self)
    }

    /// Counts a call until [`end`](Self::end).
    pub(crate) fn begin(&self) {
        self.sum().calls += 1;
    }

    /// Ends a call that has begun.
    pub(crate) fn end(&self) {
        let mut sum = self.sum();
        sum.calls = sum.calls.saturating_sub(1);
    }

    /// Takes the time that calls have spent since the last time it was taken, in thousandths of `time`: 1000 are one call all the time.
    pub(crate) fn take_milli(&self, time: Duration) -> u32 {
        let spent = std::mem::take(&mut self.sum().spent);
        u32::try_from(spent.as_micros() * 1000 / time.as_micros().max(1)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_count_as_long_as_they_stay() {
        // If this broke, `ddss river top` would show a process that waits as one that works.
        let (occupancy, begin) = (Occupancy::default(), Instant::now());
        occupancy.begin();
        let second = occupancy.stay();
        std::thread::sleep(Duration::from_millis(20));
        drop(second);
        // Both were there for 20 ms at least, and for the time since `begin` at most.
        let shortest = Duration::from_millis(20);
        let milli = occupancy.take_milli(shortest);
        let longest = begin.elapsed();
        assert!(milli >= 2000, "{milli}");
        assert!(u128::from(milli) <= 2000 * longest.as_micros() / shortest.as_micros() + 1, "{milli}");
        occupancy.end();
        occupancy.take_milli(shortest);
        assert_eq!(occupancy.take_milli(shortest), 0, "no call is left");
    }
}
