//! Timers for tasks. The reactor wakes them, so that the executor needs no timer.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

struct Pausing {
    number: u64,
    until: Instant,
    waker: Waker,
}

#[derive(Default)]
struct Inside {
    pausing: Vec<Pausing>,
    numbers: u64,
}

/// Pending timers of one client, one entry for each future.
#[derive(Default)]
pub(super) struct Pauses(Mutex<Inside>);

impl Pauses {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the expired timers. Returns the time of the next one.
    pub(super) fn turn(&self, now: Instant) -> Option<Instant> {
        let mut inside = self.inside();
        let over: Vec<Pausing> = inside.pausing.extract_if(.., |pausing| pausing.until <= now).collect();
        let next = inside.pausing.iter().map(|pausing| pausing.until).min();
        drop(inside);
        over.into_iter().for_each(|pausing| pausing.waker.wake());
        next
    }

    /// Adds a timer, or replaces the waker of one that was added before. Returns the number of a new one.
    pub(super) fn set(&self, number: Option<u64>, until: Instant, waker: &Waker) -> Option<u64> {
        let mut inside = self.inside();
        if let Some(mine) = inside.pausing.iter_mut().find(|pausing| Some(pausing.number) == number) {
            mine.waker.clone_from(waker);
            return None;
        }
        inside.numbers += 1;
        let number = inside.numbers;
        inside.pausing.push(Pausing { number, until, waker: waker.clone() });
        Some(number)
    }

    pub(super) fn remove(&self, number: u64) {
        self.inside().pausing.retain(|pausing| pausing.number != number);
    }
}
