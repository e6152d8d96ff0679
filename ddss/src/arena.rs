//! Who uses which slots of the arena: a few belong to each lane, the rest is shared by large transfers.

use ddss_core::ArenaRange;
use ddss_core::limits::ARENA_SLOT_BYTES;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

/// A run of slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) slots: u32,
}

impl Run {
    /// Bytes that fit.
    pub(crate) fn bytes(&self) -> usize {
        self.slots as usize * ARENA_SLOT_BYTES
    }

    /// Its first bytes, as a request names them.
    pub(crate) fn range(&self, bytes: usize) -> ArenaRange {
        debug_assert!(bytes <= self.bytes());
        ArenaRange { slot: self.first, bytes: bytes as u32 }
    }
}

/// The slots that belong to no lane.
#[derive(Debug)]
pub(crate) struct SharedSlots {
    free: Mutex<Vec<Run>>,
    given: Condvar,
}

impl SharedSlots {
    pub(crate) fn new(first: u32, end: u32) -> Self {
        let all = Run { first, slots: end.saturating_sub(first) };
        Self { free: Mutex::new(if all.slots > 0 { vec![all] } else { Vec::new() }), given: Condvar::new() }
    }

    /// Takes a run that holds so many bytes; waits for one until the deadline.
    pub(crate) fn take(&self, bytes: usize, deadline: Instant) -> Option<Run> {
        let wanted = bytes.div_ceil(ARENA_SLOT_BYTES) as u32;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(run) = free.iter_mut().find(|run| run.slots >= wanted) {
                let taken = Run { first: run.first, slots: wanted };
                (run.first, run.slots) = (run.first + wanted, run.slots - wanted);
                free.retain(|run| run.slots > 0);
                return Some(taken);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            (free, _) = self.given.wait_timeout(free, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives a run back.
    pub(crate) fn give(&self, run: Run) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let at = free.partition_point(|other| other.first < run.first);
        free.insert(at, run);
        free.dedup_by(|next, before| {
            let touch = before.first + before.slots == next.first;
            if touch {
                before.slots += next.slots;
            }
            touch
        });
        drop(free);
        self.given.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_do_not_overlap_and_grow_together_again() {
        // If this broke, two transfers would use the same bytes, or a long-lived client would run out of them.
        let slots = SharedSlots::new(4, 12);
        let now = Instant::now();
        let first = slots.take(ARENA_SLOT_BYTES * 3, now).unwrap();
        let second = slots.take(1, now).unwrap();
        let third = slots.take(ARENA_SLOT_BYTES * 4, now).unwrap();
        assert_eq!((first.first, second.first, third.first), (4, 7, 8));
        assert_eq!(slots.take(1, now), None);
        slots.give(first);
        slots.give(third);
        slots.give(second);
        assert_eq!(slots.take(ARENA_SLOT_BYTES * 8, now), Some(Run { first: 4, slots: 8 }));
    }
}
