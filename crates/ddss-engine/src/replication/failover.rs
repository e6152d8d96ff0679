//! Failover: work that the state of a replica still asks for. It decides which node is asked to be the replica, what is
//! proposed again to the cluster, and when a replica asks to take over.

use crate::action::Action;
use crate::config::Now;
use crate::fault_injection::planted;
use crate::replication::handler::Replication;
use crate::role::{ProposalKind, RoleAssignment};
use crate::state::peers::weight;
use crate::state::replication::{HomeWork, Replicas, Role, SyncState};
use ddss_core::{LockToken, NodeId, Refusal, SegmentId};

impl Replication<'_> {
    /// Makes this node the first home of a segment.
    pub(crate) fn begin_as_home(&mut self, now: Now, id: SegmentId) {
        let Some(replication) = self.segments.replication_of(id) else { return };
        replication.found();
        self.segments.note_unknown_expiry(now, id);
        self.start_transition(now, id);
    }

    /// Schedules work for a segment, and does what is possible now.
    pub(crate) fn start_transition(&mut self, now: Now, id: SegmentId) {
        self.replicas.begin_transition(id);
        self.continue_transition(now, id);
    }

    /// Handles the acceptance of this home's proposal.
    pub(crate) fn proposal_accepted(&mut self, now: Now, id: SegmentId, assignment: &RoleAssignment) {
        let Some(replication) = self.segments.replication_of(id) else { return };
        if assignment.turn < replication.turn {
            return;
        }
        replication.turn = assignment.turn;
        match replication.role {
            Role::Home(SyncState::Pairing) if assignment.paired => replication.set_sync(SyncState::Paired),
            Role::Home(SyncState::Parting) if !assignment.paired => return self.become_alone(now, id),
            _ => return,
        }
        self.segments.update_lock_gate(now, self.replicas, id);
        self.replicas.add_work(now, id, HomeWork::Serve);
    }

    /// Promotes this replica to the home: with every acknowledged put, and without the locks.
    pub(crate) fn promote(&mut self, now: Now, id: SegmentId, assignment: &RoleAssignment) {
        self.upload_memory().drop_incoming(id);
        let counts_on = planted!(self.segments, RowChangesOfEarlierTerm);
        let Ok(segment) = self.segments.get_mut(id) else { return };
        if !counts_on {
            // They are of an earlier term as the home, and lack the changes at the home between.
            segment.forget_row_changes();
        }
        let (at, stamp) = (segment.at, segment.timestamp());
        let Some(replication) = segment.replication.as_deref_mut() else { return };
        let floor = replication.floor.max(stamp);
        replication.promote(assignment, now.steady_us);
        self.clock.hear(floor, floor.micros());
        self.output.push(Action::SetLockHolder { at, holder: LockToken::default() });
        self.output.rewrite_record(self.segments, id);
        self.segments.note_unknown_expiry(now, id);
        self.segments.update_lock_gate(now, self.replicas, id);
        self.start_transition(now, id);
    }

    /// Continues an unfinished transition.
    pub(crate) fn continue_transition(&mut self, now: Now, id: SegmentId) {
        let may_take_over = self.may_take_over(id);
        let Some(replication) = self.segments.replication_of(id) else {
            self.replicas.end_transition(id);
            return;
        };
        let is_due = now.steady_us >= replication.retry_us;
        match replication.role {
            Role::Replica if may_take_over => {
                if is_due {
                    self.propose(now, id, ProposalKind::TakeOver);
                }
            }
            Role::Home(SyncState::Alone) => {
                if is_due {
                    self.find_replica(now, id);
                }
            }
            Role::Home(SyncState::Offered(_) | SyncState::Copying(_)) if is_due => {
                self.replica_refused(now, id, Refusal::NoAnswer)
            }
            Role::Home(SyncState::Copying(_)) => self.continue_resync(now, id),
            Role::Home(SyncState::Pairing) => {
                let replica = replication.node;
                if is_due {
                    self.propose(now, id, ProposalKind::Pair(replica));
                }
            }
            Role::Home(SyncState::Parting) => {
                if is_due {
                    self.propose(now, id, ProposalKind::Part);
                }
            }
            Role::Home(SyncState::Offered(_)) => {}
            Role::Unconfirmed | Role::Replica | Role::Home(SyncState::Joining(_) | SyncState::Paired) => {
                self.replicas.end_transition(id);
            }
        }
    }

    /// Returns true if this replica is complete and its home is dead or has lost the segment. The cluster checks again.
    fn may_take_over(&self, id: SegmentId) -> bool {
        let (Ok(segment), Some(assignment)) = (self.segments.get(id), self.replicas.assignment(id)) else {
            return false;
        };
        segment.is_whole()
            && assignment.paired
            && assignment.replica == self.segments.node()
            && (assignment.vacant || self.replicas.is_dead(assignment.home))
    }

    /// Finds a replica for a home without one: the previous node, unless it is away for too long, has left or refuses. No
    /// node is asked again before its pause is over.
    fn find_replica(&mut self, now: Now, id: SegmentId) {
        let forgets = planted!(self.segments, ForgottenRefusal);
        let Self { segments, replicas, peers, .. } = self;
        let Ok(segment) = segments.get_mut(id) else { return };
        let (name, Some(replication)) = (segment.name(), segment.replication.as_deref_mut()) else { return };
        replication.refusals.retain(|_, refused| !forgets && now.steady_us < refused.until_us);
        let (old, refusals) = (replication.node, &replication.refusals);
        let is_free = |node: NodeId| replicas.can_serve(peers, node) && !refusals.contains_key(&node);
        // A member that returns, or has yet to learn its role, has nearly all data: it is worth waiting for.
        let is_awaited = peers.knows(old) && refusals.get(&old).is_none_or(|refused| refused.why == Refusal::NotReady);
        let is_patient = old != NodeId::NONE && replicas.is_patient(now.steady_us, replication.lost_us);
        let chosen = if is_free(old) {
            Some(old)
        } else if is_awaited && is_patient {
            None
        } else {
            let others = peers.iter().map(|(node, _)| node).filter(|&node| is_free(node));
            others.max_by_key(|&node| (weight(node, &name), node))
        };
        match chosen {
            Some(node) => self.offer(now, id, node),
            None => replication.retry_us = now.steady_us + Replicas::RETRY_US,
        }
    }
}
