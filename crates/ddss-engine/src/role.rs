//! Roles of nodes for a replicated segment: decisions of the cluster, and proposals of an engine.

use ddss_core::{Name, NodeId, SegmentId};

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

/// Numbers of replicated segments at home on a node, by the state of their replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplicaCounts {
    /// The replica may take over.
    pub in_sync: usize,
    /// It is being copied.
    pub copying: usize,
    /// There is none.
    pub degraded: usize,
    /// The cluster has not confirmed the role of this node.
    pub unsure: usize,
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
