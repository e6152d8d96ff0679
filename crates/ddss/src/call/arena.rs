//! Slots of the arena: a few belong to each channel, large transfers share the rest.

use super::wait_queue::WaitQueue;
use crate::plan::priority::Priority;
use ddss_core::ArenaRange;
use ddss_core::limits::ARENA_SLOT_BYTES;
use ddss_ipc::lock_free::SlotBitmap;
use std::time::Instant;

/// A run of consecutive slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ArenaRun {
    pub(crate) first: u32,
    pub(crate) slots: u32,
}

impl ArenaRun {
    /// Returns the capacity in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.slots as usize * ARENA_SLOT_BYTES
    }

    /// Returns the range of a call that may have no run.
    pub(crate) fn range_of(run: Option<Self>, bytes: usize) -> ArenaRange {
        run.map_or(ArenaRange::NOWHERE, |run| run.range(bytes))
    }

    /// Returns the range of the first bytes, as a request encodes it.
    pub(crate) fn range(&self, bytes: usize) -> ArenaRange {
        debug_assert!(bytes <= self.bytes());
        ArenaRange { slot: self.first, bytes: bytes as u32 }
    }
}

/// Bytes that a call needs, and the fewer bytes that its part of the arena has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ArenaExceeded {
    pub(crate) bytes: usize,
    pub(crate) room: usize,
}

/// The slots that belong to no channel.
#[derive(Debug)]
pub(crate) struct SharedSlots {
    count: u32,
    slots: SlotBitmap,
    wait_queue: WaitQueue,
}

impl SharedSlots {
    pub(crate) fn new(first: u32, end: u32) -> Self {
        let count = end.saturating_sub(first);
        Self { count, slots: SlotBitmap::new(first, end), wait_queue: WaitQueue::default() }
    }

    /// Refuses a call that would wait for its run in vain, and let no other call pass.
    pub(crate) fn check(&self, bytes: usize) -> Result<(), ArenaExceeded> {
        let room = self.count as usize * ARENA_SLOT_BYTES;
        if bytes > room { Err(ArenaExceeded { bytes, room }) } else { Ok(()) }
    }

    /// Takes a run for `bytes` if one is free and no thread waits for one.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<ArenaRun> {
        if self.wait_queue.is_empty(Priority::Call) { self.take_free(bytes) } else { None }
    }

    fn take_free(&self, bytes: usize) -> Option<ArenaRun> {
        let slots = bytes.div_ceil(ARENA_SLOT_BYTES) as u32;
        self.slots.take(slots).map(|first| ArenaRun { first, slots })
    }

    /// Takes a run for `bytes`, and waits for one until the deadline.
    pub(crate) fn take(&self, bytes: usize, deadline: Instant) -> Option<ArenaRun> {
        self.try_take(bytes).or_else(|| self.wait_queue.wait(Priority::Call, deadline, || self.take_free(bytes)))
    }

    /// Returns a run.
    pub(crate) fn release(&self, run: ArenaRun) {
        self.slots.give(run.first, run.slots);
        self.wait_queue.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn waiter_takes_capacity_when_released() {
        // If this broke, large transfers of many threads would fail as busy although each of them is short.
        let slots = SharedSlots::new(4, 12);
        let soon = || Instant::now() + Duration::from_secs(60);
        let all = slots.take(ARENA_SLOT_BYTES * 8, soon()).unwrap();
        assert_eq!(slots.take(1, Instant::now()), None);
        std::thread::scope(|scope| {
            let waits: Vec<_> = (0..3).map(|_| scope.spawn(|| slots.take(ARENA_SLOT_BYTES * 2, soon()))).collect();
            std::thread::sleep(Duration::from_millis(5));
            slots.release(all);
            let mut firsts: Vec<u32> = waits.into_iter().map(|run| run.join().unwrap().unwrap().first).collect();
            firsts.sort_unstable();
            assert_eq!(firsts, [4, 6, 8]);
        });
        assert_eq!(slots.take(ARENA_SLOT_BYTES * 2, soon()), Some(ArenaRun { first: 10, slots: 2 }));
    }
}
