//! Segments whose home is this node: by index for the data path, by name for all else.

use crate::config::EngineConfig;
use crate::fault_injection::planted;
use crate::requester::Requester;
use crate::state::memory::areas::{Areas, no_room};
use crate::state::segments::quotas::Accounts;
use crate::state::segments::slots::SlotTable;
use ddss_core::limits::{SEGMENTS_PER_NODE_DEFAULT, SEGMENTS_PER_NODE_MAX};
use ddss_core::{
    Audience, Failure, LockToken, Name, NodeId, Permissions, Placement, Record, SegmentId, Shard, Spec, Storage,
    Timestamp, Version,
};
use names_watch::NamesWatch;
use released::{ReleasedSegment, ReleasedSegments};
use schedule::Schedule;
use std::collections::BTreeMap;
use std::sync::Arc;
use sweeps::Sweeps;

mod busy_list;
mod lock_gate;
mod names;
pub(crate) mod names_watch;
pub(crate) mod quotas;
mod released;
pub(crate) mod row_changes;
mod schedule;
mod segment;
mod segment_index;
mod slots;
pub(crate) mod sweeps;
mod versions;

pub(crate) use segment::{Segment, check_range};

/// Result of a move.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it is looked at where it is made, and goes nowhere")]
pub(crate) enum MoveOutcome {
    /// Done: the new record, the old place, the exclusive holder, and the peers that have to forget the old place.
    There { requester: Requester, record: Record, from: u64, holder: LockToken, readers: Vec<NodeId> },
    /// Failed: the reserved memory has to be zeroed.
    Not { requester: Requester, to: u64, bytes: u64, failure: Failure },
}

/// All segments of this node.
#[derive(Debug)]
pub(crate) struct Segments {
    node: NodeId,
    shard: Shard,
    slots: SlotTable,
    /// Maximum number of segments.
    segments_max: usize,
    names: BTreeMap<Arc<str>, u32>,
    /// Number of segments that have or are replicas.
    replicated: usize,
    areas: Areas,
    pub(crate) accounts: Accounts,
    released: ReleasedSegments,
    /// Versions of the names of the segments here, and their watchers.
    names_watch: NamesWatch,
    pub(crate) sweeps: Sweeps,
    schedule: Schedule,
    /// Fast path disabled (`home/fast_path.rs`).
    slow_path_only: bool,
    #[cfg(feature = "planted")]
    pub(crate) bug: Option<crate::Bug>,
}

