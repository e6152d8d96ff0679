//! Who uses which slots of the arena: a few belong to each lane, the rest is shared by large transfers.

use super::priority::Priority;
use super::wait_queue::WaitQueue;
use ddss_core::ArenaRange;
use ddss_core::limits::ARENA_SLOT_BYTES;
use ddss_ipc::SlotBitmap;
use std::time::Instant;

/// A run of slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ArenaRun {
    pub(crate) first: u32,
    pub(crate) slots: u32,
}

impl ArenaRun {
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
    slots: SlotBitmap,
    line: WaitQueue,
}

impl SharedSlots {
    pub(crate) fn new(first: u32, end: u32) -> Self {
        Self { slots: SlotBitmap::new(first, end), line: WaitQueue::default() }
    }

    /// Takes a run that holds so many bytes, if there is one and no thread waits for one.
    pub(crate) fn try_take(&self, bytes: usize) -> Option<ArenaRun> {
        if self.line.is_empty(Priority::Call) { self.look(bytes) } else { None }
    }

    fn look(&self, bytes: usize) -> Option<ArenaRun> {
        let slots = bytes.div_ceil(ARENA_SLOT_BYTES) as u32;
        self.slots.take(slots).map(|first| ArenaRun { first, slots })
    }

    /// Takes a run that holds so many bytes; waits for one until the deadline.
    pub(crate) fn take(&self, bytes: usize, deadline: Instant) -> Option<ArenaRun> {
        self.try_take(bytes).or_else(|| self.line.wait(Priority::Call, deadline, || self.look(bytes)))
    }

    /// Gives a run back.
    pub(crate) fn give(&self, run: ArenaRun) {
        self.slots.give(run.first, run.slots);
        self.line.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn who_waits_for_room_gets_it_when_somebody_leaves() {
        // If this broke, large transfers of many threads would end as busy although each of them is short.
        let slots = SharedSlots::new(4, 12);
        let soon = || Instant::now() + Duration::from_secs(60);
        let all = slots.take(ARENA_SLOT_BYTES * 8, soon()).unwrap();
        assert_eq!(slots.take(1, Instant::now()), None);
        std::thread::scope(|scope| {
            let waits: Vec<_> = (0..3).map(|_| scope.spawn(|| slots.take(ARENA_SLOT_BYTES * 2, soon()))).collect();
            std::thread::sleep(Duration::from_millis(5));
            slots.give(all);
            let mut firsts: Vec<u32> = waits.into_iter().map(|run| run.join().unwrap().unwrap().first).collect();
            firsts.sort_unstable();
            assert_eq!(firsts, [4, 6, 8]);
        });
        assert_eq!(slots.take(ARENA_SLOT_BYTES * 2, soon()), Some(ArenaRun { first: 10, slots: 2 }));
    }
}
