//! Timers for tasks. The reactor wakes them, so that the executor needs no timer.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

/// Time of a timer, and its number.
pub(in crate::reactor) type Timer = (Instant, u64);

#[derive(Default)]
struct Inside {
    /// In order of time: thousands of tasks may wait for one home.
    pausing: BTreeMap<Timer, Waker>,
    numbers: u64,
}

/// Pending timers of one client, one entry for each future.
#[derive(Default)]
pub(in crate::reactor) struct Pauses(Mutex<Inside>);

impl Pauses {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the expired timers. Returns the time of the next one.
    pub(in crate::reactor) fn turn(&self, now: Instant) -> Option<Instant> {
        let mut inside = self.inside();
        let left = inside.pausing.split_off(&(now, u64::MAX));
        let over = std::mem::replace(&mut inside.pausing, left);
        let next = inside.pausing.first_key_value().map(|(&(until, _), _)| until);
        drop(inside);
        over.into_values().for_each(Waker::wake);
        next
    }

    /// Adds a timer, or replaces the waker of one that was added before. Returns a new one.
    pub(in crate::reactor) fn set(&self, timer: Option<Timer>, until: Instant, waker: &Waker) -> Option<Timer> {
        let mut inside = self.inside();
        if let Some(mine) = timer.and_then(|timer| inside.pausing.get_mut(&timer)) {
            mine.clone_from(waker);
            return None;
        }
        inside.numbers += 1;
        let timer = (until, inside.numbers);
        inside.pausing.insert(timer, waker.clone());
        Some(timer)
    }

    pub(in crate::reactor) fn remove(&self, timer: Timer) {
        self.inside().pausing.remove(&timer);
    }
}
