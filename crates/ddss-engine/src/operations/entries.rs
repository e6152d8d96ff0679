//! Changes of a map's entries, which the home executes on one bucket.
//!
//! A bucket is a row, and its version covers all keys that belong there. The search and the commit are one step of the
//! progress thread, so no other change of the bucket comes between. The home does not follow links to other buckets. It
//! answers [`EntryState::Elsewhere`] where the entry may lie in another bucket, or finds no free slot; then the client
//! goes bucket by bucket, with puts on condition of the versions that it has read.

use crate::action::{CommitSource, RangeSet};
use crate::fault_injection::planted;
use crate::operations::handler::Operations;
use crate::requester::ReplyFields;
use crate::state::lock_queue::PendingOp;
use crate::state::pending::{PendingRecord, RecordOp};
use crate::state::segments::Segment;
use ddss_core::{
    BucketSearch, EntryChange, EntryChangeKind, EntryState, Failure, Outcome, Range, Ranges, Timestamp, Version,
};

impl Segment {
    /// Checks that a put with this change names one bucket of a map with such entries.
    pub(crate) fn check_entry_change(&self, parts: &RangeSet, change: EntryChange) -> Result<(), Failure> {
        let (table, layout) = (self.spec.layout().ok_or(Failure::Unsupported)?, change.layout()?);
        if layout.row_bytes() != self.spec.row_bytes as usize {
            return Err(Failure::Unsupported);
        }
        let RangeSet::One { offset, bytes } = *parts else { return Err(Failure::Malformed) };
        // Row 0 describes the map.
        let is_bucket = table.row_of(offset, 0).is_some_and(|row| row > 0 && table.bounds(row).0 == offset);
        if is_bucket && bytes == change.payload_bytes() { Ok(()) } else { Err(Failure::Malformed) }
    }
}

impl Operations<'_> {
    /// Changes the entry in the bucket where the search has found it, or a free slot for it.
    pub(crate) fn change_entry(
        &mut self,
        pending: &PendingRecord,
        (before, timestamp): (Version, Timestamp),
        (change, source): (EntryChange, CommitSource),
        (found, now_ms): (BucketSearch, u64),
    ) -> Result<(), Failure> {
        let is_live = found.entry.is_some_and(|(_, word)| !word.is_expired(now_ms));
        let entry = found.entry.filter(|_| !planted!(self.segments, EntryTwice));
        let is_expected = change.expected == found.digest || planted!(self.segments, ReplacedUnseen);
        let (state, slot) = match (entry, change.kind) {
            (Some(_), EntryChangeKind::Insert) if is_live => (EntryState::Present, None),
            (Some(_), EntryChangeKind::Replace | EntryChangeKind::Touch) if !is_live => (EntryState::Absent, None),
            (Some(_), EntryChangeKind::Replace) if !is_expected => (EntryState::Changed, None),
            (Some((slot, _)), _) => (if is_live { EntryState::Present } else { EntryState::Absent }, Some(slot)),
            (None, _) if found.is_linked => (EntryState::Elsewhere, None),
            (None, EntryChangeKind::Remove | EntryChangeKind::Replace | EntryChangeKind::Touch) => {
                (EntryState::Absent, None)
            }
            (None, _) if found.free.is_none() => (EntryState::Elsewhere, None),
            (None, _) => (EntryState::Absent, found.free),
        };
        let Some(slot) = slot else {
            self.drop_bytes(pending);
            let fields = ReplyFields { version: before, timestamp, word: state as u64 };
            self.output.answer(pending.requester, Outcome::Done, fields);
            return Ok(());
        };
        let layout = change.layout()?;
        let bucket = pending.row * layout.row_bytes() as u64;
        let (head, value) = (bucket + layout.head_at(slot) as u64, bucket + layout.value_at(slot) as u64);
        let put = match change {
            EntryChange { kind: EntryChangeKind::Remove, .. } => {
                (RangeSet::One { offset: head, bytes: 8 }, CommitSource::Word(0))
            }
            EntryChange { kind: EntryChangeKind::Touch, .. } | EntryChange { value_bytes: 0, .. } => {
                (RangeSet::One { offset: head, bytes: change.head_bytes() }, source)
            }
            EntryChange { value_bytes, .. } => {
                let head = Range { offset: head, bytes: change.head_bytes() };
                let ranges = Ranges::new([head, Range { offset: value, bytes: value_bytes }])?;
                (self.output.store_table(&ranges.encode(), change.payload_bytes()), source)
            }
        };
        let committed = self.commit_record(pending, before, put, state as u64);
        match committed {
            Ok(()) if change.kind == EntryChangeKind::Remove => self.drop_bytes(pending),
            Err(_) => self.output.free_table(&put.0),
            Ok(()) => {}
        }
        committed
    }

    /// Frees the bytes of a change that writes none of them.
    fn drop_bytes(&mut self, pending: &PendingRecord) {
        if let RecordOp::Call(PendingOp::Put { source: CommitSource::Buffer(buffer), .. }) = &pending.op {
            self.output.drop_buffer(buffer);
        }
    }
}
