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
use ddss_core::{ClientId, Failure, HybridClock, ListPage, NodeId, Outcome, SegmentId};
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

    /// Ends a pending operation: frees its buffers and invalidates the cached copy of a segment that it may have
    /// changed.
    #[inline]
    pub(crate) fn end_pending(&mut self, step: StepId) -> Option<Pending> {
        let pending = self.operations.remove(step)?;
        if let Some(table) = pending.wait.table() {
            self.output.free_buffer(table);
        }
        if let WaitState::Unlock { token, segment } = pending.wait {
            // Whatever the outcome, the client no longer counts on the lock.
            self.remote_locks.remove(segment, token);
        }
        if let Some(segment) = pending.wait.changes() {
            self.invalidate_cached(segment);
        }
        Some(pending)
    }

    /// Handles the deadline of an operation. While the fabric may still touch the client's arena there is no end yet.
    /// The client has the same deadline, stops waiting by itself and keeps the range until the end.
    pub(crate) fn expire(&mut self, step: StepId) {
        let Some(pending) = self.operations.get_mut(step) else { return };
        let outcome = match pending.wait {
            WaitState::Fetch(_)
            | WaitState::Put { ticket: Some(_), .. }
            | WaitState::Part { ticket: Some(_), .. }
            | WaitState::LateLock { .. } => return,
            // A late grant is given back when its message arrives.
            WaitState::Lock { segment, .. } => return self.expire_lock(step, segment),
            // A list continues with the next node.
            WaitState::Page { node, list: true, .. } => {
                let Some(pending) = self.end_pending(step) else { return };
                return self.output.complete_page(
                    pending.channel,
                    pending.request,
                    ListPage { node, away: true, ..ListPage::default() },
                );
            }
            WaitState::Put { .. }
            | WaitState::Release { .. }
            | WaitState::Allocate { .. }
            | WaitState::Unlock { .. }
            | WaitState::Renew { .. }
            | WaitState::Answer { .. } => Outcome::Indeterminate(Failure::TimedOut),
            WaitState::Lookup
            | WaitState::Info { .. }
            | WaitState::Home(_)
            | WaitState::Page { .. }
            | WaitState::Part { .. }
            | WaitState::Version { .. } => Outcome::Failed(Failure::TimedOut),
        };
        self.lookups.remove(&step);
        if let Some(pending) = self.end_pending(step) {
            self.output.finish(&pending, outcome);
        }
    }

    fn expire_lock(&mut self, step: StepId, segment: SegmentId) {
        let Some(pending) = self.operations.get_mut(step) else { return };
        pending.wait = WaitState::LateLock { segment };
        let pending = *pending;
        self.output.finish(&pending, Outcome::Failed(Failure::TimedOut));
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
