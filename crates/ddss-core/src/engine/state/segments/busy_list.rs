//! Segments that need attention on a tick: those with lock holders, waiters, watchers or blocks.

use crate::SegmentId;
use crate::engine::state::segments::Segments;

impl Segments {
    /// Adds a segment to those that need attention. The next tick finds out when.
    pub(crate) fn mark_busy(&mut self, id: SegmentId) {
        self.due_us = 0;
        if let Ok(segment) = self.get_mut(id)
            && !std::mem::replace(&mut segment.is_marked_busy, true)
        {
            self.busy.push(id);
        }
    }

    /// Returns the segment at that index; the list may grow during an iteration.
    pub(crate) fn busy(&self, index: usize) -> Option<SegmentId> {
        self.busy.get(index).copied()
    }

    /// Drops the segments that need no attention any more.
    pub(crate) fn forget_idle(&mut self) {
        let mut busy = std::mem::take(&mut self.busy);
        let mut due_us = u64::MAX;
        busy.retain(|&id| {
            let Ok(segment) = self.get_mut(id) else { return false };
            segment.is_marked_busy = !segment.lock_queue.is_idle();
            if segment.is_marked_busy {
                // The right to act as the home of a replicated segment changes with time.
                due_us = due_us.min(if segment.replication.is_some() { 0 } else { segment.lock_queue.due_us() });
            }
            segment.is_marked_busy
        });
        (self.busy, self.due_us) = (busy, due_us);
    }

    /// Returns when the next of these segments needs attention, on the steady clock.
    pub(crate) fn due_us(&self) -> u64 {
        self.due_us
    }
}
