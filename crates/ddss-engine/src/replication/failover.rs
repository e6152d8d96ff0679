//! Failover: decisions of the cluster about replicated segments, and their consequences here. They say which node is
//! the home, whether this node may still answer as a home, and when a replica asks to take over.

use crate::action::Action;
use crate::config::Now;
use crate::dispatch::weight;
use crate::fault_injection::planted;
use crate::home::handler::Home;
use crate::requester::ReplyFields;
use crate::role::{Proposal, ProposalKind, RoleAssignment};
use crate::state::replication::{Replicas, Role, SyncState};
use ddss_core::{Failure, LockToken, NodeId, Outcome, Refusal, SegmentId};

impl Home<'_> {
    /// Makes this node the first home of a segment.
    pub(crate) fn begin_as_home(&mut self, now: Now, id: SegmentId) {
        let Some(replication) = self.segments.replication_of(id) else { return };
        replication.found();
        self.note_unknown_expiry(now, id);
        self.start_transition(now, id);
    }

    /// Schedules work for a segment, and does what is possible now.
    pub(crate) fn start_transition(&mut self, now: Now, id: SegmentId) {
        self.replicas.begin_transition(id);
        self.continue_transition(now, id);
    }

    /// Handles the cluster's decision about a replicated segment.
    pub(crate) fn assign_role(&mut self, now: Now, assignment: &RoleAssignment) {
        let id = assignment.segment;
        if self.replicas.assign(assignment) && !self.replicas.is_unconfirmed(id) {
            self.follow_assignment(now, id, assignment);
        }
    }

    /// Handles the release of a replicated segment. A home has released its segment before; one that still has it was
    /// replaced, and the next home released it.
    pub(crate) fn remove_role(&mut self, now: Now, id: SegmentId) {
        self.replicas.unassign(id);
        if self.segments.get(id).is_ok() {
            self.end_forward(now, id, Outcome::Indeterminate(Failure::NodeDown), ReplyFields::default());
            self.drop_replica(now, id);
            self.watches().announce_names();
        }
    }

    /// Extends this node's lease: until then no replica takes over a segment at home here. Earlier decisions were
    /// delivered before this call.
    pub(crate) fn lease(&mut self, now: Now, until_us: u64) {
        for id in self.replicas.extend_lease(until_us) {
            self.find_role(now, id);
        }
    }

    /// Determines this node's role for a segment that was restored at start.
    fn find_role(&mut self, now: Now, id: SegmentId) {
        let (node, is_adopted) = (self.node, self.segments.is_adopted(id));
        let assignment = self.replicas.assignment(id).copied();
        let is_released = is_adopted || self.is_released(id);
        let is_new_cluster = self.directory.as_ref().is_some_and(|directory| !directory.is_compared());
        let Some(replication) = self.segments.replication_of(id) else { return };
        let decided = assignment.map_or(0, |assignment| assignment.epoch);
        if is_new_cluster && replication.takeover() > decided {
            // The new cluster has yet to learn that this node was the last home in the one before.
            return self.replicas.add_unconfirmed(id);
        }
        let Some(assignment) = assignment else {
            return if is_released { self.drop_replica(now, id) } else { self.begin_as_home(now, id) };
        };
        (replication.epoch, replication.turn) = (assignment.epoch, assignment.turn);
        if assignment.home != node {
            (replication.role, replication.node) = (Role::Replica, assignment.home);
            self.fail_all_waiters(id, Failure::NodeDown);
            return self.follow_assignment(now, id, &assignment);
        }
        replication.node = assignment.replica;
        // A forward in flight when this node ended is lost: home and replica start over.
        replication.role = Role::Home(if assignment.paired { SyncState::Paired } else { SyncState::Alone });
        self.rewrite_record(id);
        self.note_unknown_expiry(now, id);
        if assignment.paired { self.lose_replica(now, id) } else { self.start_transition(now, id) }
    }

    /// Returns true if the directory, which is complete at the first lease, gives the name of a segment to no home or
    /// another one, although it once had all names of this node.
    fn is_released(&self, id: SegmentId) -> bool {
        let (Ok(segment), Some(directory)) = (self.segments.get(id), self.directory.as_ref()) else { return false };
        directory.is_compared() && directory.home_of(&segment.name()) != Some(self.node)
    }

    fn follow_assignment(&mut self, now: Now, id: SegmentId, assignment: &RoleAssignment) {
        let node = self.node;
        let Some(replication) = self.segments.replication_of(id) else { return };
        if assignment.epoch < replication.epoch {
            // A restarted node receives old decisions too, which a home may already have surpassed.
            return;
        }
        match replication.role {
            Role::Home(_) if assignment.home != node && assignment.epoch > replication.epoch => {
                self.demote(now, id, assignment)
            }
            Role::Home(_) if assignment.epoch == replication.epoch => self.proposal_accepted(now, id, assignment),
            Role::Replica if assignment.home == node && assignment.epoch > replication.epoch => {
                self.promote(now, id, assignment)
            }
            Role::Replica if assignment.paired && assignment.replica != node => self.give_up_replica(now, id),
            Role::Replica => {
                if assignment.epoch > replication.epoch {
                    (replication.epoch, replication.node) = (assignment.epoch, assignment.home);
                }
                self.start_transition(now, id);
            }
            _ => {}
        }
    }

    /// Handles the acceptance of this home's proposal.
    fn proposal_accepted(&mut self, now: Now, id: SegmentId, assignment: &RoleAssignment) {
        let Some(replication) = self.segments.replication_of(id) else { return };
        if assignment.turn < replication.turn {
            return;
        }
        replication.turn = assignment.turn;
        match replication.role {
            Role::Home(SyncState::Pairing) if assignment.paired => replication.set_sync(SyncState::Paired),
            Role::Home(SyncState::Parting) if !assignment.paired => return self.parted(now, id),
            _ => return,
        }
        self.segments.update_lock_gate(now, self.replicas, id);
        self.serve_lock_queue(now, id);
    }

    /// Promotes this replica to the home: with every acknowledged put, and without the locks.
    fn promote(&mut self, now: Now, id: SegmentId, assignment: &RoleAssignment) {
        self.drop_incoming(id);
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
        self.rewrite_record(id);
        self.note_unknown_expiry(now, id);
        self.segments.update_lock_gate(now, self.replicas, id);
        self.start_transition(now, id);
    }

    pub(crate) fn rewrite_record(&mut self, id: SegmentId) {
        if let Ok(record) = self.segments.record(id) {
            self.output.push(Action::RewriteRecord { record });
        }
    }

    /// Demotes this home: no pending operation takes effect here any more.
    fn demote(&mut self, now: Now, id: SegmentId, assignment: &RoleAssignment) {
        self.end_forward(now, id, Outcome::Indeterminate(Failure::NodeDown), ReplyFields::default());
        let Ok(segment) = self.segments.get_mut(id) else { return };
        let at = segment.at;
        let Some(replication) = segment.replication.as_deref_mut() else { return };
        let deferred_updates = replication.demote(assignment);
        // An operation that has read its word or record refuses itself.
        self.segments.update_lock_gate(now, self.replicas, id);
        self.output.push(Action::SetLockHolder { at, holder: LockToken::default() });
        self.fail_all_waiters(id, Failure::NodeDown);
        for (_, _, requester) in deferred_updates {
            self.output.answer(requester, Outcome::Failed(Failure::NodeDown), ReplyFields::default());
        }
        self.follow_assignment(now, id, assignment);
    }

    /// Marks a node as dead. Where this node is the replica of its segments, it asks to take over.
    pub(crate) fn node_dead(&mut self, now: Now, node: NodeId) {
        self.replicas.set_dead(node, true);
        for id in self.segments.replicated() {
            if self.replicas.assignment(id).is_some_and(|assignment| assignment.home == node) {
                self.start_transition(now, id);
            }
        }
    }

    /// Proposes a decision, and schedules its repetition.
    pub(crate) fn propose(&mut self, now: Now, id: SegmentId, word: ProposalKind) {
        let Ok(segment) = self.segments.get_mut(id) else { return };
        let name = segment.name();
        let Some(replication) = segment.replication.as_deref_mut() else { return };
        replication.retry_us = now.steady_us + Replicas::RETRY_US;
        let (epoch, turn) = (replication.epoch, replication.turn);
        self.output.push(Action::Propose { decision: Proposal { segment: id, name, epoch, turn, word } });
    }

    /// Continues all unfinished transitions.
    pub(crate) fn tick_replication(&mut self, now: Now) {
        for id in self.replicas.transitions() {
            self.continue_transition(now, id);
        }
    }

    fn continue_transition(&mut self, now: Now, id: SegmentId) {
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

    /// Returns true if this replica is complete and its home is out of office. The cluster checks again.
    fn may_take_over(&self, id: SegmentId) -> bool {
        let (Ok(segment), Some(assignment)) = (self.segments.get(id), self.replicas.assignment(id)) else {
            return false;
        };
        segment.is_whole()
            && assignment.paired
            && assignment.replica == self.node
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
