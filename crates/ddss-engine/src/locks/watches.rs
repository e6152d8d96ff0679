//! Watches: waits for a newer version of a segment or of a row, for a change of any row of a table, or for a change of the
//! names of the segments here.

use crate::config::Now;
use crate::requester::{ReplyFields, Requester};
use crate::state::lock_queue::Watcher;
use crate::state::output::Output;
use crate::state::segments::{Segment, Segments};
use ddss_core::{ANY_ROW, Failure, Limit, Outcome, SegmentId, Timestamp, Version};

/// Borrows the segments, whose queues have the watchers, and the output.
pub(crate) struct Watches<'a> {
    pub(crate) segments: &'a mut Segments,
    pub(crate) output: &'a mut Output,
}

/// Returns the field of an answer that names a changed row: one more than its number, or 0 if changes were missed.
fn timestamp_of_row(row: Option<u64>) -> Timestamp {
    Timestamp(row.map_or(0, |row| row + 1))
}

impl Watches<'_> {
    /// Keeps a watcher until its version or its deadline comes, or answers at once with a version that is already reached.
    pub(crate) fn watch(
        &mut self,
        id: SegmentId,
        watcher: Watcher,
        reached: Option<ReplyFields>,
    ) -> Result<(), Failure> {
        if let Some(fields) = reached {
            self.output.answer(watcher.requester, Outcome::Done, fields);
            return Ok(());
        }
        if self.segments.get(id).is_ok_and(Segment::is_replica) {
            // This node was the home when the record of the watched row was asked for. Changes come to the new home.
            return Err(Failure::NodeDown);
        }
        if !self.segments.watched(id).ok_or(Failure::NotFound)?.lock_queue.watch(watcher) {
            return Err(Failure::Busy(Limit::Waiters));
        }
        self.segments.mark_busy(id);
        Ok(())
    }

    /// Watches for the change of any row after the change of the number `watcher.above`. Changes that are recorded from now
    /// on have numbers above `first`.
    pub(crate) fn await_any_row(&mut self, id: SegmentId, watcher: Watcher, first: Version) -> Result<(), Failure> {
        let change = self.segments.row_change_after(id, watcher.above, first)?;
        let reached = change.map(|(version, row)| ReplyFields { version, timestamp: timestamp_of_row(row), word: 0 });
        self.watch(id, Watcher { row: ANY_ROW, ..watcher }, reached)
    }

    /// Watches for a change of the names after `watcher.above`. A watcher that learns of one asks for the list, which shows
    /// each user only the names that this user may know.
    pub(crate) fn await_names(&mut self, watcher: Watcher) -> Result<(), Failure> {
        let (id, version) = self.segments.names_version();
        let reached = self.segments.have_names_changed(watcher.above);
        self.watch(id, watcher, reached.then(|| ReplyFields::of((version, Timestamp(0)), 0)))
    }

    /// Reports to the watchers of names that a list may have changed: a segment was created, released or given to other
    /// users, or a node came or went.
    pub(crate) fn announce_names(&mut self) {
        self.segments.advance_names();
        let (id, version) = self.segments.names_version();
        self.notify(id, 0, version, Timestamp(0));
    }

    /// Answers the requester of a commit, and the watchers of what it has changed: a row of a table, or a plain segment.
    pub(crate) fn answer_change(
        &mut self,
        requester: Option<Requester>,
        id: SegmentId,
        row: Option<u64>,
        fields: ReplyFields,
    ) {
        let ReplyFields { version, timestamp, .. } = fields;
        if let Some(requester) = requester {
            self.output.answer(requester, Outcome::Done, fields);
        }
        self.notify(id, row.unwrap_or(0), version, timestamp);
        if let Some(row) = row
            && let Some(number) = self.segments.note_row_change(id, row)
        {
            self.notify(id, ANY_ROW, number, timestamp_of_row(Some(row)));
        }
    }

    fn notify(&mut self, id: SegmentId, row: u64, version: Version, timestamp: Timestamp) {
        while let Some(segment) = self.segments.watched(id)
            && let Some(watcher) = segment.lock_queue.next_satisfied_watcher(row, version)
        {
            self.output.answer(watcher.requester, Outcome::Done, ReplyFields { version, timestamp, word: 0 });
        }
    }

    /// Ends the watches whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Now, id: SegmentId) {
        while let Some(segment) = self.segments.watched(id)
            && let Some(watcher) = segment.lock_queue.next_expired_watcher(now.steady_us)
        {
            self.output.answer(watcher.requester, Outcome::Failed(Failure::TimedOut), ReplyFields::default());
        }
    }
}

#[cfg(test)]
mod tests;
