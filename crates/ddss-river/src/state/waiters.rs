//! Calls that wait for a change.

use std::task::Waker;
use std::time::Instant;

/// Calls that wait for a change or for their deadline.
#[derive(Debug, Default)]
pub(super) struct Waiters(Vec<(Waker, Instant)>);

impl Waiters {
    /// Adds a call. One that waits already keeps its place.
    pub(super) fn add(&mut self, waker: &Waker, deadline: Instant) {
        match self.0.iter_mut().find(|(other, _)| other.will_wake(waker)) {
            Some((_, earliest)) => *earliest = deadline.min(*earliest),
            None => self.0.push((waker.clone(), deadline)),
        }
    }

    /// Returns the earliest deadline.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.0.iter().map(|(_, deadline)| *deadline).min()
    }

    /// Takes all calls: each looks again, and waits again if it has to.
    pub(super) fn take(&mut self) -> Vec<(Waker, Instant)> {
        std::mem::take(&mut self.0)
    }
}