impl Segments {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        Self {
            node: config.node,
            shard: config.shard,
            slots: SlotTable::new(
                SegmentId::new(config.node, 0, 0).on_shard(config.shard.index()),
                config.first_generation,
            ),
            segments_max: SEGMENTS_PER_NODE_DEFAULT,
            names: BTreeMap::new(),
            replicated: 0,
            areas: Areas::new(config.pool_bytes),
            accounts: Accounts::default(),
            released: ReleasedSegments::default(),
            names_watch: NamesWatch::new(config),
            sweeps: Sweeps::default(),
            schedule: Schedule::default(),
            slow_path_only: false,
            #[cfg(feature = "planted")]
            bug: None,
        }
    }

    /// Disables the fast path, or enables it again.
    pub(crate) fn set_slow_path(&mut self, slow_path_only: bool) {
        self.slow_path_only = slow_path_only;
    }

    /// Sets the maximum number of segments. More than that may exist from an earlier run; no more are made then.
    pub(crate) fn set_maximum(&mut self, segments: usize) {
        self.segments_max = segments.clamp(1, SEGMENTS_PER_NODE_MAX);
    }

    /// Returns the maximum number of segments.
    pub(crate) fn maximum(&self) -> usize {
        self.segments_max
    }

    /// Checks that one more segment may be made.
    pub(crate) fn check_count(&self) -> Result<(), Failure> {
        if self.names.len() < self.segments_max { Ok(()) } else { Err(Failure::SegmentsFull) }
    }

    /// Returns true if calls may take the fast path.
    #[inline(always)]
    pub(crate) fn allows_fast_path(&self) -> bool {
        !self.slow_path_only
    }

    /// Returns this node.
    pub(crate) fn node(&self) -> NodeId {
        self.node
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

    /// Sets how much of the pool new segments may fill.
    pub(crate) fn set_pool_limit(&mut self, bytes: u64) {
        self.areas.set_memory_limit(bytes);
    }

    /// Returns true if segments may be in files here.
    pub(crate) fn allows_files(&self) -> bool {
        self.areas.allows_files()
    }

    /// Returns the live segment of that id.
    pub(crate) fn get(&self, id: SegmentId) -> Result<&Segment, Failure> {
        let is_named =
            |segment: &&Segment| (segment.id == id || planted!(self, StaleGeneration)) && !segment.is_forming();
        self.slots.get(id).filter(is_named).ok_or(Failure::NotFound)
    }

    /// Checks that a name belongs to this shard.
    pub(crate) fn admits(&self, name: &Name) -> Result<(), Failure> {
        if self.shard.has(name) { Ok(()) } else { Err(Failure::WrongShard) }
    }

    /// Returns true if another node was the segment's first home: it was taken over, or is a replica.
    pub(crate) fn is_adopted(&self, id: SegmentId) -> bool {
        self.slots.is_adopted(id)
    }

    /// Returns the slot and generation under which a segment is recorded.
    pub(crate) fn slot_of(&self, id: SegmentId) -> Result<SegmentId, Failure> {
        self.get(id)?;
        self.slots.own_id_of(id).ok_or(Failure::NotFound)
    }

    /// Returns the record of a segment.
    pub(crate) fn record(&self, id: SegmentId) -> Result<Record, Failure> {
        Ok(self.get(id)?.record(self.slot_of(id)?))
    }

    /// Returns the global id of the segment that is recorded there.
    pub(crate) fn at_slot(&self, slot: SegmentId) -> Option<SegmentId> {
        self.slots.at(slot).map(|segment| segment.id)
    }

    /// Returns true if any segment has or is a replica.
    pub(crate) fn has_replicated(&self) -> bool {
        self.replicated > 0
    }

    /// Returns all segments that have or are replicas.
    pub(crate) fn replicated(&self) -> Vec<SegmentId> {
        self.slots.iter().filter(|segment| segment.replication.is_some()).map(|segment| segment.id).collect()
    }

    /// Returns the live segment of that id, to change it.
    pub(crate) fn get_mut(&mut self, id: SegmentId) -> Result<&mut Segment, Failure> {
        let is_stale_named = planted!(self, StaleGeneration);
        let is_named = |segment: &&mut Segment| (segment.id == id || is_stale_named) && !segment.is_forming();
        self.slots.get_mut(id).filter(is_named).ok_or(Failure::NotFound)
    }

    /// Allocates memory outside segments, in this node's own area.
    pub(crate) fn allocate_blocks(&mut self, bytes: u64) -> Option<u64> {
        self.areas.take(Audience::NONE, Storage::Memory, bytes).ok()
    }

    /// Frees memory outside segments.
    pub(crate) fn free_blocks(&mut self, at: u64, bytes: u64) {
        let _ = self.areas.give(at, bytes);
    }

    fn id_of(&self, index: u32) -> SegmentId {
        self.slots.id_at(index)
    }

    /// Returns true if the name is taken, also by a segment in creation.
    pub(crate) fn is_taken(&self, name: &Name) -> bool {
        self.names.contains_key(name.as_str())
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
        self.check_count()?;
        if self.slots.is_full() {
            return Err(Failure::SegmentsFull);
        }
        let bytes = spec.pool_bytes();
        let at = self.areas.take(permissions.audience(), spec.storage, bytes)?;
        let segment = self.slots.take_free(copy_of);
        let spec = Spec { placement: Placement::Node(self.node), ..spec };
        self.accounts.take(permissions.owner.uid, &spec);
        let known_as = copy_of.unwrap_or(segment);
        let record = Record { segment, known_as, at, name, spec, permissions, epoch: 0 };
        let text: Arc<str> = name.as_str().into();
        let mut made = Segment::new(&record, text.clone(), (Version(0), timestamp));
        made.rare_mut().forming = Some(requester);
        self.replicated += usize::from(made.replication.is_some());
        self.names.insert(text, segment.index());
        self.slots.insert(segment, made);
        assert!(self.slots.index_of(known_as) == Some(segment.index()), "an id names the slot of its segment");
        Ok(record)
    }

    /// Ends the creation of a segment; returns its id and requester.
    pub(crate) fn formed(&mut self, at: SegmentId) -> Option<(SegmentId, Requester)> {
        let segment = self.slots.at_mut(at)?;
        Some((segment.id, segment.take_forming()?))
    }

    /// Returns a segment in creation.
    pub(crate) fn forming(&mut self, id: SegmentId) -> Option<&mut Segment> {
        self.slots.get_mut(id).filter(|segment| segment.id == id)
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
        assert!(
            segment.rare().pending_move.is_none() && segment.at != to,
            "a segment moves to one new place at a time"
        );
        segment.rare_mut().pending_move = Some((to, permissions, requester));
        segment.lock_queue.begin_move();
        let from = segment.at;
        (record.at, record.permissions) = (to, permissions);
        Ok((record, from, bytes))
    }

    /// Ends a move.
    pub(crate) fn end_move(&mut self, id: SegmentId, made: bool, deadline_us: u64) -> Option<MoveOutcome> {
        let index = self.slots.index_of(id)?;
        let segment = self.get_mut(id).ok()?;
        let (to, permissions, requester) = segment.take_pending_move()?;
        segment.lock_queue.end_move();
        let (spec, bytes) = (segment.spec, segment.pool_bytes());
        if !made {
            return Some(MoveOutcome::Not { requester, to, bytes, failure: no_room(spec.storage) });
        }
        let from = std::mem::replace(&mut segment.at, to);
        let old = std::mem::replace(&mut segment.permissions, permissions);
        let readers = segment.take_window_holders();
        let holder = segment.lock_queue.lock_word();
        let waiting_for = readers.clone();
        self.released.add(ReleasedSegment { id, index, at: from, bytes, moved: true, waiting_for, deadline_us });
        self.accounts.transfer(old.owner.uid, permissions.owner.uid, &spec);
        let record = self.record(id).ok()?;
        assert!(record.at == to && record.permissions == permissions, "the record says what holds after the move");
        Some(MoveOutcome::There { requester, record, from, holder, readers })
    }

    /// Restores a segment of the daemon's previous run.
    pub(crate) fn restore(&mut self, record: &Record, version: Version, timestamp: Timestamp) -> Result<(), Failure> {
        let Record { segment: id, at, name, spec, permissions, .. } = *record;
        self.admits(&name)?;
        if !self.slots.is_own(id) || self.is_taken(&name) || self.slots.is_in_use(id.index()) {
            return Err(Failure::Malformed);
        }
        let bytes = spec.pool_bytes();
        if bytes > self.areas.free_bytes(spec.storage) {
            return Err(Failure::NoSpace);
        }
        if !self.areas.retake(at, permissions.audience(), spec.storage, bytes) {
            return Err(Failure::Malformed);
        }
        self.slots.reserve(id);
        self.accounts.take(permissions.owner.uid, &spec);
        let text: Arc<str> = name.as_str().into();
        let segment = Segment::new(record, text.clone(), (version, timestamp));
        self.replicated += usize::from(segment.replication.is_some());
        self.slots.insert(id, segment);
        self.names.insert(text, id.index());
        Ok(())
    }

    /// Restores the last id of a free slot.
    pub(crate) fn restore_free(&mut self, last: SegmentId) {
        self.slots.restore_free(last);
    }

    /// Removes a segment's name and id. Its memory is freed when no reader is left: at once, or with the last peer that
    /// drops its window.
    pub(crate) fn release(&mut self, id: SegmentId, deadline_us: u64) -> Result<Vec<NodeId>, Failure> {
        self.get(id)?;
        let (index, mut segment) = self.slots.remove(id).ok_or(Failure::NotFound)?;
        self.names.remove(&segment.text);
        self.replicated -= usize::from(segment.replication.is_some());
        self.accounts.give(segment.permissions.owner.uid, &segment.spec);
        let (holders, waiting) = (segment.lock_queue.holders(), segment.lock_queue.waiting());
        assert!(holders + waiting == 0, "all that waited for a released segment is answered");
        let bytes = segment.pool_bytes();
        let readers = segment.take_window_holders();
        let (at, waiting_for) = (segment.at, readers.clone());
        self.released.add(ReleasedSegment { id, index, at, bytes, moved: false, waiting_for, deadline_us });
        Ok(readers)
    }

    /// Records that a peer dropped its window on one segment, or on all.
    pub(crate) fn forgotten(&mut self, node: NodeId, which: Option<SegmentId>) {
        self.released.forget(node, which);
        if which.is_none() {
            for segment in self.slots.iter_mut() {
                segment.remove_window_holder(node);
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
            self.slots.give_back(gone.index);
        }
        Some((gone.at, gone.bytes))
    }

    /// Frees memory that was zeroed. Returns the pages at its ends that no segment uses any more.
    pub(crate) fn cleared(&mut self, at: u64, bytes: u64) -> impl Iterator<Item = u64> + use<> {
        self.areas.give(at, bytes)
    }

    /// Returns the change of a table's rows that follows that number. Changes are recorded from the first call on, behind the
    /// number `first`.
    pub(crate) fn row_change_after(
        &mut self,
        id: SegmentId,
        number: Version,
        first: Version,
    ) -> Result<Option<(Version, Option<u64>)>, Failure> {
        let counts_on = planted!(self, RowChangesOfEarlierTerm);
        let changes = self.get_mut(id)?.row_changes(first);
        if !counts_on {
            changes.catch_up(number, first);
        }
        Ok(changes.after(number))
    }

    /// Records a change of a row; returns its number if watchers of all rows want to know.
    pub(crate) fn note_row_change(&mut self, id: SegmentId, row: u64) -> Option<Version> {
        let is_untold = planted!(self, UntoldRowChange);
        self.get_mut(id).ok().filter(|segment| !is_untold || segment.replication.is_none())?.note_row_change(row)
    }
}
