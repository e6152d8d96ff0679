//! What the cluster decides about mirrored segments, and what follows from it here: who is the home of what, whether
//! this node may still answer as a home, and when a mirror asks to take over.

use super::state::{Proposal, ProposalKind, Replicas, ReplicatedSegment, Role, RoleAssignment, SyncState};
use crate::engine::action::Action;
use crate::engine::dispatch::weight;
use crate::engine::engine::{Engine, Now};
use crate::engine::fault_injection::planted;
use crate::engine::home::home_ops::ReplyFields;
use crate::request::operation::LockToken;
use crate::{Failure, NodeId, Outcome, Refusal, SegmentId};

impl Engine {
    /// There is a cluster that decides about mirrors, as there is one that decides about names.
    pub fn expect_duties(&mut self) {
        self.mirrors.agreed = true;
    }

    /// Bytes of one piece in which a segment is copied, and how long a mirror may be away until another is looked for.
    pub fn tune_mirrors(&mut self, piece_bytes: u32, patience_us: u64) {
        (self.mirrors.piece_bytes, self.mirrors.patience_us) = (piece_bytes, patience_us);
    }

    /// Whether what is asked of this node may need to know the time exactly: whether a lease is still in force, or how old
    /// a copy is.
    #[inline]
    pub fn needs_time(&self) -> bool {
        self.segments.has_mirrored() || self.copies.are_there()
    }

    /// The home of a segment.
    #[inline]
    pub(crate) fn home_of(&self, segment: SegmentId) -> NodeId {
        if self.mirrors.routes.is_empty() {
            return segment.home();
        }
        self.mirrors.routes.get(&segment).copied().unwrap_or(segment.home())
    }

    #[inline]
    pub(crate) fn is_home(&self, segment: SegmentId) -> bool {
        self.home_of(segment) == self.node
    }

    pub(crate) fn mirror_of(&mut self, id: SegmentId) -> Option<&mut ReplicatedSegment> {
        self.segments.get_mut(id).ok()?.mirror.as_deref_mut()
    }

    /// Sees that what may not be done now waits.
    pub(crate) fn set_gate(&mut self, now: Now, id: SegmentId) {
        let lease_until_us = if planted!(self, UnfencedHome) { u64::MAX } else { self.mirrors.lease_until_us };
        if let Ok(segment) = self.segments.get_mut(id)
            && let Some(mirror) = &segment.mirror
        {
            segment.guard.shut = !mirror.serves(now.steady_us, lease_until_us);
            segment.guard.held = mirror.holds_puts();
        }
    }

    /// Whether this node may speak for the segment at this moment.
    pub(crate) fn check_home(&mut self, now: Now, id: SegmentId) -> Result<(), Failure> {
        self.set_gate(now, id);
        let segment = self.segments.get(id)?;
        if segment.is_copy() || segment.guard.shut { Err(Failure::NodeDown) } else { Ok(()) }
    }

    /// This node is the first home of a segment.
    pub(crate) fn begin_as_home(&mut self, now: Now, id: SegmentId) {
        let Some(mirror) = self.mirror_of(id) else { return };
        (mirror.role, mirror.epoch) = (Role::Home(SyncState::Alone), 1);
        self.stir(now, id);
    }

    /// Something is to be done for a segment.
    pub(crate) fn stir(&mut self, now: Now, id: SegmentId) {
        self.mirrors.restless.insert(id);
        self.settle(now, id);
    }

    /// The cluster has decided something about a mirrored segment.
    pub fn duty(&mut self, now: Now, duty: &RoleAssignment) {
        let id = duty.segment;
        let known = self.mirrors.duties.get(&id);
        if known.is_some_and(|known| (known.epoch, known.turn) > (duty.epoch, duty.turn)) {
            return;
        }
        let before = self.home_of(id);
        self.mirrors.duties.insert(id, *duty);
        if duty.home == id.home() {
            self.mirrors.routes.remove(&id);
        } else {
            self.mirrors.routes.insert(id, duty.home);
        }
        if before != duty.home {
            // Its locks are broken, all of them.
            self.held.retain(|held| held.segment != id);
        }
        if !self.mirrors.unsure.contains(&id) {
            self.follow(now, id, duty);
        }
    }

    /// A mirrored segment was released.
    pub fn no_duty(&mut self, now: Now, id: SegmentId) {
        self.mirrors.duties.remove(&id);
        self.mirrors.routes.remove(&id);
        let gone = |engine: &mut Self| {
            let segment = engine.segments.get(id).ok()?;
            (segment.is_copy() || engine.mirrors.unsure.contains(&id)).then_some(())
        };
        if gone(self).is_some() {
            self.drop_copy(now, id);
        }
    }

