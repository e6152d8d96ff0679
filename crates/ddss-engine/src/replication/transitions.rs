//! Transitions of a home's replica: a complete one joins, one that refuses or is lost leaves, and the cluster is asked to decide.

use crate::action::{Action, ControlAction};
use crate::config::Now;
use crate::fault_injection::planted;
use crate::replication::forward_content::ForwardContent;
use crate::replication::handler::Replication;
use crate::role::{Proposal, ProposalKind};
use crate::state::replication::{HomeWork, Refused, Replicas, Role, SyncState};
use ddss_core::{NodeId, Refusal, SegmentId, Timestamp, Version};

impl Replication<'_> {
    /// Proposes a decision, and schedules its repetition.
    pub(crate) fn propose(&mut self, now: Now, id: SegmentId, word: ProposalKind) {
        let Ok(segment) = self.segments.get_mut(id) else { return };
        let name = segment.name();
        let Some(replication) = segment.replication.as_deref_mut() else { return };
        replication.retry_us = now.steady_us + Replicas::RETRY_US;
        let (epoch, turn) = (replication.epoch, replication.turn);
        self.output.push(Action::Control(ControlAction::Propose {
            decision: Proposal { segment: id, name, epoch, turn, word },
        }));
    }

    /// Tells a complete replica of all tokens that were ever given; after its answer the cluster is told.
    pub(crate) fn join(&mut self, now: Now, id: SegmentId) {
        let floor = self.clock.last();
        let Ok(segment) = self.segments.get_mut(id) else { return };
        let version = segment.version();
        let Some(replication) = segment.replication.as_deref_mut() else { return };
        replication.set_sync(SyncState::Joining(floor));
        let (node, epoch) = (replication.node, replication.epoch);
        self.send_floor(node, id, epoch, version, floor);
        self.segments.update_lock_gate(now, self.replicas, id);
    }

    pub(crate) fn send_floor(
        &mut self,
        node: NodeId,
        id: SegmentId,
        epoch: u32,
        version: Version,
        timestamp: Timestamp,
    ) {
        self.output.send(node, ForwardContent::TOKEN.message(id, epoch, (version, timestamp)));
    }

    /// Drops a replica that is incomplete, or may be: the cluster has to know before this home continues without it.
    pub(crate) fn lose_replica(&mut self, now: Now, id: SegmentId) {
        let forgets = planted!(self.segments, UnpartedReplica);
        let Some(replication) = self.segments.replication_of(id) else { return };
        match replication.role {
            Role::Home(SyncState::Pairing | SyncState::Paired) if !forgets => {
                replication.lost_us = now.steady_us;
                replication.set_sync(SyncState::Parting);
                replication.turn += 1;
                self.replicas.begin_transition(id);
                self.propose(now, id, ProposalKind::Part);
                self.segments.update_lock_gate(now, self.replicas, id);
            }
            Role::Home(SyncState::Alone | SyncState::Parting) => {}
            Role::Home(_) => self.become_alone(now, id),
            Role::Unconfirmed | Role::Replica => {}
        }
    }

    /// Handles a refusal: other nodes are asked before this one is asked again.
    pub(crate) fn replica_refused(&mut self, now: Now, id: SegmentId, why: Refusal) {
        self.record_refusal(now, id, why);
        self.become_alone(now, id);
    }

    /// Records why the replica's node cannot be the replica now.
    pub(crate) fn record_refusal(&mut self, now: Now, id: SegmentId, why: Refusal) {
        let until_us = now.steady_us + self.replicas.pause_us(why);
        if let Some(replication) = self.segments.replication_of(id) {
            replication.refusals.insert(replication.node, Refused { why, until_us });
        }
    }

    /// Continues without a replica. The home executes what waited for it.
    pub(crate) fn become_alone(&mut self, now: Now, id: SegmentId) {
        let Some(replication) = self.segments.replication_of(id) else { return };
        replication.set_sync(SyncState::Alone);
        replication.retry_us = now.steady_us;
        let forward = replication.forward.take();
        let deferred_updates = std::mem::take(&mut replication.deferred_updates);
        self.replicas.begin_transition(id);
        if let Some(forward) = forward {
            self.replicas.add_work(now, id, HomeWork::Finish(forward));
        }
        for update in deferred_updates {
            self.replicas.add_work(now, id, HomeWork::Update(update));
        }
        self.segments.update_lock_gate(now, self.replicas, id);
        self.replicas.add_work(now, id, HomeWork::Serve);
    }
}
