//! Role of a replicated segment on this node: home with its replica in some state, or replica of another home.
//!
//! ```text
//!             offer            Empty             all sent            heard          decided
//!   Alone ───────────► Offered ─────► Copying ───────────► Joining ───────► Pairing ───────► Paired
//!     ▲                   │  Whole                            ▲                │                │
//!     │                   └───────────────────────────────────┘                │ replica lost   │
//!     │                            decided                                     ▼                ▼
//!     └─────────────────────────────────────────────────────────────────────── Parting ◄────────┘
//! ```
//!
//! Left of *Joining* the home commits by itself, since no node could take over. From there on each put waits until the
//! replica has it. From *Pairing* to *Parting* the cluster may make the replica the home at any time, so this node
//! serves the segment only while its lease lasts.

use crate::action::{CommitSource, RangeSet};
use crate::config::Now;
use crate::requester::Requester;
use crate::role::RoleAssignment;
use crate::state::peers::Peers;
use assignments::Assignments;
use ddss_core::limits::{RESYNC_DIRTY_MAX, RESYNC_PIECES_MAX};
use ddss_core::{
    DegradedReason, Failure, NodeId, PermissionUpdate, Principal, Range, Refusal, ReplicationInfo, SegmentId,
    Timestamp, UploadId, Version,
};
use home_work::WorkQueue;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

mod assignments;
mod forwarded_upload;
mod home_work;

pub(crate) use forwarded_upload::{ForwardedUpload, UndoMemory};
pub(crate) use home_work::{ForwardKind, HomeWork, PendingForward, RowCommit};

/// Replication state of a node, over all segments.
#[derive(Debug)]
pub(crate) struct Replicas {
    /// A cluster exists that decides.
    has_cluster: bool,
    /// Decisions about the segments of all nodes.
    assignments: Assignments,
    /// Homes of the segments that were taken over.
    routes: HashMap<SegmentId, NodeId>,
    /// Nodes that were declared dead.
    dead: BTreeSet<NodeId>,
    /// Segments restored at start whose role the cluster has not confirmed.
    unconfirmed: Vec<SegmentId>,
    /// Segments in a transition: work is due or awaited.
    in_transition: BTreeSet<SegmentId>,
    /// Segments that are being offered or copied.
    copying: BTreeSet<SegmentId>,
    /// The cluster has confirmed this node's lease at least once.
    has_lease: bool,
    /// End of the lease: until then no other node takes over a segment at home here.
    lease_until_us: u64,
    /// Bytes of one resync piece.
    piece_bytes: u32,
    /// Time that a replica may be away before another node is chosen.
    patience_us: u64,
    /// Work of the home that follows from the state of replicas.
    work: WorkQueue,
}

impl Default for Replicas {
    fn default() -> Self {
        Self {
            has_cluster: false,
            assignments: Assignments::default(),
            routes: HashMap::new(),
            dead: BTreeSet::new(),
            unconfirmed: Vec::new(),
            in_transition: BTreeSet::new(),
            copying: BTreeSet::new(),
            has_lease: false,
            lease_until_us: 0,
            piece_bytes: ddss_core::limits::RESYNC_PIECE_BYTES,
            patience_us: Self::PATIENCE_US,
            work: WorkQueue::default(),
        }
    }
}

impl Replicas {
    const PATIENCE_US: u64 = 10_000_000;
    /// Time until a proposal is repeated.
    pub(crate) const RETRY_US: u64 = 20_000;
    /// Segments that are copied at the same time.
    const COPYING_MAX: usize = 4;

    /// Declares that a cluster exists.
    pub(crate) fn join_cluster(&mut self) {
        self.has_cluster = true;
    }

    /// Returns true if a cluster decides about replicas.
    pub(crate) fn has_cluster(&self) -> bool {
        self.has_cluster
    }

    /// Sets the bytes of one resync piece, and how long a replica may be away.
    pub(crate) fn set_limits(&mut self, piece_bytes: u32, patience_us: u64) {
        (self.piece_bytes, self.patience_us) = (piece_bytes, patience_us);
    }

    /// Returns the bytes of one resync piece.
    pub(crate) fn piece_bytes(&self) -> u32 {
        self.piece_bytes
    }

    /// Returns true while a replica that went away at that time is waited for.
    pub(crate) fn is_patient(&self, now_us: u64, lost_us: u64) -> bool {
        now_us < lost_us + self.patience_us
    }

