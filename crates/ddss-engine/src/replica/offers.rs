//! Offers of homes: whether this node has the replica, or has to make it.

use crate::fault_injection::planted;
use crate::replica::handler::ReplicaStore;
use ddss_core::{Name, NodeId, OfferReply, Permissions, Refusal, SegmentId, Spec, Timestamp, Version};

/// Segment that a home offers to replicate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicaOffer {
    pub(crate) id: SegmentId,
    pub(crate) epoch: u32,
    pub(crate) stamp: (Version, Timestamp),
    pub(crate) spec: Spec,
    pub(crate) permissions: Permissions,
    pub(crate) name: Name,
}

/// Judgement of an offer.
pub(crate) enum OfferVerdict {
    /// The home has its answer.
    Answered,
    /// There is no replica here: it has to be created.
    New,
    /// The replica here is of another specification, or for other readers: it has to be dropped.
    Other,
}

impl ReplicaStore<'_> {
    /// Judges an offer of a home, and answers it if there is a replica that fits.
    pub(crate) fn judge_offer(&mut self, node: NodeId, offer: &ReplicaOffer) -> OfferVerdict {
        let ReplicaOffer { id, epoch, stamp, spec, permissions, name } = *offer;
        let newest = self.epoch_of(id);
        let decided = self.replicas.assignment(id).map_or(0, |assignment| assignment.epoch);
        let is_open = self.replicas.is_unconfirmed(id) && decided <= epoch;
        if epoch < newest && !is_open {
            return self.answer_offer(node, id, newest, OfferReply::Fenced);
        }
        if is_open || !self.can_be_home(node, id, epoch) {
            return self.answer_offer(node, id, epoch, OfferReply::No(Refusal::NotReady));
        }
        let Ok(segment) = self.segments.get(id) else { return OfferVerdict::New };
        let is_same = Spec { placement: spec.placement, ..segment.spec } == spec && segment.name() == name;
        let same_readers = segment.permissions.audience() == permissions.audience();
        if !segment.is_replica() || segment.has_large_commit() {
            // This node has yet to learn its role, or its version is about to change.
            return self.answer_offer(node, id, epoch, OfferReply::No(Refusal::NotReady));
        }
        if !is_same || !same_readers {
            return OfferVerdict::Other;
        }
        self.upload_memory().drop_incoming(id);
        let is_stale = planted!(self.segments, StaleCopy);
        // The replica exists: this cannot fail.
        let _ = self.segments.set_permissions(id, permissions);
        let Ok(segment) = self.segments.get_mut(id) else { return OfferVerdict::Answered };
        let at = segment.at;
        let is_whole = segment.stamp() == stamp || is_stale && segment.is_whole();
        if let Some(replication) = segment.replication.as_deref_mut() {
            (replication.epoch, replication.node) = (epoch, node);
        }
        self.output.rewrite_record(self.segments, id);
        if !is_whole {
            self.stamp(id, at, (Version(0), Timestamp(0)));
        }
        self.answer_offer(node, id, epoch, if is_whole { OfferReply::Whole } else { OfferReply::Empty })
    }

    fn answer_offer(&mut self, node: NodeId, id: SegmentId, epoch: u32, reply: OfferReply) -> OfferVerdict {
        self.send_offer_reply(node, id, epoch, reply);
        OfferVerdict::Answered
    }

    /// Returns true if a node can be the home of a segment in an epoch, as far as this node knows. In the first epoch
    /// it is the node that the id names. Later that node may return without its memory.
    fn can_be_home(&self, node: NodeId, id: SegmentId, epoch: u32) -> bool {
        match self.replicas.assignment(id) {
            Some(assignment) if assignment.epoch == epoch => assignment.home == node,
            _ => epoch > 1 || id.home() == node,
        }
    }
}
