//! Events in the order of their time.

use std::collections::BTreeMap;

/// Events in the order of their time. Events of one time keep the order in which they were added.
#[derive(Clone, Debug)]
pub(crate) struct Agenda<E> {
    events: BTreeMap<(u64, u64), E>,
    added: u64,
    pub(crate) now_us: u64,
}

impl<E> Agenda<E> {
    pub(crate) fn new() -> Self {
        Self { events: BTreeMap::new(), added: 0, now_us: 0 }
    }

    /// Adds an event `after_us` from now.
    pub(crate) fn add(&mut self, after_us: u64, event: E) {
        self.add_at(self.now_us + after_us, event);
    }

    /// Adds an event at a time, which is not in the past.
    pub(crate) fn add_at(&mut self, at_us: u64, event: E) {
        assert!(at_us >= self.now_us, "an event at {at_us} is in the past of {}", self.now_us);
        self.events.insert((at_us, self.added), event);
        self.added += 1;
    }

    /// Takes the next event and moves the time to it.
    pub(crate) fn next(&mut self) -> Option<E> {
        let ((at_us, _), event) = self.events.pop_first()?;
        self.now_us = at_us;
        Some(event)
    }
}