    /// Returns the home of a segment.
    #[inline]
    pub(crate) fn home_of(&self, segment: SegmentId) -> NodeId {
        if self.routes.is_empty() {
            return segment.home();
        }
        self.routes.get(&segment).copied().unwrap_or(segment.home())
    }

    /// Returns the newest decision about a segment.
    pub(crate) fn assignment(&self, segment: SegmentId) -> Option<&RoleAssignment> {
        self.assignments.get(segment)
    }

    /// Records a decision and the route to the home; `false` if a newer one is known.
    pub(crate) fn assign(&mut self, assignment: &RoleAssignment) -> bool {
        let id = assignment.segment;
        let order = |known: &RoleAssignment| (known.epoch, known.turn);
        if self.assignments.get(id).is_some_and(|known| order(known) > order(assignment)) {
            return false;
        }
        self.assignments.insert(*assignment);
        if assignment.home == id.home() {
            self.routes.remove(&id);
        } else {
            self.routes.insert(id, assignment.home);
        }
        assert_eq!(self.home_of(id), assignment.home, "calls go to the node that the cluster decided on");
        true
    }

    /// Returns the segments whose homes have lost them.
    pub(crate) fn vacant(&self) -> Vec<SegmentId> {
        self.assignments.values().filter(|known| known.vacant).map(|known| known.segment).collect()
    }

    /// Returns the number of segments with that home whose replicas may take over.
    pub(crate) fn in_sync_at(&self, home: NodeId) -> usize {
        self.assignments.in_sync_at(home)
    }

    /// Returns the number of segments whose role the cluster has yet to confirm.
    pub(crate) fn unconfirmed_count(&self) -> usize {
        self.unconfirmed.len()
    }

    /// Removes the decisions about a segment that was released.
    pub(crate) fn unassign(&mut self, segment: SegmentId) {
        self.assignments.remove(segment);
        self.routes.remove(&segment);
    }

    /// Explains why a segment is not found: it may exist at another node that this node does not know of yet.
    #[cold]
    pub(crate) fn explain_failure(&self, segment: Option<SegmentId>, failure: Failure) -> Failure {
        let Some(segment) = segment.filter(|_| failure == Failure::NotFound && self.has_cluster) else {
            return failure;
        };
        let is_known = self.assignments.get(segment).is_some();
        if is_known || !self.has_lease { Failure::NodeDown } else { failure }
    }

    /// Records that a node was declared dead, or is alive again.
    pub(crate) fn set_dead(&mut self, node: NodeId, is_dead: bool) {
        if is_dead {
            self.dead.insert(node);
        } else {
            self.dead.remove(&node);
        }
    }

    /// Returns true if a node was declared dead.
    pub(crate) fn is_dead(&self, node: NodeId) -> bool {
        self.dead.contains(&node)
    }

    /// Adds a segment that was restored at start.
    pub(crate) fn add_unconfirmed(&mut self, segment: SegmentId) {
        self.unconfirmed.push(segment);
    }

    /// Returns true if the cluster has yet to confirm the role for a segment.
    pub(crate) fn is_unconfirmed(&self, segment: SegmentId) -> bool {
        self.unconfirmed.contains(&segment)
    }

    /// Takes a segment off the list of those whose role is open.
    pub(crate) fn confirm(&mut self, segment: SegmentId) {
        self.unconfirmed.retain(|&unconfirmed| unconfirmed != segment);
    }

    /// Extends the lease; returns the segments whose roles are confirmed by that.
    pub(crate) fn extend_lease(&mut self, until_us: u64) -> Vec<SegmentId> {
        self.has_lease = true;
        self.lease_until_us = self.lease_until_us.max(until_us);
        std::mem::take(&mut self.unconfirmed)
    }

    /// Returns true once this node has heard all that was decided before it started: its first lease comes behind that.
    pub(crate) fn is_caught_up(&self) -> bool {
        self.has_lease
    }

    /// Returns the end of the lease.
    pub(crate) fn lease_until_us(&self) -> u64 {
        self.lease_until_us
    }

    /// Adds work of the home, which it does after this step. Work that follows from other work comes before the rest of that.
    pub(crate) fn add_work(&mut self, now: Now, segment: SegmentId, work: HomeWork) {
        self.work.add(now, segment, work);
    }

