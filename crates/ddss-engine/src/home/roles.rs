//! Roles of this node for replicated segments, after decisions of the cluster, a lease, or the loss of a node.

use crate::action::{Action, ControlAction};
use crate::config::Now;
use crate::home::handler::Home;
use crate::requester::ReplyFields;
use crate::role::RoleAssignment;
use crate::state::replication::{Role, SyncState};
use ddss_core::{Failure, LockToken, NodeId, Outcome, SegmentId};

impl Home<'_> {
    /// Handles the cluster's decision about a replicated segment.
    pub(crate) fn assign_role(&mut self, now: Now, assignment: &RoleAssignment) {
        let id = assignment.segment;
        if !self.replicas.assign(assignment) {
            return;
        }
        if !self.replicas.is_unconfirmed(id) {
            self.follow_assignment(now, id, assignment);
        } else if self.replicas.is_caught_up() {
            // A node that is no home gets no further lease.
            self.replicas.confirm(id);
            self.find_role(now, id);
        }
        self.report_lost(id);
    }

    /// Reports a segment that is expected to be taken over here, if there is no copy of it. Earlier decisions may be out of
    /// date.
    fn report_lost(&mut self, id: SegmentId) {
        let Some(&assignment) = self.replicas.assignment(id).filter(|_| self.replicas.is_caught_up()) else { return };
        let is_expected = assignment.vacant && assignment.paired && assignment.replica == self.segments.node();
        if is_expected && self.segments.get(id).is_err() {
            self.output.push(Action::Control(ControlAction::ReportLost(assignment)));
        }
    }

    /// Handles the release of a replicated segment. A home has released its segment before; one that still has it was
    /// replaced, and the next home released it.
    pub(crate) fn remove_role(&mut self, now: Now, id: SegmentId) {
        self.replicas.unassign(id);
        if self.segments.get(id).is_ok() {
            self.replication().end_forward(now, id, Outcome::Indeterminate(Failure::NodeDown), ReplyFields::default());
            self.lifecycle().drop_replica(now, id);
            self.lifecycle().watches().announce_names();
        }
    }

    /// Extends this node's lease: until then no replica takes over a segment at home here. Earlier decisions were
    /// delivered before this call.
    pub(crate) fn lease(&mut self, now: Now, until_us: u64) {
        let was_caught_up = self.replicas.is_caught_up();
        for id in self.replicas.extend_lease(until_us) {
            self.find_role(now, id);
        }
        if !was_caught_up {
            self.replicas.vacant().into_iter().for_each(|id| self.report_lost(id));
        }
    }

    /// Determines this node's role for a segment that was restored at start.
    fn find_role(&mut self, now: Now, id: SegmentId) {
        let (node, is_adopted) = (self.segments.node(), self.segments.is_adopted(id));
        let assignment = self.replicas.assignment(id).copied();
        // A copy that a resync had not completed is no segment.
        let is_torn = self.segments.get(id).is_ok_and(|segment| !segment.is_whole());
        let is_released = is_adopted || is_torn || self.is_released(id);
        let is_new_cluster = self.directory.as_ref().is_some_and(|directory| !directory.is_compared());
        let Some(replication) = self.segments.replication_of(id) else { return };
        let decided = assignment.map_or(0, |assignment| assignment.epoch);
        if is_new_cluster && replication.takeover() > decided {
            // The new cluster has yet to learn that this node was the last home in the one before.
            return self.replicas.add_unconfirmed(id);
        }
        let Some(assignment) = assignment else {
            return if is_released {
                self.lifecycle().drop_replica(now, id)
            } else {
                self.replicate(|replication| replication.begin_as_home(now, id))
            };
        };
        (replication.epoch, replication.turn) = (assignment.epoch, assignment.turn);
        if assignment.home != node {
            (replication.role, replication.node) = (Role::Replica, assignment.home);
            self.lifecycle().locks().fail_all(id, Failure::NodeDown);
            return self.follow_assignment(now, id, &assignment);
        }
        replication.node = assignment.replica;
        // A forward in flight when this node ended is lost: home and replica start over.
        replication.role = Role::Home(if assignment.paired { SyncState::Paired } else { SyncState::Alone });
        self.output.rewrite_record(self.segments, id);
        self.segments.note_unknown_expiry(now, id);
        if assignment.paired {
            self.replicate(|replication| replication.lose_replica(now, id))
        } else {
            self.replicate(|replication| replication.start_transition(now, id))
        }
    }

    /// Returns true if the directory, which is complete at the first lease, gives the name of a segment to no home or
    /// another one, although it once had all names of this node.
    fn is_released(&self, id: SegmentId) -> bool {
        let (Ok(segment), Some(directory)) = (self.segments.get(id), self.directory.as_ref()) else { return false };
        directory.is_compared() && directory.home_of(&segment.name()) != Some(self.segments.node())
    }

    fn follow_assignment(&mut self, now: Now, id: SegmentId, assignment: &RoleAssignment) {
        let node = self.segments.node();
        let Some(replication) = self.segments.replication_of(id) else { return };
        if assignment.epoch < replication.epoch {
            // A restarted node receives old decisions too, which a home may already have surpassed.
            return;
        }
        match replication.role {
            Role::Home(_) if assignment.home != node && assignment.epoch > replication.epoch => {
                self.demote(now, id, assignment)
            }
            Role::Home(_) if assignment.epoch == replication.epoch => {
                self.replicate(|replication| replication.proposal_accepted(now, id, assignment))
            }
            Role::Replica if assignment.home == node && assignment.epoch > replication.epoch => {
                self.replicate(|replication| replication.promote(now, id, assignment))
            }
            Role::Replica if assignment.paired && assignment.replica != node => {
                self.lifecycle().give_up_replica(now, id)
            }
            Role::Replica => {
                if assignment.epoch > replication.epoch {
                    (replication.epoch, replication.node) = (assignment.epoch, assignment.home);
                }
                self.replicate(|replication| replication.start_transition(now, id));
            }
            _ => {}
        }
    }

    /// Demotes this home: no pending operation takes effect here any more.
    fn demote(&mut self, now: Now, id: SegmentId, assignment: &RoleAssignment) {
        self.replication().end_forward(now, id, Outcome::Indeterminate(Failure::NodeDown), ReplyFields::default());
        let Ok(segment) = self.segments.get_mut(id) else { return };
        let at = segment.at;
        let Some(replication) = segment.replication.as_deref_mut() else { return };
        let deferred_updates = replication.demote(assignment);
        // An operation that has read its word or record refuses itself.
        self.segments.update_lock_gate(now, self.replicas, id);
        self.output.push(Action::SetLockHolder { at, holder: LockToken::default() });
        self.lifecycle().locks().fail_all(id, Failure::NodeDown);
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
                self.replicate(|replication| replication.start_transition(now, id));
            }
        }
    }

    /// Handles the loss of a node for all segments with a replica there.
    pub(crate) fn replicas_lost(&mut self, now: Now, node: NodeId) {
        if !self.replicas.has_cluster() {
            return;
        }
        for id in self.segments.replicated() {
            let replication = self.segments.replication_of(id);
            if replication
                .is_some_and(|replication| replication.node == node && matches!(replication.role, Role::Home(_)))
            {
                self.replicate(|replication| replication.lose_replica(now, id));
            }
        }
    }
}
