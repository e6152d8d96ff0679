//! Messages between a home and its replica. `crate::replica` stores what homes send.

use crate::config::Now;
use crate::home::handler::Home;
use crate::replica::offers::{OfferVerdict, ReplicaOffer};
use ddss_core::{Message, NodeId, OfferReply, Refusal};

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
                self.replicate(|replication| replication.offer_answered(now, node, segment, epoch, reply));
            }
            Message::Replicated { segment, epoch, ack, timestamp, number, .. } => {
                if number != Message::NOT_STAGED {
                    self.outgoing_bytes().free_place(node, number);
                }
                let what = (ack, timestamp);
                self.replicate(|replication| replication.replica_acknowledged(now, node, segment, epoch, what));
            }
            _ => self.replica_store().message(now, node, message, tail),
        }
    }

    fn handle_offer(&mut self, now: Now, node: NodeId, offer: &ReplicaOffer) {
        let (id, epoch) = (offer.id, offer.epoch);
        match self.replica_store().judge_offer(node, offer) {
            OfferVerdict::Answered => {}
            OfferVerdict::New => self.lifecycle().create_replica(now, node, offer),
            OfferVerdict::Other => {
                self.lifecycle().drop_replica(now, id);
                self.replica_store().send_offer_reply(node, id, epoch, OfferReply::No(Refusal::NotReady));
            }
        }
    }
}
