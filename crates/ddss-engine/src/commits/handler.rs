//! Handler of commits. It gives a version its number and time, and emits the actions that write it.

use crate::action::{Action, CommitSource, RangeSet, SegmentCommit};
use crate::config::Now;
use crate::fault_injection::planted;
use crate::state::memory::uploads::{LargeCommit, Uploads};
use crate::state::output::Output;
use crate::state::replication::{RowCommit, SegmentChange};
use crate::state::segments::Segments;
use crate::uploads::memory::UploadMemory;
use ddss_core::{Failure, Header, HybridClock, SegmentId, Timestamp, Version};

/// Borrows the segments, which have the versions, and what a commit ends.
pub(crate) struct Commits<'a> {
    pub(crate) segments: &'a mut Segments,
    pub(crate) uploads: &'a mut Uploads,
    pub(crate) clock: &'a mut HybridClock,
    pub(crate) output: &'a mut Output,
}

impl Commits<'_> {
    /// Commits a change as the next version. Its table of ranges and its upload are free behind it.
    pub(crate) fn commit(
        &mut self,
        now: Now,
        id: SegmentId,
        change: &SegmentChange,
    ) -> Result<(Version, Timestamp), Failure> {
        let SegmentChange { parts, source, row, .. } = *change;
        let segment = self.segments.get(id)?;
        assert!(!segment.lock_queue.blocks_puts(), "a put that may not run now is queued");
        let (mut version, mut timestamp) = segment.next_stamp(self.clock, now.wall_us);
        if planted!(self.segments, StandingClock) {
            timestamp = segment.timestamp();
        }
        if planted!(self.segments, SkippedVersion) {
            version = segment.version();
        }
        self.output.counters.commits += 1;
        self.apply(id, (parts, row), source, (version, timestamp))?;
        if let CommitSource::Pool(at) = source {
            UploadMemory { segments: self.segments, uploads: self.uploads }.free_at(at);
        }
        Ok((version, timestamp))
    }

    /// Commits to a record of a table that has no version of its own, since it has and is no replica.
    pub(crate) fn commit_record(
        &mut self,
        now: Now,
        row: RowCommit,
        (parts, source): (RangeSet, CommitSource),
    ) -> Timestamp {
        let RowCommit { place, version, .. } = row;
        let timestamp = self.clock.next(now.wall_us);
        self.output.counters.commits += 1;
        self.output.push(Action::CommitRecord { place, parts, source, version, timestamp });
        self.output.free_table(&parts);
        timestamp
    }

    /// Applies a commit with a given version and timestamp.
    pub(crate) fn apply(
        &mut self,
        id: SegmentId,
        (parts, row): (RangeSet, Option<RowCommit>),
        source: CommitSource,
        stamp: (Version, Timestamp),
    ) -> Result<(), Failure> {
        let (version, timestamp) = stamp;
        let (stands, skips) = (planted!(self.segments, StandingClock), planted!(self.segments, SkippedVersion));
        let segment = self.segments.get_mut(id)?;
        if stands || skips {
            segment.start_over(stamp)
        } else {
            segment.advance(stamp)
        }
        let at = segment.at;
        if let Some(RowCommit { place, version: row_version, .. }) = row {
            // The row first: a daemon that dies between the two has a table that seems older than it is, and is copied
            // again.
            self.output.push(Action::CommitRecord { place, parts, source, version: row_version, timestamp });
            self.output.push(Action::WriteVersion { at, version, timestamp });
            return Ok(());
        }
        let history = segment.history_offset(version);
        segment.record_timestamp();
        let (state, bytes) = (Header::committed(version), segment.spec.bytes);
        self.output.push(Action::Commit(SegmentCommit { at, parts, source, version, timestamp }));
        if let Some(to) = history.filter(|_| !planted!(self.segments, HistoryLost)) {
            let (segment, timestamp) = (id.to_bits(), timestamp.0);
            self.output.push(Action::SaveVersion {
                at,
                to,
                header: Header { state, timestamp, segment, bytes, locked: 0 },
            });
        }
        Ok(())
    }

    /// Returns true if a change is written in slices.
    pub(crate) fn is_large(&self, change: &SegmentChange) -> bool {
        matches!(change.source, CommitSource::Pool(_)) && change.parts.bytes() > self.uploads.at_once_max
    }

    /// Begins the commit of an upload in slices.
    pub(crate) fn begin_large(&mut self, now: Now, id: SegmentId, change: &SegmentChange) -> Result<(), Failure> {
        let (requester, acknowledges) = (change.requester, None);
        let (CommitSource::Pool(from), RangeSet::One { offset, bytes }) = (change.source, change.parts) else {
            return Err(Failure::Malformed);
        };
        let (version, timestamp) = self.segments.get(id)?.next_stamp(self.clock, now.wall_us);
        let (is_drop_deferred, has_undo) = (false, false);
        self.start_large(
            id,
            LargeCommit {
                requester,
                offset,
                bytes,
                from,
                version,
                timestamp,
                acknowledges,
                is_drop_deferred,
                has_undo,
            },
        )
    }

    /// Starts a commit in slices: until its end all other operations on the segment wait.
    pub(crate) fn start_large(&mut self, id: SegmentId, commit: LargeCommit) -> Result<(), Failure> {
        let LargeCommit { offset, bytes, from, version, timestamp, has_undo, .. } = commit;
        let segment = self.segments.get_mut(id)?;
        let at = segment.at;
        segment.lock_queue.begin_commit();
        segment.set_large_commit(commit);
        self.segments.mark_busy(id);
        self.output.push(Action::CommitLarge { segment: id, at, offset, bytes, from, version, timestamp, has_undo });
        Ok(())
    }

    /// Ends a commit in slices: its bytes are in the segment, or there was no memory to undo it after a crash, and nothing
    /// has happened.
    pub(crate) fn end_large(&mut self, id: SegmentId, made: bool) -> Option<LargeCommit> {
        let segment = self.segments.get_mut(id).ok()?;
        let commit = segment.take_large_commit()?;
        assert!(made || !commit.has_undo, "a commit whose memory was reserved does not fail");
        segment.lock_queue.end_commit();
        if made {
            segment.advance((commit.version, commit.timestamp));
            self.output.counters.commits += 1;
        }
        UploadMemory { segments: self.segments, uploads: self.uploads }.free_at(commit.from);
        Some(commit)
    }
}

#[cfg(test)]
mod tests;
