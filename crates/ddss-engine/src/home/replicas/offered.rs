//! Replicas here of segments at home elsewhere: offers, creation and drops. `crate::replica` stores what their homes send.

use crate::config::Now;
use crate::home::handler::Home;
use crate::replica::offers::{OfferVerdict, ReplicaOffer};
use crate::requester::Requester;
use crate::state::memory::uploads::LargeCommit;
use crate::state::replication::{ReplicatedSegment, Role};
use ddss_core::{Failure, Message, Name, NodeId, OfferReply, Refusal, SegmentId, Storage, Timestamp};

impl Home<'_> {
    /// Handles a message between a home and its replica.
    pub(crate) fn replica_message(&mut self, now: Now, node: NodeId, message: &Message, tail: &[u8]) {
        match *message {
            Message::Offer { segment: id, epoch, version, timestamp, spec, permissions, name } => {
                let stamp = (version, timestamp);
                if self.replicas.has_cluster() && spec.copies > 1 {
                    self.handle_offer(now, node, &ReplicaOffer { id, epoch, stamp, spec, permissions, name });
                }
            }
            Message::OfferAnswer { segment, epoch, reply } => {
                self.replicate(now, |replication| replication.offer_answered(now, node, segment, epoch, reply));
            }
            Message::Replicated { segment, epoch, ack, timestamp, number, .. } => {
                if number != Message::NOT_STAGED {
                    self.outgoing_bytes().free_place(node, number);
                }
                let what = (ack, timestamp);
                self.replicate(now, |replication| replication.replica_acknowledged(now, node, segment, epoch, what));
            }
            _ => self.replica_store().message(now, node, message, tail),
        }
    }

    fn handle_offer(&mut self, now: Now, node: NodeId, offer: &ReplicaOffer) {
        let (id, epoch) = (offer.id, offer.epoch);
        match self.replica_store().judge_offer(node, offer) {
            OfferVerdict::Answered => {}
            OfferVerdict::New => self.create_replica(now, node, offer),
            OfferVerdict::Other => {
                self.drop_replica(now, id);
                self.replica_store().send_offer_reply(node, id, epoch, OfferReply::No(Refusal::NotReady));
            }
        }
    }

    /// Creates a replica. [`replica_formatted`](Self::replica_formatted) reports its completion.
    fn create_replica(&mut self, now: Now, node: NodeId, offer: &ReplicaOffer) {
        let ReplicaOffer { id, epoch, spec, permissions, name, .. } = *offer;
        let nobody = Requester::Peer(node, 0);
        self.drop_spare_replica_named(now, &name);
        let made = if spec.storage == Storage::File && !self.segments.allows_files() {
            Err(Refusal::NoFiles)
        } else if self.segments.forming(id).is_some() || self.segments.has_name(&name, self.replicas) {
            Err(Refusal::NotReady)
        } else if self.is_over_quota(permissions.owner, &spec) {
            // A replica counts for its owner's quota here too.
            Err(Refusal::OverQuota)
        } else {
            let made = self.segments.allocate(name, spec, permissions, Timestamp(0), nobody, Some(id));
            made.map_err(|failure| match failure {
                Failure::AlreadyExists | Failure::WrongShard => Refusal::NotReady,
                _ => Refusal::NoRoom,
            })
        };
        let record = match made {
            Ok(record) => record,
            Err(why) => return self.replica_store().send_offer_reply(node, id, epoch, OfferReply::No(why)),
        };
        if let Some(segment) = self.segments.forming(id) {
            let replication = ReplicatedSegment { role: Role::Replica, epoch, node, ..ReplicatedSegment::default() };
            segment.replication = Some(Box::new(replication));
        }
        self.format(record, Timestamp(0));
    }

    /// Completes the creation of a replica.
    pub(crate) fn replica_formatted(&mut self, now: Now, id: SegmentId, made: bool) {
        let Some(replication) = self.segments.replication_of(id) else { return };
        let (node, epoch) = (replication.node, replication.epoch);
        if !made {
            self.drop_replica(now, id);
        }
        self.replica_store().send_offer_reply(
            node,
            id,
            epoch,
            if made { OfferReply::Empty } else { OfferReply::No(Refusal::NoRoom) },
        );
    }

    /// Drops a replica since another node has that role. The home is told: it may have asked this node after the
    /// decision.
    pub(crate) fn give_up_replica(&mut self, now: Now, id: SegmentId) {
        let Some(replication) = self.segments.replication_of(id) else { return };
        let (home, epoch) = (replication.node, replication.epoch);
        self.drop_replica(now, id);
        self.replica_store().send_offer_reply(home, id, epoch, OfferReply::No(Refusal::NotReady));
    }

    /// Drops a spare replica of that name. The cluster gives a name to one segment at a time, so its home segment is
    /// gone.
    pub(crate) fn drop_spare_replica_named(&mut self, now: Now, name: &Name) {
        let Some(id) = self.segments.named(name) else { return };
        if self.segments.is_spare(id, self.replicas) {
            self.drop_replica(now, id);
        }
    }

    /// Drops a replica whose home released the segment. A replica that was never in sync is in no decision of the
    /// cluster, and goes with this message.
    pub(crate) fn drop_replica_of(&mut self, now: Now, home: NodeId, id: SegmentId) {
        if self.segments.replication_of(id).is_some_and(|replication| replication.node == home)
            && self.segments.is_spare(id, self.replicas)
        {
            self.drop_replica(now, id);
        }
    }

    /// Drops a replica; while the daemon writes a large value into it, at the end of that.
    pub(crate) fn drop_replica(&mut self, now: Now, id: SegmentId) {
        self.fail_all_waiters(id, Failure::NodeDown);
        if self.segments.get_mut(id).is_ok_and(|segment| segment.defer_drop()) {
            return;
        }
        // The replica exists: its removal cannot fail.
        let _ = self.take_away(now, id);
    }

    /// Ends a large put that this replica has committed, or has no room for.
    pub(crate) fn replica_committed(&mut self, now: Now, id: SegmentId, commit: &LargeCommit, made: bool) {
        self.replica_store().acknowledge_commit(id, commit, made);
        if commit.is_drop_deferred && self.segments.replication_of(id).is_some() {
            self.drop_replica(now, id);
        }
    }
}
