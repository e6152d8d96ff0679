//! Segments whose home is this node: by index for the data path, by name for all else.

use crate::engine::config::EngineConfig;
use crate::engine::fault_injection::planted;
use crate::engine::requester::Requester;
use crate::engine::state::lock_queue::LockQueue;
use crate::engine::state::memory::areas::{Areas, no_room};
use crate::engine::state::memory::uploads::LargeCommit;
use crate::engine::state::replication::{ReplicatedSegment, Role};
use crate::engine::state::segments::quotas::Accounts;
use crate::engine::state::segments::segment_index::SegmentIndex;
use crate::limits::SEGMENTS_PER_NODE_MAX;
use crate::model::record::Record;
use crate::model::segment::{Audience, Header, Name, Permissions};
use crate::model::spec::{Placement, Spec, Storage};
use crate::peer::message::SegmentInfo;
use crate::request::operation::LockToken;
use crate::{Failure, NodeId, SegmentId, Shard, Timestamp, Version};
use released::{ReleasedSegment, ReleasedSegments};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

mod busy_list;
mod names;
pub(crate) mod quotas;
mod released;
mod segment_index;
mod versions;

/// One segment at home here, or a replica.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Global id; the index in it may differ from the slot here.
    pub(crate) id: SegmentId,
    pub(crate) name: Name,
    pub(crate) spec: Spec,
    pub(crate) permissions: Permissions,
    /// Pool offset of its header.
    pub(crate) at: u64,
    version: Version,
    timestamp: Timestamp,
    /// Oldest version that can be read: older history went with the daemon's previous run.
    oldest: Version,
    /// Peers with a window over it.
    window_holders: Vec<NodeId>,
    /// Timestamps of the versions in the history; empty without a history.
    history_timestamps: Box<[Timestamp]>,
    /// Lock and waiters.
    pub(crate) lock_queue: LockQueue,
    /// Listed among the segments that need attention on a tick.
    is_marked_busy: bool,
    /// When it needs attention; `u64::MAX` if time alone changes nothing.
    due_us: u64,
    /// Requester of its creation, until its memory is there.
    forming: Option<Requester>,
    /// Large value that the daemon writes.
    pub(crate) large_commit: Option<Box<LargeCommit>>,
    /// New place, new permissions and requester of a move in progress.
    pending_move: Option<(u64, Permissions, Requester)>,
    /// Replication state, if it has or is a replica.
    pub(crate) replication: Option<Box<ReplicatedSegment>>,
}

impl Segment {
    fn new(record: &Record, stamp: (Version, Timestamp)) -> Self {
        let Record { known_as: id, at, name, spec, permissions, .. } = *record;
        let ((version, timestamp), window_holders, lock_queue) = (stamp, Vec::new(), LockQueue::default());
        let history_timestamps = match spec.history_len() {
            0 => Box::default(),
            history_len => vec![timestamp; history_len as usize + 1].into(),
        };
        let (oldest, is_marked_busy, forming, pending_move) = (version, false, None, None);
        let replication = (spec.copies > 1).then(Box::default);
        Self {
            id,
            name,
            spec,
            permissions,
            at,
            version,
            timestamp,
            oldest,
            window_holders,
            history_timestamps,
            lock_queue,
            is_marked_busy,
            due_us: u64::MAX,
            forming,
            large_commit: None,
            pending_move,
            replication,
        }
    }

    /// Returns the peers with a window over it.
    pub(crate) fn window_holders(&self) -> &[NodeId] {
        &self.window_holders
    }

    /// Records that a peer gets a window over it.
    pub(crate) fn add_window_holder(&mut self, node: NodeId) {
        if !self.window_holders.contains(&node) {
            self.window_holders.push(node);
        }
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
        (0..self.history_timestamps.len() as u64).filter_map(|version| self.history_offset(Version(version))).collect()
    }

    /// Returns its record at that slot.
    fn record(&self, segment: SegmentId) -> Record {
        let Self { id: known_as, name, spec, permissions, at, .. } = *self;
        Record { segment, known_as, at, name, spec, permissions }
    }

    /// Returns its header with no lock holder.
    pub(crate) fn header(&self, id: SegmentId) -> Header {
        let (state, timestamp) = (Header::committed(self.version), self.timestamp.0);
        Header { state, timestamp, segment: id.to_bits(), bytes: self.spec.bytes, locked: 0 }
    }

