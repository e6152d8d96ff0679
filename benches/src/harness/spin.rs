//! Spin-waiting with a time limit.

use std::thread;
use std::time::{Duration, Instant};

/// Time limit for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Polls between two readings of the clock.
const LOOKS_PER_READING: u32 = 1 << 16;

/// A bounded wait. It panics at its time limit, because a figure without answers is worthless.
#[derive(Debug)]
pub struct Spinner {
    yields: bool,
    looks: u32,
    since: Option<Instant>,
}

impl Spinner {
    /// Creates a wait. If `yields`, it yields its core between two polls: if both sides share one core, the other side
    /// can only answer then.
    pub fn new(yields: bool) -> Spinner {
        Spinner { yields, looks: 0, since: None }
    }

    /// Pauses between two polls; panics at the time limit.
    pub fn again(&mut self) {
        if self.yields {
            thread::yield_now();
        }
        self.looks += 1;
        if self.looks == LOOKS_PER_READING {
            self.looks = 0;
            let since = *self.since.get_or_insert_with(Instant::now);
            assert!(since.elapsed() < ANSWER_MAX, "no answer within {ANSWER_MAX:?}");
        }
    }
}
