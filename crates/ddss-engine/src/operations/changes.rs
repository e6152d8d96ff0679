//! Changes of a segment or of a row of it: forwarded to a replica where there is one, else committed and answered.

use crate::action::{CommitSource, RangeSet};
use crate::config::Now;
use crate::operations::handler::Operations;
use crate::requester::{ReplyFields, Requester};
use crate::state::pending::PendingRecord;
use crate::state::replication::{RowCommit, SegmentChange};
use ddss_core::{Failure, SegmentId, Timestamp, Version};

impl Operations<'_> {
    /// Changes a segment that may have a replica. An error means that nothing happened.
    pub(crate) fn change(&mut self, now: Now, id: SegmentId, change: SegmentChange) -> Result<(), Failure> {
        let SegmentChange { requester, parts, row, word, .. } = change;
        let replication = self.segments.get(id)?.replication.as_deref();
        let (is_replicated, is_large) = (replication.is_some(), self.commits().is_large(&change));
        let needs_acknowledgement = is_replicated
            && self.segments.replication_of(id).is_some_and(|replication| replication.needs_acknowledgement());
        match (needs_acknowledgement, is_large) {
            (true, true) => return self.replication().forward_large(now, id, change),
            (true, false) => return self.replication().forward_put(now, id, change),
            (false, true) => return self.commits().begin_large(now, id, &change),
            (false, false) => {}
        }
        let stamp = self.commits().commit(now, id, &change)?;
        if is_replicated {
            self.replication().note_dirty(now, id, &parts, row);
        }
        self.output.free_table(&parts);
        self.answer_change(requester, id, row, stamp, word);
        Ok(())
    }

    /// Answers the requester of a commit, and the watchers of what it has changed.
    pub(crate) fn answer_change(
        &mut self,
        requester: Option<Requester>,
        id: SegmentId,
        row: Option<RowCommit>,
        (of_segment, timestamp): (Version, Timestamp),
        word: u64,
    ) {
        let version = row.map_or(of_segment, |commit| commit.version);
        let row = row.map(|commit| commit.row);
        self.watches().answer_change(requester, id, row, ReplyFields { version, timestamp, word });
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