    /// Returns data offset, version and timestamp of the newest version, or of a named one.
    pub(crate) fn find(&self, wanted: Option<Version>) -> Result<(u64, Version, Timestamp), Failure> {
        let newest = (self.at + Header::DATA_OFFSET, self.version, self.timestamp);
        let Some(wanted) = wanted.filter(|&wanted| wanted != self.version) else { return Ok(newest) };
        if wanted > self.version {
            return Err(Failure::VersionMismatch);
        }
        if wanted < self.oldest || self.version.0 - wanted.0 > u64::from(self.spec.history_len()) {
            return Err(Failure::VersionGone);
        }
        let line = self.history_offset(wanted).ok_or(Failure::VersionGone)?;
        Ok((line + Header::DATA_OFFSET, wanted, self.recorded_timestamp(wanted)))
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

/// Result of a move.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it is looked at where it is made, and goes nowhere")]
pub(crate) enum MoveOutcome {
    /// Done: the new record, the old place, the exclusive holder, and the peers that have to forget the old place.
    There { requester: Requester, record: Record, from: u64, holder: LockToken, readers: Vec<NodeId> },
    /// Failed: the reserved memory has to be zeroed.
    Not { requester: Requester, to: u64, bytes: u64, failure: Failure },
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    segment: Option<Box<Segment>>,
}

/// All segments of this node.
#[derive(Debug)]
pub(crate) struct Segments {
    node: NodeId,
    shard: Shard,
    first_generation: u32,
    slots: Vec<Slot>,
    free: Vec<u16>,
    names: BTreeMap<Name, u16>,
    index: SegmentIndex,
    /// Number of segments that have or are replicas.
    replicated: usize,
    areas: Areas,
    pub(crate) accounts: Accounts,
    released: ReleasedSegments,
    /// Segments with a lock holder, a waiter or a watcher.
    busy: Vec<SegmentId>,
    /// When each of them needs attention. An entry that differs from its segment's own record is outdated.
    due: BinaryHeap<Reverse<(u64, SegmentId)>>,
    /// Segments that a tick visits now.
    visited: Vec<SegmentId>,
    /// Entries of `due` since the last clean-up.
    scheduled: usize,
    /// Fast path disabled (`engine/home/fast_path.rs`).
    slow_path_only: bool,
    #[cfg(feature = "planted")]
    pub(crate) bug: Option<crate::engine::Bug>,
}

impl Segments {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        Self {
            node: config.node,
            shard: config.shard,
            first_generation: config.first_generation,
            slots: Vec::new(),
            free: Vec::new(),
            names: BTreeMap::new(),
            index: SegmentIndex::new(SegmentId::new(config.node, 0, 0).on_shard(config.shard.index())),
            replicated: 0,
            areas: Areas::new(config.pool_bytes),
            accounts: Accounts::default(),
            released: ReleasedSegments::default(),
            busy: Vec::new(),
            due: BinaryHeap::new(),
            visited: Vec::new(),
            scheduled: 0,
            slow_path_only: false,
            #[cfg(feature = "planted")]
            bug: None,
        }
    }

    /// Disables the fast path, or enables it again.
    pub(crate) fn set_slow_path(&mut self, slow_path_only: bool) {
        self.slow_path_only = slow_path_only;
    }

    /// Returns true if calls may take the fast path.
    #[inline(always)]
    pub(crate) fn allows_fast_path(&self) -> bool {
        !self.slow_path_only
    }

    pub(crate) fn count(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn free_bytes(&self, storage: Storage) -> u64 {
        self.areas.free_bytes(storage)
    }

    /// Sets the bytes that segments in files may take.
    pub(crate) fn set_file_bytes(&mut self, bytes: u64) {
        self.areas.set_file_bytes(bytes);
    }

    /// Returns true if segments may be in files here.
    pub(crate) fn allows_files(&self) -> bool {
        self.areas.allows_files()
    }

    /// Returns the live segment of that id.
    pub(crate) fn get(&self, id: SegmentId) -> Result<&Segment, Failure> {
        let index = self.index.slot_of(id).ok_or(Failure::NotFound)?;
        match self.slots.get(usize::from(index)) {
            Some(Slot { segment: Some(segment), .. })
                if (segment.id == id || planted!(self, StaleGeneration)) && segment.forming.is_none() =>
            {
                Ok(segment)
            }
            _ => Err(Failure::NotFound),
        }
    }

    /// Checks that a name belongs to this shard.
    pub(crate) fn admits(&self, name: &Name) -> Result<(), Failure> {
        if self.shard.has(name) { Ok(()) } else { Err(Failure::WrongShard) }
    }

    /// Returns true if another node was the segment's first home: it was taken over, or is a replica.
    pub(crate) fn is_adopted(&self, id: SegmentId) -> bool {
        self.index.contains(id)
    }

    /// Returns the slot and generation under which a segment is recorded.
    pub(crate) fn slot_of(&self, id: SegmentId) -> Result<SegmentId, Failure> {
        self.get(id)?;
        let index = self.index.slot_of(id).ok_or(Failure::NotFound)?;
        Ok(self.own_id(index, self.slots[usize::from(index)].generation))
    }

    /// Returns the record of a segment.
    pub(crate) fn record(&self, id: SegmentId) -> Result<Record, Failure> {
        Ok(self.get(id)?.record(self.slot_of(id)?))
    }

    /// Returns the global id of the segment that is recorded there.
    pub(crate) fn at_slot(&self, slot: SegmentId) -> Option<SegmentId> {
        let place = self.slots.get(usize::from(slot.index()))?;
        let segment = place.segment.as_ref().filter(|_| place.generation == slot.generation())?;
        Some(segment.id)
    }

    /// Returns true if any segment has or is a replica.
    pub(crate) fn has_replicated(&self) -> bool {
        self.replicated > 0
    }

    /// Returns all segments that have or are replicas.
    pub(crate) fn replicated(&self) -> Vec<SegmentId> {
        let segments = self.slots.iter().filter_map(|slot| slot.segment.as_ref());
        segments.filter(|segment| segment.replication.is_some()).map(|segment| segment.id).collect()
    }

    /// Returns the live segment of that id, to change it.
    pub(crate) fn get_mut(&mut self, id: SegmentId) -> Result<&mut Segment, Failure> {
        let index = self.index.slot_of(id).ok_or(Failure::NotFound)?;
        match self.slots.get_mut(usize::from(index)) {
            Some(Slot { segment: Some(segment), .. })
                if (segment.id == id || planted!(self, StaleGeneration)) && segment.forming.is_none() =>
            {
                Ok(segment)
            }
            _ => Err(Failure::NotFound),
        }
    }

    /// Allocates memory outside segments, in this node's own area.
    pub(crate) fn allocate_blocks(&mut self, bytes: u64) -> Option<u64> {
        self.areas.take(Audience::NONE, Storage::Memory, bytes).ok()
    }

    /// Frees memory outside segments.
    pub(crate) fn free_blocks(&mut self, at: u64, bytes: u64) {
        self.areas.give(at, bytes);
    }

    /// Returns an id of this shard.
    fn own_id(&self, index: u16, generation: u32) -> SegmentId {
        SegmentId::new(self.node, index, generation).on_shard(self.shard.index())
    }

    fn id_of(&self, index: u16) -> SegmentId {
        let slot = &self.slots[usize::from(index)];
        let own = self.own_id(index, slot.generation);
        slot.segment.as_ref().map_or(own, |segment| segment.id)
    }

    /// Creates a segment with an id and a place.
    pub(crate) fn allocate(
        &mut self,
        name: Name,
        spec: Spec,
        permissions: Permissions,
        timestamp: Timestamp,
        requester: Requester,
        copy_of: Option<SegmentId>,
    ) -> Result<Record, Failure> {
        self.admits(&name)?;
        if self.is_taken(&name) {
            return Err(Failure::AlreadyExists);
        }
        if self.free.is_empty() && self.slots.len() == SEGMENTS_PER_NODE_MAX {
            return Err(Failure::SegmentsFull);
        }
        let bytes = spec.pool_bytes();
        let at = self.areas.take(permissions.audience(), spec.storage, bytes)?;
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: self.first_generation, segment: None });
            (self.slots.len() - 1) as u16
        });
        let own = self.own_id(index, 0).to_bits();
        let slot = &mut self.slots[usize::from(index)];
        slot.generation = slot.generation.wrapping_add(1);
        if copy_of.is_some_and(|id| id.to_bits() == own | u64::from(slot.generation)) {
            // The slot's own id equals that of the replica: the record has to show that it is one.
            slot.generation = slot.generation.wrapping_add(1);
        }
        let spec = Spec { placement: Placement::Node(self.node), ..spec };
        self.accounts.take(permissions.owner.uid, &spec);
        let generation = slot.generation;
        let segment = self.own_id(index, generation);
        let known_as = copy_of.unwrap_or(segment);
        let record = Record { segment, known_as, at, name, spec, permissions };
        let made = Segment::new(&record, (Version(0), timestamp));
        self.replicated += usize::from(made.replication.is_some());
        self.slots[usize::from(index)].segment = Some(Box::new(Segment { forming: Some(requester), ..made }));
        self.names.insert(name, index);
        if copy_of.is_some() {
            self.index.insert(known_as, index);
        }
        assert!(self.index.slot_of(known_as) == Some(index), "an id names the slot of its segment");
        Ok(record)
    }

    /// Ends the creation of a segment; returns its id and requester.
    pub(crate) fn formed(&mut self, at: SegmentId) -> Option<(SegmentId, Requester)> {
        let slot = self.slots.get_mut(usize::from(at.index()))?;
        let segment = slot.segment.as_mut().filter(|_| slot.generation == at.generation())?;
        Some((segment.id, segment.forming.take()?))
    }

    /// Returns a segment in creation.
    pub(crate) fn forming(&mut self, id: SegmentId) -> Option<&mut Segment> {
        let index = self.index.slot_of(id)?;
        self.slots.get_mut(usize::from(index))?.segment.as_deref_mut().filter(|segment| segment.id == id)
    }

    /// Changes permissions and owner of a segment in place.
    pub(crate) fn set_permissions(&mut self, id: SegmentId, permissions: Permissions) -> Result<(), Failure> {
        let segment = self.get_mut(id)?;
        let (spec, old) = (segment.spec, std::mem::replace(&mut segment.permissions, permissions));
        self.accounts.transfer(old.owner.uid, permissions.owner.uid, &spec);
        Ok(())
    }

    /// Reserves memory in the area of new permissions; returns the new record, the old place and the size. Until the
    /// move ends, the segment is read in the old place and does not change.
    pub(crate) fn begin_move(
        &mut self,
        id: SegmentId,
        permissions: Permissions,
        requester: Requester,
    ) -> Result<(Record, u64, u64), Failure> {
        let segment = self.get(id)?;
        let (spec, bytes) = (segment.spec, segment.pool_bytes());
        let mut record = self.record(id)?;
        let to = self.areas.take(permissions.audience(), spec.storage, bytes)?;
        let segment = self.get_mut(id)?;
        assert!(segment.pending_move.is_none() && segment.at != to, "a segment moves to one new place at a time");
        segment.pending_move = Some((to, permissions, requester));
        segment.lock_queue.begin_move();
        let from = segment.at;
        (record.at, record.permissions) = (to, permissions);
        Ok((record, from, bytes))
    }

    /// Ends a move.
    pub(crate) fn end_move(&mut self, id: SegmentId, made: bool, deadline_us: u64) -> Option<MoveOutcome> {
        let index = self.index.slot_of(id)?;
        let segment = self.get_mut(id).ok()?;
        let (to, permissions, requester) = segment.pending_move.take()?;
        segment.lock_queue.end_move();
        let (spec, bytes) = (segment.spec, segment.pool_bytes());
        if !made {
            return Some(MoveOutcome::Not { requester, to, bytes, failure: no_room(spec.storage) });
        }
        let from = std::mem::replace(&mut segment.at, to);
        let old = std::mem::replace(&mut segment.permissions, permissions);
        let readers = std::mem::take(&mut segment.window_holders);
        let holder = segment.lock_queue.first_holder().filter(|holder| !holder.shared);
        let holder = holder.map_or(LockToken::default(), |holder| holder.token);
        let waiting_for = readers.clone();
        self.released.add(ReleasedSegment { id, index, at: from, bytes, moved: true, waiting_for, deadline_us });
        self.accounts.transfer(old.owner.uid, permissions.owner.uid, &spec);
        let record = self.record(id).ok()?;
        assert!(record.at == to && record.permissions == permissions, "the record says what holds after the move");
        Some(MoveOutcome::There { requester, record, from, holder, readers })
    }

    /// Restores a segment of the daemon's previous run.
    pub(crate) fn restore(&mut self, record: &Record, version: Version, timestamp: Timestamp) -> Result<(), Failure> {
        let Record { segment: id, known_as, at, name, spec, permissions } = *record;
        let index = usize::from(id.index());
        self.admits(&name)?;
        if !self.index.is_own(id) || self.is_taken(&name) || self.slots.get(index).is_some_and(|s| s.segment.is_some())
        {
            return Err(Failure::Malformed);
        }
        let bytes = spec.pool_bytes();
        if bytes > self.areas.free_bytes(spec.storage) {
            return Err(Failure::NoSpace);
        }
        if !self.areas.retake(at, permissions.audience(), spec.storage, bytes) {
            return Err(Failure::Malformed);
        }
        self.make_room_for(id);
        self.free.retain(|&free| usize::from(free) != index);
        self.accounts.take(permissions.owner.uid, &spec);
        let segment = Segment::new(record, (version, timestamp));
        self.replicated += usize::from(segment.replication.is_some());
        self.slots[index] = Slot { generation: id.generation(), segment: Some(Box::new(segment)) };
        self.names.insert(name, id.index());
        if known_as != id {
            self.index.insert(known_as, id.index());
        }
        Ok(())
    }

    /// Restores the last id of a free slot.
    pub(crate) fn restore_free(&mut self, last: SegmentId) {
        self.make_room_for(last);
        let slot = &mut self.slots[usize::from(last.index())];
        slot.generation = slot.generation.max(last.generation());
    }

    fn make_room_for(&mut self, id: SegmentId) {
        while self.slots.len() <= usize::from(id.index()) {
            self.free.push(self.slots.len() as u16);
            self.slots.push(Slot { generation: self.first_generation, segment: None });
        }
    }

    /// Removes a segment's name and id. Its memory is freed when no reader is left: at once, or with the last peer that
    /// drops its window.
    pub(crate) fn release(&mut self, id: SegmentId, deadline_us: u64) -> Result<Vec<NodeId>, Failure> {
        self.get(id)?;
        let index = self.index.slot_of(id).ok_or(Failure::NotFound)?;
        let slot = &mut self.slots[usize::from(index)];
        let segment = slot.segment.take().ok_or(Failure::NotFound)?;
        self.names.remove(&segment.name);
        self.index.remove(segment.id);
        self.replicated -= usize::from(segment.replication.is_some());
        self.accounts.give(segment.permissions.owner.uid, &segment.spec);
        let (holders, waiting) = (segment.lock_queue.holders(), segment.lock_queue.waiting());
        assert!(holders + waiting == 0, "all that waited for a released segment is answered");
        let bytes = segment.pool_bytes();
        let readers = segment.window_holders;
        let (at, waiting_for) = (segment.at, readers.clone());
        self.released.add(ReleasedSegment { id, index, at, bytes, moved: false, waiting_for, deadline_us });
        Ok(readers)
    }

    /// Records that a peer dropped its window on one segment, or on all.
    pub(crate) fn forgotten(&mut self, node: NodeId, which: Option<SegmentId>) {
        self.released.forget(node, which);
        if which.is_none() {
            for segment in self.slots.iter_mut().filter_map(|slot| slot.segment.as_mut()) {
                segment.window_holders.retain(|&reader| reader != node);
            }
        }
    }

    /// Returns the peers that did not drop their window in time.
    pub(crate) fn overdue(&self, now_us: u64) -> impl Iterator<Item = NodeId> + '_ {
        self.released.overdue(now_us)
    }

    /// Takes one released segment without readers; returns its place and size. Its memory is free when it is
    /// [cleared](Self::cleared).
    pub(crate) fn reclaim(&mut self) -> Option<(u64, u64)> {
        let early = planted!(self, EarlyReclaim);
        let gone = self.released.take(early)?;
        if !gone.moved {
            self.free.push(gone.index);
        }
        Some((gone.at, gone.bytes))
    }

    /// Frees memory that was zeroed.
    pub(crate) fn cleared(&mut self, at: u64, bytes: u64) {
        self.areas.give(at, bytes);
    }
}
