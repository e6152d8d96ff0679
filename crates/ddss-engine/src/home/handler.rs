//! Handler of everything that this node does as the home of segments, or as their replica.

use crate::lifecycle::handler::Lifecycle;
use crate::operations::handler::Operations;
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
    /// Returns the handler of operations on segments at home here.
    #[inline(always)]
    pub(crate) fn operations(&mut self) -> Operations<'_> {
        let Self { segments, replicas, peers, uploads, clock, output, .. } = self;
        Operations { segments, replicas, peers, uploads, clock, output }
    }

    /// Returns the handler of the creation and the release of segments.
    pub(crate) fn lifecycle(&mut self) -> Lifecycle<'_> {
        let Self { segments, replicas, peers, uploads, directory, clock, output } = self;
        Lifecycle { segments, replicas, peers, uploads, directory, clock, output }
    }

    /// Returns the handler of replicas.
    pub(crate) fn replication(&mut self) -> Replication<'_> {
        let Self { segments, replicas, peers, uploads, clock, output, .. } = self;
        Replication { segments, replicas, peers, uploads, clock, output }
    }

    /// Returns the handler of what other homes send to their replicas here.
    pub(crate) fn replica_store(&mut self) -> ReplicaStore<'_> {
        let Self { segments, replicas, uploads, clock, output, .. } = self;
        ReplicaStore { segments, replicas, uploads, clock, output }
    }

    /// Returns the handler of bytes for other nodes.
    pub(crate) fn outgoing_bytes(&mut self) -> OutgoingBytes<'_> {
        OutgoingBytes { peers: self.peers, segments: self.segments, output: self.output }
    }

    /// Returns the handler of the memory of uploads.
    pub(crate) fn upload_memory(&mut self) -> UploadMemory<'_> {
        UploadMemory { segments: self.segments, uploads: self.uploads }
    }
}
