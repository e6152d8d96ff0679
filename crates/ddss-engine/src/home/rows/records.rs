//! Operations on the records of a table whose home is this node.
//!
//! The versions of records are in the table's memory only, so each operation reads one first
//! ([`Action::ReadRecord`]). The decision follows at once: its actions come before all other actions that are due, so
//! no other operation runs between the read and the commit.

use crate::action::{Action, CommitSource, RangeSet};
use crate::config::Now;
use crate::fault_injection::planted;
use crate::home::handler::Home;
use crate::requester::{ReplyFields, Requester};
use crate::state::lock_queue::{PendingOp, Waiter, Watcher};
use crate::state::pending::{PendingRecord, RecordOp};
use crate::state::replication::{RowCommit, SegmentChange};
use crate::state::segments::Segment;
use ddss_core::{BucketSearch, Failure, Outcome, PutConditions, SegmentId, TableLayout, Timestamp, Version};

/// Content of a record that an operation asked for: a word of its row, or the result of a search in a bucket.
#[derive(Clone, Copy, Debug)]
enum RecordContent {
    Word(u64),
    Entry { found: Option<BucketSearch>, now_ms: u64 },
}

impl Home<'_> {
    /// Checks that ranges lie inside a segment, and inside one row of a table.
    pub(crate) fn check_parts(&self, segment: &Segment, parts: &RangeSet) -> Result<(), Failure> {
        self.output.check_parts(parts, segment.spec.bytes)?;
        segment.spec.layout().map_or(Ok(()), |layout| self.output.row_of(layout, segment.spec.bytes, parts).map(drop))
    }

    /// Reads the record of an operation that passed all other checks.
    pub(crate) fn begin_record_op(
        &mut self,
        now: Now,
        id: SegmentId,
        waiter: &Waiter,
        layout: TableLayout,
    ) -> Result<(), Failure> {
        let &Waiter { requester, op, .. } = waiter;
        let (parts, token, word) = match op {
            PendingOp::Get(get) => (get.parts, None, None),
            PendingOp::Put { parts, conditions, .. } => (parts, conditions.token, None),
            PendingOp::Atomic { offset, token, .. } => (RangeSet::One { offset, bytes: 8 }, token, Some(offset)),
            PendingOp::Lock(_) => return Err(Failure::Unsupported),
        };
        let row = self.output.row_of(layout, self.segments.get(id)?.spec.bytes, &parts)?;
        let conditions = PutConditions { token, ..PutConditions::default() };
        self.check_conditions(now, id, requester, conditions, Some(row))?;
        let segment = self.segments.get(id)?;
        let place = layout.record(row).of_segment(segment.at);
        let read = match op {
            PendingOp::Put { source, conditions: PutConditions { entry: Some(change), .. }, .. } => {
                let description = layout.record(0).of_segment(segment.at).data;
                Action::FindEntry { place, offset: layout.bounds(row).0, description, change, source }
            }
            _ => Action::ReadRecord { place, word },
        };
        let (op, changes) = (RecordOp::Call(op), !matches!(op, PendingOp::Get(_)));
        // A change of a replicated table may have to wait for the replica: no other begins before that is decided.
        let blocking = (changes && segment.replication.is_some()).then_some(*waiter);
        if blocking.is_some() {
            self.segments.get_mut(id)?.lock_queue.begin_word_read();
        }
        self.output.read_record(read, PendingRecord { now, segment: id, requester, row, place, op, blocking });
        Ok(())
    }

    /// Reads the record that a watcher asks for, since only the record has the row's version.
    pub(crate) fn begin_record_watch(
        &mut self,
        now: Now,
        id: SegmentId,
        (layout, offset): (TableLayout, u64),
        watcher: Watcher,
    ) -> Result<(), Failure> {
        let segment = self.segments.get(id)?;
        let row = self.output.row_of(layout, segment.spec.bytes, &RangeSet::One { offset, bytes: 0 })?;
        let place = layout.record(row).of_segment(segment.at);
        let (requester, op) = (watcher.requester, RecordOp::Watch(Watcher { row, ..watcher }));
        let pending = PendingRecord { now, segment: id, requester, row, place, op, blocking: None };
        self.output.read_record(Action::ReadRecord { place, word: None }, pending);
        Ok(())
    }

    /// Completes an operation with what [`Action::ReadRecord`] found.
    pub(crate) fn record_read(&mut self, state: u64, timestamp: Timestamp, word: u64) {
        self.complete_record_op(state, timestamp, RecordContent::Word(word));
    }

    /// Completes the change of an entry with what [`Action::FindEntry`] found.
    pub(crate) fn entry_found(&mut self, now: Now, state: u64, timestamp: Timestamp, found: Option<BucketSearch>) {
        let now_ms = now.wall_us / 1000;
        if let (Some(expiry_ms), Some(pending)) =
            (found.map(|found| found.expiry_ms).filter(|&expiry_ms| expiry_ms > 0), self.output.next_record_read())
        {
            self.segments.note_expiry(now, pending.segment, expiry_ms);
        }
        self.complete_record_op(state, timestamp, RecordContent::Entry { found, now_ms });
    }

    fn complete_record_op(&mut self, state: u64, timestamp: Timestamp, content: RecordContent) {
        let pending = self.output.end_record_read();
        if let Some(waiter) = pending.blocking
            && let Ok(segment) = self.segments.get_mut(pending.segment)
        {
            segment.lock_queue.end_word_read();
            if segment.lock_queue.blocks_puts() {
                return self.submit_again(pending.segment, waiter);
            }
        }
        let later = self.output.set_aside();
        if let Err(failure) = self.decide_record_op(&pending, state, timestamp, content) {
            match &pending.op {
                RecordOp::Call(op) => self.locks().free_buffers(op),
                RecordOp::Watch(_) => {}
                // Its requester never learns of the lock. If the segment is gone, so is the lock.
                RecordOp::Grant(token) => {
                    let _ = self.unlock_at_home(pending.now, pending.segment, *token, pending.requester.owner());
                }
            }
            self.output.answer(pending.requester, Outcome::Failed(failure), ReplyFields::default());
        }
        if let Some(later) = later {
            self.output.put_back(later);
        }
        if pending.blocking.is_some() {
            self.serve_lock_queue(pending.now, pending.segment);
        }
    }

    fn decide_record_op(
        &mut self,
        pending: &PendingRecord,
        state: u64,
        timestamp: Timestamp,
        content: RecordContent,
    ) -> Result<(), Failure> {
        let &PendingRecord { segment, requester, place, op, .. } = pending;
        self.segments.get(segment)?;
        if state & 1 != 0 {
            // Commits are complete before the next action, and recovery undoes the last one of a daemon that died.
            return Err(Failure::Damaged);
        }
        let version = Version(state >> 1);
        let op = match op {
            RecordOp::Call(op) => op,
            RecordOp::Watch(watcher) => {
                let reached = (version > watcher.above).then_some(ReplyFields { version, timestamp, word: 0 });
                return self.watches().watch(segment, watcher, reached);
            }
            RecordOp::Grant(token) => {
                self.output.answer(requester, Outcome::Done, ReplyFields { version, timestamp, word: token.0 });
                return Ok(());
            }
        };
        match op {
            PendingOp::Get(get) => match get.version {
                Some(wanted) if wanted > version => Err(Failure::VersionMismatch),
                Some(wanted) if wanted < version => Err(Failure::VersionGone),
                _ => self.deliver_get(requester, &get, place.data, (version, timestamp)),
            },
            PendingOp::Put { parts, source, conditions } => {
                if conditions.version.is_some_and(|named| named != version)
                    && !planted!(self.segments, UncheckedVersion)
                {
                    self.output.name_version(version);
                    return Err(Failure::VersionMismatch);
                }
                match (conditions.entry, content) {
                    (None, _) => self.commit_record(pending, version, (parts, source), 0)?,
                    (Some(change), RecordContent::Entry { found: Some(found), now_ms }) => {
                        self.change_entry(pending, (version, timestamp), (change, source), (found, now_ms))?;
                    }
                    (Some(_), _) => return Err(Failure::Malformed),
                }
                Ok(())
            }
            PendingOp::Atomic { offset, change, .. } => {
                let RecordContent::Word(word) = content else { return Err(Failure::Malformed) };
                match change.apply(word) {
                    Some(new) => {
                        let parts = RangeSet::One { offset, bytes: 8 };
                        self.commit_record(pending, version, (parts, CommitSource::Word(new)), word)?;
                    }
                    None => self.output.answer(requester, Outcome::Done, ReplyFields { version, timestamp, word }),
                }
                Ok(())
            }
            PendingOp::Lock(_) => Err(Failure::Unsupported),
        }
    }

    /// Commits to a record and answers the requester. An error means that nothing happened.
    pub(crate) fn commit_record(
        &mut self,
        pending: &PendingRecord,
        before: Version,
        change: (RangeSet, CommitSource),
        word: u64,
    ) -> Result<(), Failure> {
        let &PendingRecord { now, segment, requester, row, place, blocking, .. } = pending;
        let commit = RowCommit { row, place, version: Version(before.0 + 1) };
        let deadline_us = blocking.map(|waiter| waiter.deadline_us);
        self.commit_row(now, segment, commit, change, Some((requester, word)), deadline_us)
    }

    /// Commits to a record. A change of a table that may have a replica has a deadline. An error means that nothing happened.
    pub(crate) fn commit_row(
        &mut self,
        now: Now,
        segment: SegmentId,
        commit: RowCommit,
        (parts, source): (RangeSet, CommitSource),
        answer: Option<(Requester, u64)>,
        deadline_us: Option<u64>,
    ) -> Result<(), Failure> {
        let (requester, word) = (answer.map(|(requester, _)| requester), answer.map_or(0, |(_, word)| word));
        if let Some(deadline_us) = deadline_us {
            let row = Some(commit);
            return self.change(now, segment, SegmentChange { requester, parts, source, row, word, deadline_us });
        }
        let timestamp = self.commits().commit_record(now, commit, (parts, source));
        let RowCommit { row, version, .. } = commit;
        self.watches().answer_change(requester, segment, Some(row), ReplyFields { version, timestamp, word });
        Ok(())
    }
}
