//! What a mirrored segment is on this node: at home with its mirror in some state, or the mirror of another home.
//!
//! ```text
//!             offer            Empty             all sent            heard          decided
//!   Alone ───────────► Offered ─────► Copying ───────────► Joining ───────► Pairing ───────► Paired
//!     ▲                   │  Whole                            ▲                │                │
//!     │                   └───────────────────────────────────┘                │ the mirror is lost
//!     │                            decided                                     ▼                ▼
//!     └─────────────────────────────────────────────────────────────────────── Parting ◄────────┘
//! ```
//!
//! Left of *Joining* the home commits by itself, since nobody could take over. From there on each put waits until the
//! mirror has it, and from *Pairing* to *Parting* the cluster may make the mirror the home at any time: so this node
//! serves the segment as long as its lease lasts, and no longer.

use super::forward::PendingForward;
use super::resync::ResyncProgress;
use crate::engine::state::lock_queue::Requester;
use crate::engine::state::peers::Peers;
use crate::model::segment::{Name, Principal};
use crate::request::listing::{DegradedReason, ReplicationInfo};
use crate::request::operation::PermissionUpdate;
use crate::{NodeId, Refusal, SegmentId, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What the cluster has decided about a mirrored segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleAssignment {
    /// Which.
    pub segment: SegmentId,
    /// Its home.
    pub home: NodeId,
    /// Its mirror, or who shall be it.
    pub mirror: NodeId,
    /// Which of its homes this is, one after the other; from 1 on.
    pub epoch: u32,
    /// How often this home had something decided.
    pub turn: u64,
    /// The mirror has all that was acknowledged: it may take over.
    pub paired: bool,
    /// The home has said that it lost the segment.
    pub vacant: bool,
}

/// What an engine wants decided. Each can be said twice and happens once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// About which segment.
    pub segment: SegmentId,
    /// Its name.
    pub name: Name,
    /// In which epoch: in another one it is refused.
    pub epoch: u32,
    /// Which decision of this home it is: one that is not newer than the last is refused.
    pub turn: u64,
    /// What.
    pub word: ProposalKind,
}

/// What is to be decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProposalKind {
    /// Said by the home: that node has all that was acknowledged and may take over.
    Pair(NodeId),
    /// Said by the home: its mirror may not take over.
    Part,
    /// Said by the mirror: the home is dead, or has lost the segment; let this node be the home.
    TakeOver,
}

/// All that a node knows of mirrored segments.
#[derive(Debug)]
pub(crate) struct Replicas {
    /// There is a cluster that decides.
    pub(crate) agreed: bool,
    /// What was decided, of the segments of all nodes.
    pub(crate) duties: HashMap<SegmentId, RoleAssignment>,
    /// The homes of those that were taken over.
    pub(crate) routes: HashMap<SegmentId, NodeId>,
    /// The nodes that were declared dead.
    pub(crate) dead: BTreeSet<NodeId>,
    /// Segments found after a restart, until the cluster has said what they are.
    pub(crate) unsure: Vec<SegmentId>,
    /// Those for which something is to be done or waited for.
    pub(crate) restless: BTreeSet<SegmentId>,
    /// Those that are being offered or copied.
    pub(crate) copying: BTreeSet<SegmentId>,
    /// The cluster has been heard.
    pub(crate) heard: bool,
    /// Until then nobody can have taken over what is at home here.
    pub(crate) lease_until_us: u64,
    /// Bytes of one piece of a copy.
    pub(crate) piece_bytes: u32,
    /// How long a mirror may be away until another node is made the mirror.
    pub(crate) patience_us: u64,
}

impl Default for Replicas {
    fn default() -> Self {
        Self {
            agreed: false,
            duties: HashMap::new(),
            routes: HashMap::new(),
            dead: BTreeSet::new(),
            unsure: Vec::new(),
            restless: BTreeSet::new(),
            copying: BTreeSet::new(),
            heard: false,
            lease_until_us: 0,
            piece_bytes: crate::limits::MIRROR_PIECE_BYTES,
            patience_us: Self::PATIENCE_US,
        }
    }
}

impl Replicas {
    const PATIENCE_US: u64 = 10_000_000;
    /// How long until what was to be decided is said again.
    pub(crate) const RETRY_US: u64 = 20_000;
    /// Segments that are copied at the same time.
    pub(crate) const COPYING_MAX: usize = 4;

    /// Whether a node can be the mirror of anything: it can be reached, and the cluster has not declared it dead.
    pub(crate) fn can_serve(&self, peers: &Peers, node: NodeId) -> bool {
        peers.is_up(node) && !self.dead.contains(&node)
    }

