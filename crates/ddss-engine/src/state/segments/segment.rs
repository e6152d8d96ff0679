//! State of one segment.

use crate::requester::Requester;
use crate::state::lock_queue::LockQueue;
use crate::state::memory::uploads::LargeCommit;
use crate::state::replication::{ReplicatedSegment, Role};
use crate::state::segments::row_changes::RowChanges;
use ddss_core::{Failure, Header, Name, NodeId, Permissions, Record, SegmentId, SegmentInfo, Spec, Timestamp, Version};
use std::sync::Arc;

/// One segment at home here, or a replica.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Global id; the index in it may differ from the slot here.
    pub(crate) id: SegmentId,
    /// Its name, shared with the index of names.
    pub(super) text: Arc<str>,
    pub(crate) spec: Spec,
    pub(crate) permissions: Permissions,
    /// Pool offset of its header.
    pub(crate) at: u64,
    pub(super) version: Version,
    pub(super) timestamp: Timestamp,
    /// Lock and waiters.
    pub(crate) lock_queue: LockQueue,
    /// Listed among the segments that need attention on a tick.
    pub(super) is_marked_busy: bool,
    /// When it needs attention; `u64::MAX` if time alone changes nothing.
    pub(super) due_us: u64,
    /// Replication state, if it has or is a replica.
    pub(crate) replication: Option<Box<ReplicatedSegment>>,
    /// State that most segments never have.
    rare: Option<Box<RareState>>,
}

/// State of a segment that most segments never have, so that a small one costs little memory.
#[derive(Debug)]
pub(super) struct RareState {
    /// Peers with a window over it.
    pub(super) window_holders: Vec<NodeId>,
    /// Timestamps of the versions in the history; empty without a history.
    pub(super) history_timestamps: Vec<Timestamp>,
    /// Oldest version of the history that can be read: the rest went with the daemon's previous run.
    pub(super) oldest: Version,
    /// Requester of its creation, until its memory is there.
    pub(super) forming: Option<Requester>,
    /// New place, new permissions and requester of a move in progress.
    pub(super) pending_move: Option<(u64, Permissions, Requester)>,
    /// Large value that the daemon writes.
    pub(super) large_commit: Option<LargeCommit>,
    /// Newest changes of its rows, while watchers of all rows exist.
    row_changes: Option<RowChanges>,
}

static NO_RARE_STATE: RareState = RareState::new();

impl RareState {
    const fn new() -> Self {
        Self {
            window_holders: Vec::new(),
            history_timestamps: Vec::new(),
            oldest: Version(0),
            forming: None,
            pending_move: None,
            large_commit: None,
            row_changes: None,
        }
    }

    fn is_none(&self) -> bool {
        self.window_holders.is_empty()
            && self.history_timestamps.is_empty()
            && self.forming.is_none()
            && self.pending_move.is_none()
            && self.large_commit.is_none()
            && self.row_changes.is_none()
    }
}

impl Segment {
    pub(super) fn new(record: &Record, text: Arc<str>, (version, timestamp): (Version, Timestamp)) -> Self {
        let Record { known_as: id, at, spec, permissions, epoch, .. } = *record;
        let mut segment = Self {
            id,
            text,
            spec,
            permissions,
            at,
            version,
            timestamp,
            lock_queue: LockQueue::default(),
            is_marked_busy: false,
            due_us: u64::MAX,
            replication: (spec.copies > 1)
                .then(|| Box::new(ReplicatedSegment { epoch, ..ReplicatedSegment::default() })),
            rare: None,
        };
        if spec.history_len() > 0 {
            let rare = segment.rare_mut();
            rare.history_timestamps = vec![timestamp; spec.history_len() as usize + 1];
            rare.oldest = version;
        }
        segment
    }