    /// Returns true if the home has work.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.work.is_empty()
    }

    /// Takes the next work of the home, with the time of the step from which it follows.
    pub(crate) fn next_work(&mut self) -> Option<(Now, SegmentId, HomeWork)> {
        self.work.next()
    }

    /// Schedules work for a segment on each tick.
    pub(crate) fn begin_transition(&mut self, segment: SegmentId) {
        self.in_transition.insert(segment);
    }

    /// Ends the work for a segment.
    pub(crate) fn end_transition(&mut self, segment: SegmentId) {
        self.in_transition.remove(&segment);
    }

    /// Returns the segments with work.
    pub(crate) fn transitions(&self) -> Vec<SegmentId> {
        self.in_transition.iter().copied().collect()
    }

    /// Drops the segments whose copy has ended; returns true if one more may be copied.
    pub(crate) fn has_room_to_copy(&mut self, is_copying: impl FnMut(&SegmentId) -> bool) -> bool {
        self.copying.retain(is_copying);
        self.copying.len() < Self::COPYING_MAX
    }

    /// Adds a segment that is offered or copied.
    pub(crate) fn begin_copy(&mut self, segment: SegmentId) {
        assert!(self.copying.len() < Self::COPYING_MAX, "room is looked for before a copy begins");
        self.copying.insert(segment);
    }

    /// Forgets the work for a segment that is gone.
    pub(crate) fn forget(&mut self, segment: SegmentId) {
        self.in_transition.remove(&segment);
        self.copying.remove(&segment);
        self.confirm(segment);
    }

    /// Returns true if a node can be a replica: it is connected and not declared dead.
    pub(crate) fn can_serve(&self, peers: &Peers, node: NodeId) -> bool {
        peers.is_up(node) && !self.dead.contains(&node)
    }

    /// Returns the time that a node has to make room for a replica, or to acknowledge a piece.
    pub(crate) fn answer_us(&self) -> u64 {
        self.patience_us / 2
    }

    /// Returns the pause before a node that refused is asked again.
    pub(crate) fn pause_us(&self, why: Refusal) -> u64 {
        if why == Refusal::NotReady { self.patience_us / 10 } else { self.patience_us }
    }
}

/// Refusal of a node to be the replica of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) why: Refusal,
    /// End of the pause, during which other nodes are asked.
    pub(crate) until_us: u64,
}

/// Replication state of one segment here.
#[derive(Debug, Default)]
pub(crate) struct ReplicatedSegment {
    pub(crate) role: Role,
    /// Epoch of the home that this node knows.
    pub(crate) epoch: u32,
    /// Number of decisions that the home has proposed.
    pub(crate) turn: u64,
    /// Partner node: the replica of a home, the home of a replica.
    pub(crate) node: NodeId,
    /// Newest token and timestamp that the home has announced.
    pub(crate) floor: Timestamp,
    /// The replica claims to be the home: no operation is executed until the cluster has decided.
    pub(crate) fenced: bool,
    /// Operation on its way to the replica.
    pub(crate) forward: Option<PendingForward>,
    /// At a replica: the large put whose parts arrive, by its timestamp.
    pub(crate) incoming: Option<(Timestamp, UploadId)>,
    /// Permission changes that wait until the home is alone.
    pub(crate) deferred_updates: Vec<(Principal, PermissionUpdate, Requester)>,
    /// Time to repeat an unanswered message.
    pub(crate) retry_us: u64,
    /// Time since which the in-sync replica is away.
    pub(crate) lost_us: u64,
    /// Nodes that cannot be the replica now. Only connected nodes are asked, so there are no more entries than peers.
    pub(crate) refusals: BTreeMap<NodeId, Refused>,
}

/// Role of this node for a segment.
#[derive(Debug, Default)]
pub(crate) enum Role {
    /// Restored after a restart; the cluster has yet to confirm the role.
    #[default]
    Unconfirmed,
    Home(SyncState),
    Replica,
}

/// State of a home's replica.
#[derive(Debug)]
pub(crate) enum SyncState {
    Alone,
    Offered(ResyncProgress),
    Copying(ResyncProgress),
    /// The replica has all bytes, and has yet to acknowledge this timestamp.
    Joining(Timestamp),
    Pairing,
    Paired,
    Parting,
}

impl SyncState {
    /// Returns true if the state machine has that transition. A home may give up its replica in each state.
    fn allows(&self, next: &Self) -> bool {
        matches!(
            (self, next),
            (Self::Alone, Self::Offered(_))
                | (Self::Offered(_), Self::Copying(_) | Self::Joining(_))
                | (Self::Copying(_), Self::Joining(_))
                | (Self::Joining(_), Self::Pairing)
                | (Self::Pairing, Self::Paired)
                | (Self::Pairing | Self::Paired, Self::Parting)
                | (_, Self::Alone)
        )
    }
}

