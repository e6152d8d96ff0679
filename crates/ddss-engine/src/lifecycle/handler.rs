//! Handler of the creation and the release of segments and replicas here.

use crate::locks::handler::Locks;
use crate::locks::watches::Watches;
use crate::replica::handler::ReplicaStore;
use crate::replication::handler::Replication;
use crate::state::memory::uploads::Uploads;
use crate::state::name_claims::NameClaims;
use crate::state::output::Output;
use crate::state::peers::Peers;
use crate::state::replication::Replicas;
use crate::state::segments::Segments;
use ddss_core::HybridClock;

/// Borrows the segments, their names in the cluster, and what ends with a segment.
pub(crate) struct Lifecycle<'a> {
    pub(crate) segments: &'a mut Segments,
    pub(crate) replicas: &'a mut Replicas,
    pub(crate) peers: &'a mut Peers,
    pub(crate) uploads: &'a mut Uploads,
    /// The cluster's name directory, if this node belongs to a cluster.
    pub(crate) directory: &'a mut Option<NameClaims>,
    pub(crate) clock: &'a mut HybridClock,
    pub(crate) output: &'a mut Output,
}

impl Lifecycle<'_> {
    /// Time that a peer has to forget a released segment before it is disconnected.
    pub(crate) const FORGET_US: u64 = 5_000_000;

    /// Returns the handler of locks and of the operations that wait in a lock queue.
    pub(crate) fn locks(&mut self) -> Locks<'_> {
        Locks { segments: self.segments, uploads: self.uploads, output: self.output }
    }

    /// Returns the handler of watches.
    pub(crate) fn watches(&mut self) -> Watches<'_> {
        Watches { segments: self.segments, output: self.output }
    }

    /// Returns the handler of the replicas of segments at home here.
    pub(crate) fn replication(&mut self) -> Replication<'_> {
        let Self { segments, replicas, peers, uploads, clock, output, .. } = self;
        Replication { segments, replicas, peers, uploads, clock, output }
    }

    /// Returns the handler of what other homes send to their replicas here.
    pub(crate) fn replica_store(&mut self) -> ReplicaStore<'_> {
        let Self { segments, replicas, uploads, clock, output, .. } = self;
        ReplicaStore { segments, replicas, uploads, clock, output }
    }
}
