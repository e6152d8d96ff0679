//! Handler of calls of local clients for segments whose home is another node.

use crate::ids::StepId;
use crate::requester::LocalCaller;
use crate::state::name_claims::NameClaims;
use crate::state::output::Output;
use crate::state::peers::Peers;
use crate::state::pending::{NameLookup, Pending, PendingOperations, WaitState};
use crate::state::read_cache::ReadCache;
use crate::state::remote_locks::RemoteLocks;
use crate::state::replication::Replicas;
use crate::state::segments::Segments;
use ddss_core::{ArenaRange, ClientId, Failure, HybridClock, NodeId, SegmentId};
use std::collections::{BTreeMap, BTreeSet};

/// Borrows the state of calls at other nodes and the output. Of the segments here only memory and names are used.
pub(crate) struct Remote<'a> {
    pub(crate) node: NodeId,
    pub(crate) reads_overlap: bool,
    pub(crate) operations: &'a mut PendingOperations,
    pub(crate) lookups: &'a mut BTreeMap<StepId, NameLookup>,
    pub(crate) remote_locks: &'a mut RemoteLocks,
    /// Clients with large puts at other nodes.
    pub(crate) remote_uploaders: &'a mut BTreeSet<ClientId>,
    pub(crate) read_cache: &'a mut ReadCache,
    /// The cluster's name directory, if this node belongs to a cluster.
    pub(crate) directory: Option<&'a NameClaims>,
    pub(crate) replicas: &'a Replicas,
    pub(crate) segments: &'a mut Segments,
    pub(crate) peers: &'a mut Peers,
    pub(crate) clock: &'a mut HybridClock,
    pub(crate) output: &'a mut Output,
}

/// Returns the range of an operation's text in a message.
pub(crate) fn text_range(text: &[u8]) -> ArenaRange {
    ArenaRange { slot: 0, bytes: text.len() as u32 }
}

impl Remote<'_> {
    /// Returns the home of a segment.
    #[inline]
    pub(crate) fn home_of(&self, segment: SegmentId) -> NodeId {
        self.replicas.home_of(segment)
    }

    /// Records an operation that waits for another node.
    #[inline]
    pub(crate) fn begin(&mut self, caller: &LocalCaller, wait: WaitState) -> Result<StepId, Failure> {
        let LocalCaller { channel, request, principal, deadline_us, timeout_us } = *caller;
        let on = wait.segment().map_or(NodeId::NONE, |segment| self.home_of(segment));
        let pending = Pending { channel, request, principal, deadline_us, timeout_us, on, wait };
        self.operations.insert(pending).map_err(Failure::Busy)
    }

    /// Returns the home of a segment, if it is another node and connected.
    #[inline]
    pub(crate) fn reachable_home(&mut self, segment: SegmentId) -> Result<NodeId, Failure> {
        let home = self.home_of(segment);
        match self.peers.get(home) {
            None => Err(Failure::NotFound),
            Some(peer) if peer.is_up() => Ok(home),
            Some(_) => Err(Failure::NodeDown),
        }
    }
}