    /// Why a segment cannot be used: one that another node has, or may have for all that is known here, is not gone.
    #[cold]
    pub(crate) fn why(&self, segment: Option<SegmentId>, failure: Failure) -> Failure {
        let Some(segment) = segment.filter(|_| failure == Failure::NotFound && self.mirrors.agreed) else {
            return failure;
        };
        let is_known = self.mirrors.duties.contains_key(&segment);
        if is_known || !self.mirrors.heard { Failure::NodeDown } else { failure }
    }

    /// Until then nobody takes over what is at home here; whatever was decided before was told before.
    pub fn lease(&mut self, now: Now, until_us: u64) {
        self.mirrors.heard = true;
        self.mirrors.lease_until_us = self.mirrors.lease_until_us.max(until_us);
        for id in std::mem::take(&mut self.mirrors.unsure) {
            self.find_role(now, id);
        }
    }

    /// What this node is for a segment that it found when it was started.
    fn find_role(&mut self, now: Now, id: SegmentId) {
        let (node, is_adopted) = (self.node, self.segments.is_adopted(id));
        let duty = self.mirrors.duties.get(&id).copied();
        let Some(mirror) = self.mirror_of(id) else { return };
        let Some(duty) = duty else {
            return if is_adopted { self.drop_copy(now, id) } else { self.begin_as_home(now, id) };
        };
        (mirror.epoch, mirror.turn) = (duty.epoch, duty.turn);
        if duty.home != node {
            (mirror.role, mirror.node) = (Role::Copy, duty.home);
            self.turn_all_away(id, Failure::NodeDown);
            return self.follow(now, id, &duty);
        }
        mirror.node = duty.mirror;
        // What was on its way to the mirror when this node ended is not known: they begin anew.
        mirror.role = Role::Home(if duty.paired { SyncState::Paired } else { SyncState::Alone });
        if duty.paired { self.lose_mirror(now, id) } else { self.stir(now, id) }
    }

    fn follow(&mut self, now: Now, id: SegmentId, duty: &RoleAssignment) {
        let node = self.node;
        let Some(mirror) = self.mirror_of(id) else { return };
        if duty.epoch < mirror.epoch {
            // A node that was started anew hears the old decisions too: a home may have found it before them.
            return;
        }
        match mirror.role {
            Role::Home(_) if duty.home != node && duty.epoch > mirror.epoch => self.step_down(now, id, duty),
            Role::Home(_) if duty.epoch == mirror.epoch => self.decided(now, id, duty),
            Role::Copy if duty.home == node && duty.epoch > mirror.epoch => self.step_up(now, id, duty),
            Role::Copy if duty.paired && duty.mirror != node => self.give_copy_up(now, id),
            Role::Copy => {
                if duty.epoch > mirror.epoch {
                    (mirror.epoch, mirror.node) = (duty.epoch, duty.home);
                }
                self.stir(now, id);
            }
            _ => {}
        }
    }

    /// What this home wanted decided was.
    fn decided(&mut self, now: Now, id: SegmentId, duty: &RoleAssignment) {
        let Some(mirror) = self.mirror_of(id) else { return };
        if duty.turn < mirror.turn {
            return;
        }
        mirror.turn = duty.turn;
        match mirror.role {
            Role::Home(SyncState::Pairing) if duty.paired => mirror.role = Role::Home(SyncState::Paired),
            Role::Home(SyncState::Parting) if !duty.paired => return self.parted(now, id),
            _ => return,
        }
        self.set_gate(now, id);
        self.serve_line(now, id);
    }

    /// The cluster has made this mirror the home: with everything that was acknowledged, and without the locks.
    fn step_up(&mut self, now: Now, id: SegmentId, duty: &RoleAssignment) {
        let Ok(segment) = self.segments.get_mut(id) else { return };
        let (at, stamp) = (segment.at, segment.timestamp);
        let Some(mirror) = segment.mirror.as_deref_mut() else { return };
        let floor = mirror.floor.max(stamp);
        *mirror =
            ReplicatedSegment { epoch: duty.epoch, turn: duty.turn, node: duty.mirror, ..ReplicatedSegment::default() };
        (mirror.role, mirror.lost_us) = (Role::Home(SyncState::Alone), now.steady_us);
        self.restore_clock(floor);
        self.act(Action::Mark { at, holder: LockToken::default() });
        self.set_gate(now, id);
        self.stir(now, id);
    }

    /// Another node is the home: nothing of what is under way here happens any more.
    fn step_down(&mut self, now: Now, id: SegmentId, duty: &RoleAssignment) {
        self.end_forward(id, Outcome::Indeterminate(Failure::NodeDown));
        let Ok(segment) = self.segments.get_mut(id) else { return };
        let at = segment.at;
        let Some(mirror) = segment.mirror.as_deref_mut() else { return };
        let permits = std::mem::take(&mut mirror.permits);
        *mirror =
            ReplicatedSegment { epoch: duty.epoch, node: duty.home, role: Role::Copy, ..ReplicatedSegment::default() };
        segment.guard.held = false;
        self.act(Action::Mark { at, holder: LockToken::default() });
        self.turn_all_away(id, Failure::NodeDown);
        for (_, _, asker) in permits {
            self.answer(asker, Outcome::Failed(Failure::NodeDown), ReplyFields::default());
        }
        self.follow(now, id, duty);
    }