impl ReplicatedSegment {
    /// Changes the state of the home's replica.
    pub(crate) fn set_sync(&mut self, next: SyncState) {
        let Role::Home(state) = &self.role else { panic!("only a home has a replica: {:?}", self.role) };
        assert!(state.allows(&next), "{state:?} cannot become {next:?}");
        self.role = Role::Home(next);
    }

    /// Returns true if this node is the home, as far as it knows.
    pub(crate) fn is_home(&self) -> bool {
        matches!(self.role, Role::Home(_))
    }

    /// Returns the epoch in which this node took the segment over, as its record keeps it; 0 if it did not, or is no home.
    pub(crate) fn takeover(&self) -> u32 {
        if self.epoch > 1 && !matches!(self.role, Role::Replica) { self.epoch } else { 0 }
    }

    /// Makes this node the first home.
    pub(crate) fn found(&mut self) {
        assert!(self.epoch == 0 || matches!(self.role, Role::Unconfirmed), "a segment has one first home");
        (self.role, self.epoch) = (Role::Home(SyncState::Alone), 1);
    }

    /// Makes this replica the home, without a replica so far.
    pub(crate) fn promote(&mut self, assignment: &RoleAssignment, now_us: u64) {
        assert!(matches!(self.role, Role::Replica), "only a replica takes over: {:?}", self.role);
        assert!(assignment.epoch > self.epoch, "each home has a later epoch than the one before");
        assert!(self.forward.is_none() && self.deferred_updates.is_empty(), "no call waits at a replica");
        let (epoch, turn, node) = (assignment.epoch, assignment.turn, assignment.replica);
        let role = Role::Home(SyncState::Alone);
        *self = Self { role, epoch, turn, node, lost_us: now_us, ..Self::default() };
        assert!(!self.needs_acknowledgement() && !self.blocks_puts(), "a new home commits by itself");
    }

    /// Makes this home the replica of another one. Returns the permission changes that waited.
    pub(crate) fn demote(&mut self, assignment: &RoleAssignment) -> Vec<(Principal, PermissionUpdate, Requester)> {
        assert!(self.is_home() && assignment.epoch > self.epoch, "only a later epoch ends a home: {:?}", self.role);
        assert!(self.forward.is_none(), "a forwarded call is answered before");
        let deferred_updates = std::mem::take(&mut self.deferred_updates);
        let (epoch, node) = (assignment.epoch, assignment.home);
        *self = Self { role: Role::Replica, epoch, node, ..Self::default() };
        assert!(!self.blocks_puts(), "a replica refuses puts, so that none waits");
        deferred_updates
    }

    /// Records an operation that waits for the replica; returns the epoch.
    pub(crate) fn begin_forward(&mut self, forward: PendingForward) -> u32 {
        assert!(self.needs_acknowledgement(), "only an acknowledged replica is waited for: {:?}", self.role);
        assert!(self.forward.is_none(), "one call at a time is on its way to the replica");
        self.forward = Some(forward);
        assert!(self.blocks_puts(), "no other put overtakes it");
        self.epoch
    }

    /// Returns true if this node may answer for the segment now.
    pub(crate) fn serves(&self, now_us: u64, lease_until_us: u64) -> bool {
        match &self.role {
            Role::Home(_) if self.fenced => false,
            Role::Home(SyncState::Pairing | SyncState::Paired | SyncState::Parting) => now_us < lease_until_us,
            Role::Home(_) => true,
            Role::Unconfirmed | Role::Replica => false,
        }
    }

    /// Returns true if puts wait for a forwarded put, for the cluster, or for the resync.
    pub(crate) fn blocks_puts(&self) -> bool {
        self.forward.is_some()
            || match &self.role {
                Role::Home(SyncState::Parting) => true,
                Role::Home(SyncState::Offered(copying) | SyncState::Copying(copying)) => copying.is_behind(),
                _ => false,
            }
    }

    /// Returns true if a put needs the replica's acknowledgement.
    pub(crate) fn needs_acknowledgement(&self) -> bool {
        matches!(
            &self.role,
            Role::Home(SyncState::Joining(_) | SyncState::Pairing | SyncState::Paired | SyncState::Parting)
        )
    }

