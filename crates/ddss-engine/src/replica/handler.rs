//! Handler of what other homes send to their replicas here.

use crate::action::Action;
use crate::commits::handler::Commits;
use crate::state::memory::uploads::Uploads;
use crate::state::output::Output;
use crate::state::replication::Replicas;
use crate::state::segments::{Segment, Segments};
use crate::uploads::memory::UploadMemory;
use ddss_core::{HybridClock, Message, NodeId, OfferReply, ReplicaAck, SegmentId, Timestamp, Version};

/// Bytes that a home sends: where they belong, and the home's number of their place in the staging memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicaPiece {
    pub(crate) id: SegmentId,
    pub(crate) epoch: u32,
    pub(crate) number: u64,
}

/// Borrows the segments, among them the replicas, and what a commit needs.
pub(crate) struct ReplicaStore<'a> {
    pub(crate) segments: &'a mut Segments,
    pub(crate) replicas: &'a mut Replicas,
    /// Large puts whose parts arrive.
    pub(crate) uploads: &'a mut Uploads,
    pub(crate) clock: &'a mut HybridClock,
    pub(crate) output: &'a mut Output,
}

impl ReplicaStore<'_> {
    pub(super) fn commits(&mut self) -> Commits<'_> {
        let ReplicaStore { segments, uploads, clock, output, .. } = self;
        Commits { segments, uploads, clock, output }
    }

    pub(super) fn upload_memory(&mut self) -> UploadMemory<'_> {
        UploadMemory { segments: self.segments, uploads: self.uploads }
    }

    pub(crate) fn send_offer_reply(&mut self, node: NodeId, segment: SegmentId, epoch: u32, reply: OfferReply) {
        self.output.send(node, Message::OfferAnswer { segment, epoch, reply });
    }

    /// Returns the newest epoch of a segment that this node knows.
    pub(crate) fn epoch_of(&mut self, id: SegmentId) -> u32 {
        let decided = self.replicas.assignment(id).map_or(0, |assignment| assignment.epoch);
        self.segments.replication_of(id).map_or(0, |replication| replication.epoch).max(decided)
    }

    pub(crate) fn stamp(&mut self, id: SegmentId, at: u64, stamp: (Version, Timestamp)) {
        let (version, timestamp) = stamp;
        if let Ok(segment) = self.segments.get_mut(id) {
            segment.start_over(stamp);
        }
        self.output.push(Action::WriteVersion { at, version, timestamp });
    }

    /// Returns the pool offset of the replica that a home writes to; tells the home if there is none or it has another
    /// home.
    pub(crate) fn replica_for(&mut self, node: NodeId, sent: &ReplicaPiece) -> Option<u64> {
        let newest = self.epoch_of(sent.id);
        let is_open = |segment: &&Segment| segment.is_replica() && !segment.has_large_commit();
        let segment = self.segments.get(sent.id).ok().filter(is_open);
        let at = segment.map(|segment| segment.at);
        let replication = segment.and_then(|segment| segment.replication.as_deref());
        if at.is_some()
            && replication.is_some_and(|replication| (replication.node, replication.epoch) == (node, sent.epoch))
        {
            return at;
        }
        if newest > sent.epoch {
            let current = ReplicaPiece { epoch: newest, ..*sent };
            self.refuse_piece(node, &current, OfferReply::Fenced);
        } else {
            self.refuse_piece(node, sent, OfferReply::Empty);
        }
        None
    }

    /// Refuses bytes that a home has sent, and frees their place in the staging memory.
    pub(crate) fn refuse_piece(&mut self, node: NodeId, sent: &ReplicaPiece, reply: OfferReply) {
        if sent.number != Message::NOT_STAGED {
            self.output.send(node, Message::Taken { number: sent.number });
        }
        self.send_offer_reply(node, sent.id, sent.epoch, reply);
    }

    pub(crate) fn acknowledge(
        &mut self,
        node: NodeId,
        sent: &ReplicaPiece,
        ack: ReplicaAck,
        stamp: (Version, Timestamp),
    ) {
        let (ReplicaPiece { id: segment, epoch, number }, (version, timestamp)) = (*sent, stamp);
        self.output.send(node, Message::Replicated { segment, epoch, ack, version, timestamp, number });
    }
}