    /// How long a node may take to make room for a copy, or to take the next piece of it.
    pub(crate) fn answer_us(&self) -> u64 {
        self.patience_us / 2
    }

    /// How long until a node is asked again that could not be a mirror.
    pub(crate) fn pause_us(&self, why: Refusal) -> u64 {
        if why == Refusal::NotReady { self.patience_us / 10 } else { self.patience_us }
    }
}

/// What a node said that cannot be the mirror of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) why: Refusal,
    /// Until then others are asked.
    pub(crate) until_us: u64,
}

/// One mirrored segment here.
#[derive(Debug, Default)]
pub(crate) struct ReplicatedSegment {
    pub(crate) role: Role,
    /// Which of its homes, one after the other, is the one of this node's time.
    pub(crate) epoch: u32,
    /// How often the home had something decided.
    pub(crate) turn: u64,
    /// The other node: the mirror of a home, the home of a mirror.
    pub(crate) node: NodeId,
    /// The newest token and timestamp that the home has told.
    pub(crate) floor: Timestamp,
    /// The mirror says that it is the home: until the cluster has said so, too, nothing is done.
    pub(crate) fenced: bool,
    /// What is on its way to the mirror.
    pub(crate) forward: Option<PendingForward>,
    /// New permissions, until the mirror has been let go.
    pub(crate) permits: Vec<(Principal, PermissionUpdate, Requester)>,
    /// When to say again what was not answered.
    pub(crate) retry_us: u64,
    /// Since when the mirror is away that was in sync.
    pub(crate) lost_us: u64,
    /// The nodes that cannot be the mirror now: of those that can be reached, so there are no more of them than peers.
    pub(crate) refusals: BTreeMap<NodeId, Refused>,
}

/// What this node is for a segment.
#[derive(Debug, Default)]
pub(crate) enum Role {
    /// It was, before it was started again, and has yet to hear what it is.
    #[default]
    Unsure,
    Home(SyncState),
    Copy,
}

/// How a home stands with its mirror.
#[derive(Debug)]
pub(crate) enum SyncState {
    Alone,
    Offered(ResyncProgress),
    Copying(ResyncProgress),
    /// The mirror is whole, and has to hear of that timestamp.
    Joining(Timestamp),
    Pairing,
    Paired,
    Parting,
}

impl ReplicatedSegment {
    /// Whether this node may answer for the segment now.
    pub(crate) fn serves(&self, now_us: u64, lease_until_us: u64) -> bool {
        match &self.role {
            Role::Home(_) if self.fenced => false,
            Role::Home(SyncState::Pairing | SyncState::Paired | SyncState::Parting) => now_us < lease_until_us,
            Role::Home(_) => true,
            Role::Unsure | Role::Copy => false,
        }
    }

    /// Whether puts have to wait for one that is under way, for the cluster, or for the copying.
    pub(crate) fn holds_puts(&self) -> bool {
        self.forward.is_some()
            || match &self.role {
                Role::Home(SyncState::Parting) => true,
                Role::Home(SyncState::Offered(copying) | SyncState::Copying(copying)) => copying.is_behind(),
                _ => false,
            }
    }

    /// Whether a put waits for the mirror.
    pub(crate) fn needs_word(&self) -> bool {
        matches!(
            &self.role,
            Role::Home(SyncState::Joining(_) | SyncState::Pairing | SyncState::Paired | SyncState::Parting)
        )
    }

    pub(crate) fn mirroring(&self) -> ReplicationInfo {
        match &self.role {
            Role::Unsure => ReplicationInfo::Unsure,
            Role::Home(SyncState::Paired) => ReplicationInfo::InSync,
            Role::Home(SyncState::Offered(_) | SyncState::Copying(_) | SyncState::Joining(_) | SyncState::Pairing) => {
                ReplicationInfo::Copying
            }
            Role::Home(SyncState::Alone | SyncState::Parting) | Role::Copy => ReplicationInfo::Degraded,
        }
    }

    /// Why a degraded segment is that, if a node was found for its mirror.
    pub(crate) fn degraded(&self, is_up: bool) -> Option<DegradedReason> {
        if self.node == NodeId::NOBODY || self.mirroring() != ReplicationInfo::Degraded {
            return None;
        }
        Some(match self.refusals.get(&self.node) {
            Some(refused) => DegradedReason::Refused(refused.why),
            None if is_up => DegradedReason::Waiting,
            None => DegradedReason::Away,
        })
    }
}