    /// Returns the text of its name.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> Name {
        Name::new(&self.text).expect("it was a name when the segment was made")
    }

    /// Returns the state that most segments never have.
    #[inline(always)]
    pub(super) fn rare(&self) -> &RareState {
        self.rare.as_deref().unwrap_or(&NO_RARE_STATE)
    }

    /// Returns that state, to change it.
    pub(super) fn rare_mut(&mut self) -> &mut RareState {
        self.rare.get_or_insert_with(|| Box::new(RareState::new()))
    }

    /// Frees the memory of that state if there is none of it any more.
    pub(super) fn shrink_rare(&mut self) {
        if self.rare.as_ref().is_some_and(|rare| rare.is_none()) {
            self.rare = None;
        }
    }

    /// Returns true if its memory is not there yet.
    #[inline(always)]
    pub(crate) fn is_forming(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.forming.is_some())
    }

    /// Takes the requester of its creation, which has ended.
    pub(super) fn take_forming(&mut self) -> Option<Requester> {
        let requester = self.rare.as_mut()?.forming.take();
        self.shrink_rare();
        requester
    }

    /// Takes a move that has ended.
    pub(super) fn take_pending_move(&mut self) -> Option<(u64, Permissions, Requester)> {
        let pending_move = self.rare.as_mut()?.pending_move.take();
        self.shrink_rare();
        pending_move
    }

    /// Returns true while the daemon writes a large value.
    pub(crate) fn has_large_commit(&self) -> bool {
        self.rare().large_commit.is_some()
    }

    /// Records the large value that the daemon writes.
    pub(crate) fn set_large_commit(&mut self, commit: LargeCommit) {
        self.rare_mut().large_commit = Some(commit);
    }

    /// Defers the drop of this replica to the end of its large commit; `false` if there is none.
    pub(crate) fn defer_drop(&mut self) -> bool {
        let commit = self.rare.as_mut().and_then(|rare| rare.large_commit.as_mut());
        commit.map(|commit| commit.is_drop_deferred = true).is_some()
    }

    /// Returns true if it is dropped at the end of its large commit.
    pub(crate) fn is_drop_deferred(&self) -> bool {
        self.rare().large_commit.is_some_and(|commit| commit.is_drop_deferred)
    }

    /// Takes the large value that the daemon has written.
    pub(crate) fn take_large_commit(&mut self) -> Option<LargeCommit> {
        let commit = self.rare.as_mut()?.large_commit.take();
        self.shrink_rare();
        commit
    }

    /// Returns the changes of its rows. They are recorded from the first call on, behind that number.
    pub(crate) fn row_changes(&mut self, first: Version) -> &mut RowChanges {
        self.rare_mut().row_changes.get_or_insert_with(|| RowChanges::new(first))
    }

    /// Forgets the changes of its rows. The next watcher of all rows is told that it missed some.
    pub(crate) fn forget_row_changes(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.row_changes = None;
        }
        self.shrink_rare();
    }

    /// Records a change of a row; returns its number if watchers of all rows want to know.
    pub(crate) fn note_row_change(&mut self, row: u64) -> Option<Version> {
        let rare = self.rare.as_mut()?;
        let number = rare.row_changes.as_mut()?.note(row);
        if number.is_none() {
            rare.row_changes = None;
            self.shrink_rare();
        }
        number
    }

    /// Returns the peers with a window over it.
    pub(crate) fn window_holders(&self) -> &[NodeId] {
        &self.rare().window_holders
    }

    /// Records that a peer gets a window over it.
    pub(crate) fn add_window_holder(&mut self, node: NodeId) {
        let holders = &mut self.rare_mut().window_holders;
        if !holders.contains(&node) {
            holders.push(node);
        }
    }

    /// Removes a peer's window.
    pub(super) fn remove_window_holder(&mut self, node: NodeId) {
        if let Some(rare) = &mut self.rare {
            rare.window_holders.retain(|&reader| reader != node);
        }
        self.shrink_rare();
    }

    /// Takes the peers with a window.
    pub(super) fn take_window_holders(&mut self) -> Vec<NodeId> {
        let holders = self.rare.as_mut().map(|rare| std::mem::take(&mut rare.window_holders)).unwrap_or_default();
        self.shrink_rare();
        holders
    }

    /// Returns true if it is the replica of another home.
    pub(crate) fn is_replica(&self) -> bool {
        matches!(self.replication.as_deref(), Some(ReplicatedSegment { role: Role::Replica, .. }))
    }

    /// Returns the bytes of the pool that it takes.
    pub(crate) fn pool_bytes(&self) -> u64 {
        self.spec.pool_bytes()
    }

    /// Returns the pool offset of a version in the history; `None` without a history.
    pub(crate) fn history_offset(&self, version: Version) -> Option<u64> {
        Some(self.at + Header::history_offset(self.spec.bytes, self.spec.history_len(), version)?)
    }

    /// Returns the pool offsets of all headers in the history.
    pub(crate) fn history_offsets(&self) -> Vec<u64> {
        (0..self.rare().history_timestamps.len() as u64)
            .filter_map(|version| self.history_offset(Version(version)))
            .collect()
    }

    /// Returns its record at that slot.
    pub(super) fn record(&self, segment: SegmentId) -> Record {
        let Self { id: known_as, spec, permissions, at, .. } = *self;
        let epoch = self.replication.as_ref().map_or(0, |replication| replication.takeover());
        Record { segment, known_as, at, name: self.name(), spec, permissions, epoch }
    }

    /// Returns its header with no lock holder.
    pub(crate) fn header(&self, id: SegmentId) -> Header {
        let (state, timestamp) = (Header::committed(self.version), self.timestamp.0);
        Header { state, timestamp, segment: id.to_bits(), bytes: self.spec.bytes, locked: 0 }
    }

    /// Checks that a range lies inside, without overflow.
    pub(crate) fn check_range(&self, offset: u64, bytes: u32) -> Result<(), Failure> {
        check_range(self.spec.bytes, offset, bytes)
    }

    pub(crate) fn info(&self, id: SegmentId) -> SegmentInfo {
        let Spec { bytes, model, copies, storage, row_bytes, .. } = self.spec;
        SegmentInfo {
            segment: id,
            bytes,
            model,
            permissions: self.permissions,
            history_len: self.spec.history_len(),
            copies,
            storage,
            row_bytes,
        }
    }
}

/// Checks that `bytes` bytes from `offset` lie inside a segment of `size`.
pub(crate) fn check_range(size: u64, offset: u64, bytes: u32) -> Result<(), Failure> {
    match offset.checked_add(u64::from(bytes)) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Failure::OutOfRange),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_segment_takes_little_memory() {
        // If this broke, a million segments would not fit a machine. The rest of the 512 bytes beside the data of each are
        // its record (200), its slot (16), its name (24 in the tree, and its text) and what the allocator adds.
        assert!(size_of::<Segment>() <= 136, "{} bytes", size_of::<Segment>());
        assert_eq!(Record::BYTES, 200);
    }
}
