//! Segments whose guards need time or a client's end to be noticed, and when time has something to do for one of them.

use super::segments::Segments;
use crate::SegmentId;

impl Segments {
    /// This segment's guard has to be looked after. When, the next look finds out.
    pub(crate) fn note_busy(&mut self, id: SegmentId) {
        self.due_us = 0;
        if let Ok(segment) = self.get_mut(id)
            && !std::mem::replace(&mut segment.noted_busy, true)
        {
            self.busy.push(id);
        }
    }

    /// Those whose guards have to be looked after, one after the other: more may come while they are gone through.
    pub(crate) fn busy(&self, index: usize) -> Option<SegmentId> {
        self.busy.get(index).copied()
    }

    /// Guards that need nothing any more are looked after no longer.
    pub(crate) fn forget_idle(&mut self) {
        let mut busy = std::mem::take(&mut self.busy);
        let mut due_us = u64::MAX;
        busy.retain(|&id| {
            let Ok(segment) = self.get_mut(id) else { return false };
            segment.noted_busy = !segment.guard.is_idle();
            if segment.noted_busy {
                // Whether this node may speak for a segment with a mirror changes with time.
                due_us = due_us.min(if segment.mirror.is_some() { 0 } else { segment.guard.due_us() });
            }
            segment.noted_busy
        });
        (self.busy, self.due_us) = (busy, due_us);
    }

    /// When time has something to do for one of those guards, on the steady clock.
    pub(crate) fn due_us(&self) -> u64 {
        self.due_us
    }
}
