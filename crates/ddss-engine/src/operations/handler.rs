//! Handler of operations on segments whose home is this node.

use crate::commits::handler::Commits;
use crate::locks::handler::Locks;
use crate::locks::sweep_calls::SweepCalls;
use crate::locks::watches::Watches;
use crate::outgoing_bytes::OutgoingBytes;
use crate::replication::handler::Replication;
use crate::state::memory::uploads::Uploads;
use crate::state::output::Output;
use crate::state::peers::Peers;
use crate::state::replication::Replicas;
use crate::state::segments::Segments;
use ddss_core::HybridClock;

/// Borrows the segments, and what a change of them needs: the memory of its bytes, the clock, and the replicas.
pub(crate) struct Operations<'a> {
    pub(crate) segments: &'a mut Segments,
    pub(crate) replicas: &'a mut Replicas,
    pub(crate) peers: &'a mut Peers,
    pub(crate) uploads: &'a mut Uploads,
    pub(crate) clock: &'a mut HybridClock,
    pub(crate) output: &'a mut Output,
}

impl Operations<'_> {
    /// Returns the handler of locks and of the operations that wait in a lock queue.
    pub(crate) fn locks(&mut self) -> Locks<'_> {
        Locks { segments: self.segments, uploads: self.uploads, output: self.output }
    }

    /// Returns the handler of watches.
    pub(crate) fn watches(&mut self) -> Watches<'_> {
        Watches { segments: self.segments, output: self.output }
    }

    /// Returns the handler of calls that wait for a sweep.
    pub(crate) fn sweep_calls(&mut self) -> SweepCalls<'_> {
        SweepCalls { segments: self.segments, output: self.output }
    }

    /// Returns the handler of commits.
    #[inline]
    pub(crate) fn commits(&mut self) -> Commits<'_> {
        Commits { segments: self.segments, uploads: self.uploads, clock: self.clock, output: self.output }
    }

    /// Returns the handler of bytes for other nodes.
    pub(crate) fn outgoing_bytes(&mut self) -> OutgoingBytes<'_> {
        OutgoingBytes { peers: self.peers, segments: self.segments, output: self.output }
    }

    /// Returns the handler of replicas.
    pub(crate) fn replication(&mut self) -> Replication<'_> {
        let Self { segments, replicas, peers, uploads, clock, output } = self;
        Replication { segments, replicas, peers, uploads, clock, output }
    }
}
