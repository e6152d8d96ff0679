//! Handler of everything that this node does as the home of segments, or as their replica.

use crate::commits::handler::Commits;
use crate::locks::handler::Locks;
use crate::locks::watches::Watches;
use crate::outgoing_bytes::OutgoingBytes;
use crate::replica::handler::ReplicaStore;
use crate::replication::handler::Replication;
use crate::state::memory::uploads::Uploads;
use crate::state::name_claims::NameClaims;
use crate::state::output::Output;
use crate::state::peers::Peers;
use crate::state::replication::Replicas;
use crate::state::segments::Segments;
use crate::uploads::memory::UploadMemory;
use ddss_core::HybridClock;

/// Borrows the state of the home's side and the output. Calls that local clients have at other nodes are out of reach.
pub(crate) struct Home<'a> {
    pub(crate) segments: &'a mut Segments,
    pub(crate) replicas: &'a mut Replicas,
    pub(crate) peers: &'a mut Peers,
    /// Large puts whose parts arrive.
    pub(crate) uploads: &'a mut Uploads,
    /// The cluster's name directory, if this node belongs to a cluster.
    pub(crate) directory: &'a mut Option<NameClaims>,
    pub(crate) clock: &'a mut HybridClock,
    pub(crate) output: &'a mut Output,
}

impl Home<'_> {
    /// Time that a peer has to forget a released segment before it is disconnected.
    pub(crate) const FORGET_US: u64 = 5_000_000;

    /// Returns the handler of bytes for other nodes.
    pub(crate) fn outgoing_bytes(&mut self) -> OutgoingBytes<'_> {
        let Home { peers, segments, output, .. } = self;
        OutgoingBytes { peers, segments, output }
    }

    /// Returns the handler of locks and of the operations that wait in a lock queue.
    pub(crate) fn locks(&mut self) -> Locks<'_> {
        let Home { segments, uploads, output, .. } = self;
        Locks { segments, uploads, output }
    }

    /// Returns the handler of commits.
    #[inline]
    pub(crate) fn commits(&mut self) -> Commits<'_> {
        let Home { segments, uploads, clock, output, .. } = self;
        Commits { segments, uploads, clock, output }
    }

    /// Returns the handler of replicas.
    pub(crate) fn replication(&mut self) -> Replication<'_> {
        let Home { segments, replicas, peers, uploads, clock, output, .. } = self;
        Replication { segments, replicas, peers, uploads, clock, output }
    }

    /// Returns the handler of what other homes send to their replicas here.
    pub(crate) fn replica_store(&mut self) -> ReplicaStore<'_> {
        let Home { segments, replicas, uploads, clock, output, .. } = self;
        ReplicaStore { segments, replicas, uploads, clock, output }
    }

    /// Returns the handler of watches.
    pub(crate) fn watches(&mut self) -> Watches<'_> {
        Watches { segments: self.segments, output: self.output }
    }

    /// Returns the handler of the memory of uploads.
    pub(crate) fn upload_memory(&mut self) -> UploadMemory<'_> {
        UploadMemory { segments: self.segments, uploads: self.uploads }
    }
}
