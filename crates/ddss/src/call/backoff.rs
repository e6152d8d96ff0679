//! Backoff: delays between failed attempts.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Counts consecutive errors and computes the delay before the next attempt. The delay grows up to a bound and is
/// randomized between callers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    errors: u64,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(2);
    const DOUBLED_MAX: u64 = 7;

    /// Records the result of an attempt.
    pub(crate) fn note(&mut self, is_error: bool) {
        self.errors = if is_error { self.errors.saturating_add(1) } else { 0 };
    }

    /// Returns the number of errors since the last success.
    #[cfg(test)]
    const fn errors(&self) -> u64 {
        self.errors
    }

    /// Returns the delay before the next attempt if the last one failed: between half of and the full value of a delay
    /// from 2 ms to 256 ms.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let doubled = self.errors.checked_sub(1)?.min(Self::DOUBLED_MAX);
        let longest = Self::FIRST * (1 << doubled);
        let share = RandomState::new().build_hasher().finish() as u32;
        Some(longest / 2 + longest.mul_f64(f64::from(share) / f64::from(u32::MAX)) / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_delays_grow_to_a_bound_and_differ() {
        // If this broke, each watcher of a dead node would burn a core, or all would retry at once.
        let mut backoff = Backoff::default();
        assert_eq!((backoff.pause(), backoff.errors()), (None, 0));
        let mut longest = Backoff::FIRST;
        for errors in 1..100 {
            backoff.note(true);
            let pause = backoff.pause().unwrap();
            assert!(pause >= longest / 2 && pause <= longest, "{pause:?} after {errors} errors");
            assert_eq!(backoff.errors(), errors);
            longest = (longest * 2).min(Backoff::FIRST * (1 << Backoff::DOUBLED_MAX));
        }
        assert!((0..100).any(|_| backoff.pause() != backoff.pause()));
        backoff.note(false);
        assert_eq!((backoff.pause(), backoff.errors()), (None, 0));
    }
}
