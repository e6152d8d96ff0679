//! Segments that need attention on a tick: those with lock holders, waiters, watchers or blocks.
//!
//! A tick visits the segments that are due. The rest cost it nothing, however many they are.

use crate::config::Now;
use crate::state::segments::Segments;
use crate::state::segments::schedule::Schedule;
use ddss_core::SegmentId;
use std::cmp::Reverse;

impl Segments {
    /// Entries of the schedule that a clean-up is worth, beside half of the busy segments.
    const CLEAN_UP_MIN: usize = 64;

    /// Adds a segment to those that need attention. The next tick finds out when.
    pub(crate) fn mark_busy(&mut self, id: SegmentId) {
        if let Some(watched) = self.watched(id) {
            let is_listed = std::mem::replace(watched.is_marked_busy, true);
            let is_due = std::mem::replace(watched.due_us, 0) == 0;
            if !is_listed {
                self.schedule.listed.push(id);
            }
            if !is_due {
                self.schedule.due.push(Reverse((0, id)));
                self.schedule.added += 1;
            }
        }
    }

    /// Returns the segment at that index; the list may grow during an iteration. Some may be idle again.
    pub(crate) fn busy(&self, index: usize) -> Option<SegmentId> {
        self.schedule.listed.get(index).copied()
    }

    /// Begins a tick: finds the segments that are due.
    pub(crate) fn find_due(&mut self, now_us: u64) {
        self.schedule.visited.clear();
        while let Some(&Reverse((due_us, id))) =
            self.schedule.due.peek().filter(|Reverse((due_us, _))| *due_us <= now_us)
        {
            self.schedule.due.pop();
            if let Some(watched) = self.watched(id)
                && *watched.due_us == due_us
            {
                *watched.due_us = u64::MAX;
                self.schedule.visited.push(id);
            }
        }
    }

    /// Returns the due segment at that index.
    pub(crate) fn due(&self, index: usize) -> Option<SegmentId> {
        self.schedule.visited.get(index).copied()
    }

    /// Ends the visit of a due segment: schedules its next one.
    pub(crate) fn schedule(&mut self, id: SegmentId) {
        let Some(watched) = self.watched(id) else { return };
        // The right to act as the home of a replicated segment changes with time.
        let due_us = match watched.is_replicated {
            _ if watched.lock_queue.is_idle() => u64::MAX,
            true => 0,
            false => watched.lock_queue.due_us(),
        };
        if due_us < *watched.due_us {
            *watched.due_us = due_us;
            self.schedule.due.push(Reverse((due_us, id)));
            self.schedule.added += 1;
        }
    }

    /// Drops the segments that need no attention any more, and outdated entries of the schedule.
    pub(crate) fn forget_idle(&mut self) {
        if self.schedule.added < self.schedule.listed.len() / 2 + Self::CLEAN_UP_MIN {
            return;
        }
        let (mut busy, mut due) = (std::mem::take(&mut self.schedule.listed), std::mem::take(&mut self.schedule.due));
        due.clear();
        busy.retain(|&id| {
            let Some(watched) = self.watched(id) else { return false };
            *watched.is_marked_busy = *watched.due_us != u64::MAX || !watched.lock_queue.is_idle();
            if *watched.due_us != u64::MAX {
                due.push(Reverse((*watched.due_us, id)));
            }
            *watched.is_marked_busy
        });
        self.schedule = Schedule { listed: busy, due, added: 0, visited: std::mem::take(&mut self.schedule.visited) };
    }

    /// Records that an entry of a map expires at that time.
    pub(crate) fn note_expiry(&mut self, now: Now, id: SegmentId, expiry_ms: u64) {
        if expiry_ms > 0 && self.get(id).is_ok_and(|segment| segment.spec.layout().is_some()) {
            self.sweeps.note_expiry(now, id, expiry_ms);
        }
    }

    /// Records that a table which this node has from another home, or from the daemon before, may be a map.
    pub(crate) fn note_unknown_expiry(&mut self, now: Now, id: SegmentId) {
        if self.get(id).is_ok_and(|segment| segment.spec.layout().is_some()) {
            self.sweeps.note_unknown(now, id);
        }
    }

    /// Returns when the next of these segments needs attention, on the steady clock.
    pub(crate) fn due_us(&self) -> u64 {
        self.schedule.due.peek().map_or(u64::MAX, |&Reverse((due_us, _))| due_us)
    }
}
