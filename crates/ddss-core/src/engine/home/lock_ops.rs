//! Locks of segments at home here: granted, given back, broken; and the line of those who wait.

use super::home_ops::ReplyFields;
use crate::engine::action::Action;
use crate::engine::engine::{Engine, LocalCaller, Now};
use crate::engine::fault_injection::planted;
use crate::engine::state::lock_queue::{Holder, LockOwner, Requester};
use crate::engine::state::pending::WaitState;
use crate::model::segment::{Access, Principal};
use crate::request::operation::{LockRequest, LockToken};
use crate::{Failure, Message, Outcome, SegmentId};

impl Engine {
    /// Gives the lock to one who need not wait for it.
    pub(crate) fn grant(
        &mut self,
        now: Now,
        id: SegmentId,
        asker: Requester,
        wish: LockRequest,
    ) -> Result<(), Failure> {
        // The clock never gives a number twice, not even after a restart: a good token.
        let token = LockToken(self.clock.next(now.wall_us).0);
        if self.segments.get(id)?.mirror.is_some() && self.forward_grant(now, id, asker, wish, token) {
            return Ok(());
        }
        self.grant_now(now, id, asker, wish, token)
    }

    /// Notes that somebody holds the lock, and says so.
    pub(crate) fn grant_now(
        &mut self,
        now: Now,
        id: SegmentId,
        asker: Requester,
        wish: LockRequest,
        token: LockToken,
    ) -> Result<(), Failure> {
        let segment = self.segments.get_mut(id)?;
        let until_us = now.steady_us.saturating_add(wish.lease_us.into());
        if !segment.guard.grant(Holder { token, owner: asker.owner(), shared: wish.shared, until_us }) {
            return Err(Failure::Busy);
        }
        let told = ReplyFields { version: segment.version, timestamp: segment.timestamp, word: token.0 };
        let at = segment.at;
        if !wish.shared {
            self.act(Action::Mark { at, holder: token });
        }
        self.counters.locks_granted += 1;
        self.segments.note_busy(id);
        self.answer(asker, Outcome::Done, told);
        Ok(())
    }

    /// Takes a grant back.
    pub(crate) fn unlock_here(
        &mut self,
        now: Now,
        id: SegmentId,
        token: LockToken,
        owner: LockOwner,
    ) -> Result<ReplyFields, Failure> {
        if self.segments.get(id)?.mirror.is_some() {
            // A lock that ended here after another home has given it would not have excluded anybody.
            self.check_home(now, id)?;
        }
        let segment = self.segments.get_mut(id)?;
        if !segment.guard.let_go(token, owner) {
            if planted!(self, UncheckedUnlock) {
                segment.guard.let_all_go();
                self.unmark(id);
                self.serve_line(now, id);
            }
            return Err(Failure::LockLost);
        }
        let told = ReplyFields { version: segment.version, timestamp: segment.timestamp, word: 0 };
        self.unmark(id);
        self.serve_line(now, id);
        Ok(told)
    }

    /// Takes the lock from whoever holds it, for its segment's owner and root. A holder that still lives learns it from its
    /// next put under the lock, which is refused, as after the end of its lease.
    pub(crate) fn break_here(
        &mut self,
        now: Now,
        who: Principal,
        id: SegmentId,
        asker: Requester,
    ) -> Result<(), Failure> {
        let segment = self.segments.get_mut(id)?;
        segment.permissions.allow(who, Access::Release)?;
        if segment.mirror.is_some() {
            self.check_home(now, id)?;
        }
        let segment = self.segments.get_mut(id)?;
        let broken = segment.guard.let_all_go() as u64;
        let told = ReplyFields { version: segment.version, timestamp: segment.timestamp, word: broken };
        self.unmark(id);
        self.answer(asker, Outcome::Done, told);
        self.serve_line(now, id);
        Ok(())
    }

    /// The same, asked by a client.
    pub(crate) fn break_lock(&mut self, now: Now, caller: &LocalCaller, segment: SegmentId) -> Result<(), Failure> {
        if self.is_home(segment) {
            return self.break_here(now, caller.who, segment, Self::asker(caller));
        }
        let node = self.reachable_home(segment)?;
        let step = self.begin(caller, WaitState::Answer { segment, harmless: false })?.to_bits();
        self.send(node, Message::Break { step, who: caller.who, segment });
        Ok(())
    }

    /// The header says whether somebody holds the lock alone.
    fn unmark(&mut self, id: SegmentId) {
        if let Ok(segment) = self.segments.get(id)
            && !segment.guard.held_alone()
        {
            let at = segment.at;
            self.act(Action::Mark { at, holder: LockToken::default() });
        }
    }

    /// Lets those go who need not wait any more, in order.
    pub(crate) fn serve_line(&mut self, now: Now, id: SegmentId) {
        while let Ok(segment) = self.segments.get_mut(id)
            && let Some(waiter) = segment.guard.next_ready()
        {
            if planted!(self, WaiterDropped) && now.steady_us.is_multiple_of(5) {
                continue;
            }
            if let Err(failure) = self.do_now(now, id, waiter) {
                self.turn_away(&waiter, failure);
            }
        }
    }

    /// Somebody is gone: its locks are broken, its places in line given up.
    pub(crate) fn owner_gone(&mut self, now: Now, owner: LockOwner) {
        let mut next = 0;
        while let Some(id) = self.segments.busy(next) {
            next += 1;
            if let Ok(segment) = self.segments.get_mut(id) {
                let held = segment.guard.holders();
                let waiters = segment.guard.gone(owner);
                self.counters.locks_broken += (held - segment.guard.holders()) as u64;
                for waiter in waiters {
                    self.drop_kept(&waiter.wanted);
                }
            }
            self.unmark(id);
            self.serve_line(now, id);
        }
    }

    /// Leases and deadlines of those who wait.
    pub(crate) fn tick_guards(&mut self, now: Now) {
        let mut next = 0;
        while let Some(id) = self.segments.busy(next) {
            next += 1;
            self.set_gate(now, id);
            self.expire_forward(now, id);
            let Ok(segment) = self.segments.get_mut(id) else { continue };
            let held = segment.guard.holders();
            if !planted!(self, EndlessLease) && segment.guard.expire_leases(now.steady_us) {
                self.counters.locks_broken += (held - segment.guard.holders()) as u64;
                self.unmark(id);
            }
            while let Ok(segment) = self.segments.get_mut(id)
                && let Some(waiter) = segment.guard.next_late(now.steady_us)
            {
                self.turn_away(&waiter, Failure::TimedOut);
            }
            while let Ok(segment) = self.segments.get_mut(id)
                && let Some(watcher) = segment.guard.next_unseen(now.steady_us)
            {
                self.answer(watcher.asker, Outcome::Failed(Failure::TimedOut), ReplyFields::default());
            }
            self.serve_line(now, id);
        }
        self.segments.forget_idle();
    }
}