    pub(crate) fn replication_info(&self) -> ReplicationInfo {
        match &self.role {
            Role::Unconfirmed => ReplicationInfo::Unsure,
            Role::Home(SyncState::Paired) => ReplicationInfo::InSync,
            Role::Home(SyncState::Offered(_) | SyncState::Copying(_) | SyncState::Joining(_) | SyncState::Pairing) => {
                ReplicationInfo::Copying
            }
            Role::Home(SyncState::Alone | SyncState::Parting) | Role::Replica => ReplicationInfo::Degraded,
        }
    }

    /// Returns why a segment is degraded, if a node was chosen for its replica.
    pub(crate) fn degraded(&self, is_up: bool) -> Option<DegradedReason> {
        if self.node == NodeId::NONE || self.replication_info() != ReplicationInfo::Degraded {
            return None;
        }
        Some(match self.refusals.get(&self.node) {
            Some(refused) => DegradedReason::of_refusal(refused.why),
            None if is_up => DegradedReason::Waiting,
            None => DegradedReason::Away,
        })
    }
}

/// Change to apply to a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentChange {
    /// `None` for a change that no caller waits for.
    pub(crate) requester: Option<Requester>,
    pub(crate) parts: RangeSet,
    pub(crate) source: CommitSource,
    /// The row of a table.
    pub(crate) row: Option<RowCommit>,
    /// Word of the answer besides the version.
    pub(crate) word: u64,
    pub(crate) deadline_us: u64,
}

/// Progress of a resync.
#[derive(Debug, Default)]
pub(crate) struct ResyncProgress {
    /// Offered version.
    stamp: (Version, Timestamp),
    /// End of the part that was sent.
    cursor: u64,
    /// Ranges of that part which puts have changed since.
    dirty: VecDeque<(u64, u64)>,
    /// Pieces that the replica has not acknowledged.
    out: usize,
}

impl ResyncProgress {
    /// Makes the state of an offer of this version, with a part that the replica may have already.
    pub(crate) fn of_offer(stamp: (Version, Timestamp), cursor: u64) -> Self {
        Self { stamp, cursor, ..Self::default() }
    }

    /// Returns true if this is the version that was offered.
    pub(crate) fn is_offer_of(&self, stamp: (Version, Timestamp)) -> bool {
        self.stamp == stamp
    }

    /// Returns true if puts have to wait.
    pub(crate) fn is_behind(&self) -> bool {
        self.dirty.len() > RESYNC_DIRTY_MAX / 2
    }

    /// Records a put, for the part of it that was sent already.
    pub(crate) fn note_put(&mut self, range: &Range) {
        let end = (range.offset + u64::from(range.bytes)).min(self.cursor);
        if range.offset < end {
            self.dirty.push_back((range.offset, end));
        }
    }

    /// Returns true if one more piece may be in flight.
    pub(crate) fn has_room(&self) -> bool {
        self.out < RESYNC_PIECES_MAX
    }

    /// Returns true if no piece is in flight.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.out == 0
    }

    /// Takes the next piece of at most `piece` bytes, for a segment of `size` bytes; it is in flight from now on.
    pub(crate) fn begin_piece(&mut self, size: u64, piece: u32) -> Option<(u64, u32)> {
        assert!(self.has_room() && self.cursor <= size, "a piece is begun only where it may be in flight");
        let next = self.next(size, piece)?;
        self.out += 1;
        assert!(next.0 + u64::from(next.1) <= self.cursor, "a piece lies in the part that counts as sent");
        Some(next)
    }

    fn next(&mut self, size: u64, piece: u32) -> Option<(u64, u32)> {
        if let Some((from, end)) = self.dirty.pop_front() {
            let bytes = (end - from).min(piece.into());
            if from + bytes < end {
                self.dirty.push_front((from + bytes, end));
            }
            return Some((from, bytes as u32));
        }
        let bytes = (size - self.cursor).min(piece.into());
        let from = self.cursor;
        self.cursor += bytes;
        (bytes > 0).then_some((from, bytes as u32))
    }

    /// Returns a piece that could not be sent.
    pub(crate) fn return_piece(&mut self, from: u64, bytes: u32) {
        assert!(self.out > 0, "only a piece in flight is returned");
        self.out -= 1;
        self.dirty.push_front((from, from + u64::from(bytes)));
    }

    /// Records the acknowledgement of a piece. A replica may acknowledge more than it was sent.
    pub(crate) fn end_piece(&mut self) {
        self.out = self.out.saturating_sub(1);
    }
}