    /// A node was declared dead: where this one is the mirror it asks to take over.
    pub fn node_dead(&mut self, now: Now, node: NodeId) {
        self.mirrors.dead.insert(node);
        for id in self.segments.mirrored() {
            if self.mirrors.duties.get(&id).is_some_and(|duty| duty.home == node) {
                self.stir(now, id);
            }
        }
    }

    /// A node was found alive again.
    pub fn node_alive(&mut self, node: NodeId) {
        self.mirrors.dead.remove(&node);
    }

    /// Lets the cluster decide, and says it again until it has.
    pub(crate) fn decide(&mut self, now: Now, id: SegmentId, word: ProposalKind) {
        let Ok(segment) = self.segments.get_mut(id) else { return };
        let name = segment.name;
        let Some(mirror) = segment.mirror.as_deref_mut() else { return };
        mirror.retry_us = now.steady_us + Replicas::RETRY_US;
        let (epoch, turn) = (mirror.epoch, mirror.turn);
        self.act(Action::Decide { decision: Proposal { segment: id, name, epoch, turn, word } });
    }

    /// Looks after everything that is not as it should stay.
    pub(crate) fn tick_mirrors(&mut self, now: Now) {
        if self.mirrors.restless.is_empty() {
            return;
        }
        let restless: Vec<SegmentId> = self.mirrors.restless.iter().copied().collect();
        for id in restless {
            self.settle(now, id);
        }
    }

    fn settle(&mut self, now: Now, id: SegmentId) {
        let may_take_over = self.may_take_over(id);
        let Some(mirror) = self.mirror_of(id) else {
            self.mirrors.restless.remove(&id);
            return;
        };
        let is_due = now.steady_us >= mirror.retry_us;
        match mirror.role {
            Role::Copy if may_take_over => {
                if is_due {
                    self.decide(now, id, ProposalKind::TakeOver);
                }
            }
            Role::Home(SyncState::Alone) => {
                if is_due {
                    self.look_for_mirror(now, id);
                }
            }
            Role::Home(SyncState::Offered(_) | SyncState::Copying(_)) if is_due => {
                self.mirror_refused(now, id, Refusal::NoAnswer)
            }
            Role::Home(SyncState::Copying(_)) => self.copy_on(now, id),
            Role::Home(SyncState::Pairing) => {
                let mirror = mirror.node;
                if is_due {
                    self.decide(now, id, ProposalKind::Pair(mirror));
                }
            }
            Role::Home(SyncState::Parting) => {
                if is_due {
                    self.decide(now, id, ProposalKind::Part);
                }
            }
            Role::Home(SyncState::Offered(_)) => {}
            Role::Unsure | Role::Copy | Role::Home(SyncState::Joining(_) | SyncState::Paired) => {
                self.mirrors.restless.remove(&id);
            }
        }
    }

    /// Whether this mirror has everything, and its home nothing to say any more. The cluster looks once more.
    fn may_take_over(&self, id: SegmentId) -> bool {
        let (Ok(segment), Some(duty)) = (self.segments.get(id), self.mirrors.duties.get(&id)) else { return false };
        let is_whole = segment.timestamp.0 != 0;
        is_whole && duty.paired && duty.mirror == self.node && (duty.vacant || self.mirrors.dead.contains(&duty.home))
    }

    /// Finds a node for a home without a mirror: the one that it had, unless that is away for too long or refuses. No node
    /// is asked again before its pause is over.
    fn look_for_mirror(&mut self, now: Now, id: SegmentId) {
        let forgets = planted!(self, ForgottenRefusal);
        let Self { segments, mirrors, peers, .. } = self;
        let Ok(segment) = segments.get_mut(id) else { return };
        let (name, Some(mirror)) = (segment.name, segment.mirror.as_deref_mut()) else { return };
        mirror.refusals.retain(|_, refused| !forgets && now.steady_us < refused.until_us);
        let (old, refusals) = (mirror.node, &mirror.refusals);
        let is_free = |node: NodeId| mirrors.can_serve(peers, node) && !refusals.contains_key(&node);
        // One that comes back, or has yet to hear what it is, has nearly everything: it is worth waiting for.
        let is_awaited = refusals.get(&old).is_none_or(|refused| refused.why == Refusal::NotReady);
        let is_patient = old != NodeId::NOBODY && now.steady_us < mirror.lost_us + mirrors.patience_us;
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
            None => mirror.retry_us = now.steady_us + Replicas::RETRY_US,
        }
    }
}
