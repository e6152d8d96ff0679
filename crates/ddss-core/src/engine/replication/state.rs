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

use super::forward::PendingForward;
use super::resync::ResyncProgress;
use crate::engine::state::lock_queue::Requester;
use crate::engine::state::peers::Peers;
use crate::model::segment::{Name, Principal};
use crate::request::listing::{DegradedReason, ReplicationInfo};
use crate::request::operation::PermissionUpdate;
use crate::{NodeId, Refusal, SegmentId, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Decision of the cluster about a replicated segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleAssignment {
    /// Segment of the decision.
    pub segment: SegmentId,
    /// Home of the segment.
    pub home: NodeId,
    /// Replica of the segment, or the node that is to become it.
    pub replica: NodeId,
    /// Number of the home in the order of homes, from 1 on.
    pub epoch: u32,
    /// Number of decisions that this home has proposed.
    pub turn: u64,
    /// The replica has every acknowledged put and may take over.
    pub paired: bool,
    /// The home has reported that it lost the segment.
    pub vacant: bool,
}

/// Decision that an engine proposes. A repeated proposal takes effect once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// Segment of the proposal.
    pub segment: SegmentId,
    /// Name of the segment.
    pub name: Name,
    /// Epoch of the proposal: in another epoch it is refused.
    pub epoch: u32,
    /// Number of this home's decision: one that is not newer than the last is refused.
    pub turn: u64,
    /// Content of the proposal.
    pub word: ProposalKind,
}

/// Content of a [`Proposal`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProposalKind {
    /// From the home: that node has every acknowledged put and may take over.
    Pair(NodeId),
    /// From the home: its replica may not take over.
    Part,
    /// From the replica: the home is dead or has lost the segment, so this node should be the home.
    TakeOver,
}

/// Replication state of a node, over all segments.
#[derive(Debug)]
pub(crate) struct Replicas {
    /// A cluster exists that decides.
    pub(crate) has_cluster: bool,
    /// Decisions about the segments of all nodes.
    pub(crate) assignments: HashMap<SegmentId, RoleAssignment>,
    /// Homes of the segments that were taken over.
    pub(crate) routes: HashMap<SegmentId, NodeId>,
    /// Nodes that were declared dead.
    pub(crate) dead: BTreeSet<NodeId>,
    /// Segments restored at start whose role the cluster has not confirmed.
    pub(crate) unconfirmed: Vec<SegmentId>,
    /// Segments in a transition: work is due or awaited.
    pub(crate) in_transition: BTreeSet<SegmentId>,
    /// Segments that are being offered or copied.
    pub(crate) copying: BTreeSet<SegmentId>,
    /// The cluster has confirmed this node's lease at least once.
    pub(crate) has_lease: bool,
    /// End of the lease: until then no other node takes over a segment at home here.
    pub(crate) lease_until_us: u64,
    /// Bytes of one resync piece.
    pub(crate) piece_bytes: u32,
    /// Time that a replica may be away before another node is chosen.
    pub(crate) patience_us: u64,
}

impl Default for Replicas {
    fn default() -> Self {
        Self {
            has_cluster: false,
            assignments: HashMap::new(),
            routes: HashMap::new(),
            dead: BTreeSet::new(),
            unconfirmed: Vec::new(),
            in_transition: BTreeSet::new(),
            copying: BTreeSet::new(),
            has_lease: false,
            lease_until_us: 0,
            piece_bytes: crate::limits::RESYNC_PIECE_BYTES,
            patience_us: Self::PATIENCE_US,
        }
    }
}

impl Replicas {
    const PATIENCE_US: u64 = 10_000_000;
    /// Time until a proposal is repeated.
    pub(crate) const RETRY_US: u64 = 20_000;
    /// Segments that are copied at the same time.
    pub(crate) const COPYING_MAX: usize = 4;

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

impl ReplicatedSegment {
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
            Some(refused) => DegradedReason::Refused(refused.why),
            None if is_up => DegradedReason::Waiting,
            None => DegradedReason::Away,
        })
    }
}
