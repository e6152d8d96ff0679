//! State of the stub of the Raft group: its log of decisions, and what each node has received of it.

use ddss_core::SegmentId;
use ddss_engine::{Proposal, RoleAssignment};
use std::collections::BTreeMap;

/// A message of a node to the Raft stub.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NodeMessage {
    /// A heartbeat, with the time of sending.
    Here(u64),
    /// A proposal.
    Decide(Proposal),
}

/// A decision in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Decision {
    RoleAssigned(RoleAssignment),
    Gone(SegmentId),
    Dead(usize),
    Alive(usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) heard_us: u64,
    pub(crate) alive: bool,
    pub(crate) run: u64,
}

/// State of the Raft stub.
#[derive(Debug, Default)]
pub(crate) struct RaftStub {
    pub(crate) assignments: BTreeMap<SegmentId, RoleAssignment>,
    pub(crate) lives: Vec<Life>,
    pub(crate) news: Vec<Decision>,
    /// Number of decisions that each node has received.
    pub(crate) told: Vec<usize>,
}

impl RaftStub {
    pub(crate) fn new(nodes: usize) -> Self {
        let lives = vec![Life { heard_us: 0, alive: true, run: 0 }; nodes];
        Self { lives, told: vec![0; nodes], ..Self::default() }
    }

    /// Resends all decisions to a restarted node.
    pub(crate) fn resend_decisions(&mut self, node: usize) {
        self.told[node] = 0;
    }
}
