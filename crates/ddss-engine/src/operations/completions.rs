//! Completion of atomics and of operations on records, with the word or record that the daemon has read for them.

use crate::action::{CommitSource, RangeSet};
use crate::config::Now;
use crate::fault_injection::planted;
use crate::operations::handler::Operations;
use crate::requester::ReplyFields;
use crate::state::lock_queue::{PendingOp, Waiter};
use crate::state::pending::{PendingAtomic, PendingRecord, RecordOp};
use crate::state::replication::SegmentChange;
use ddss_core::{BucketSearch, Failure, Outcome, Timestamp, Version};

/// Content of a record that an operation asked for: a word of its row, or the result of a search in a bucket.
#[derive(Clone, Copy, Debug)]
enum RecordContent {
    Word(u64),
    Entry { found: Option<BucketSearch>, now_ms: u64 },
}

impl Operations<'_> {
    /// Completes an atomic with the word that [`Action::ReadWord`] asked for.
    pub(crate) fn word_read(&mut self, word: u64) {
        let PendingAtomic { now, segment: id, offset, change, waiter } = self.output.end_word_read();
        let Waiter { requester, deadline_us, .. } = waiter;
        let Ok(segment) = self.segments.get_mut(id) else {
            return self.output.answer(requester, Outcome::Failed(Failure::NotFound), ReplyFields::default());
        };
        segment.lock_queue.end_word_read();
        if segment.lock_queue.blocks_puts() {
            return self.submit_again(id, waiter);
        }
        let fields = ReplyFields::of(segment.stamp(), word);
        match change.apply(word) {
            Some(new) => {
                let (parts, source) = (RangeSet::One { offset, bytes: 8 }, CommitSource::Word(new));
                let asked = Some(requester);
                let change = SegmentChange { requester: asked, parts, source, row: None, word, deadline_us };
                if let Err(failure) = self.change(now, id, change) {
                    self.output.answer(requester, Outcome::Failed(failure), ReplyFields::default());
                }
            }
            None => self.output.answer(requester, Outcome::Done, fields),
        }
        self.serve_lock_queue(now, id);
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
}
