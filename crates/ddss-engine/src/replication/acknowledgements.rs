//! Acknowledgements of the replica: of pieces of its copy, of parts of large puts, of puts and of tokens.

use crate::config::Now;
use crate::replication::handler::Replication;
use crate::role::ProposalKind;
use crate::state::replication::{HomeWork, Role, SyncState};
use ddss_core::{NodeId, ReplicaAck, SegmentId, Timestamp};

impl Replication<'_> {
    /// Handles an acknowledgement of the replica.
    pub(crate) fn replica_acknowledged(
        &mut self,
        now: Now,
        node: NodeId,
        id: SegmentId,
        epoch: u32,
        what: (ReplicaAck, Timestamp),
    ) {
        let Some(replication) = self.segments.replication_of(id) else { return };
        if replication.node != node || replication.epoch != epoch {
            return;
        }
        let (ack, timestamp) = what;
        match ack {
            ReplicaAck::Piece if self.part_stored(now, id, timestamp) => return,
            ReplicaAck::Piece => return self.piece_stored(now, id),
            ReplicaAck::NoRoom | ReplicaAck::Busy => {
                return self.part_refused(now, id, ack == ReplicaAck::NoRoom, timestamp);
            }
            ReplicaAck::Put => {}
        }
        let Some(replication) = self.segments.replication_of(id) else { return };
        match replication.role {
            Role::Home(SyncState::Joining(floor)) if floor == timestamp => {
                replication.set_sync(SyncState::Pairing);
                replication.turn += 1;
                self.replicas.begin_transition(id);
                self.propose(now, id, ProposalKind::Pair(node));
                self.segments.update_lock_gate(now, self.replicas, id);
            }
            Role::Home(_) => {
                if let Some(forward) = replication.forward.take_if(|forward| forward.timestamp == timestamp) {
                    self.replicas.add_work(now, id, HomeWork::Finish(forward));
                }
            }
            _ => {}
        }
    }
}
