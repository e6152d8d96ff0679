//! Locks of segments at home here: grant, unlock, break, service of the lock queue, and its end before the node stops.

use crate::action::Action;
use crate::config::Now;
use crate::fault_injection::planted;
use crate::home::handler::Home;
use crate::requester::{LockOwner, ReplyFields, Requester};
use crate::state::lock_queue::{Holder, Ready};
use ddss_core::{Access, Failure, LockRequest, LockToken, Outcome, Principal, SegmentId};

impl Home<'_> {
    /// Grants the lock to a requester that need not wait for it.
    pub(crate) fn grant(
        &mut self,
        now: Now,
        id: SegmentId,
        requester: Requester,
        lock_request: LockRequest,
    ) -> Result<(), Failure> {
        // The clock never gives a number twice, not even after a restart, which makes it a good token.
        let token = LockToken(self.clock.next(now.wall_us).0);
        if self.segments.get(id)?.replication.is_some() && self.forward_grant(now, id, requester, lock_request, token) {
            return Ok(());
        }
        self.grant_now(now, id, requester, lock_request, token)
    }

    /// Records the grant and answers.
    pub(crate) fn grant_now(
        &mut self,
        now: Now,
        id: SegmentId,
        requester: Requester,
        lock_request: LockRequest,
        token: LockToken,
    ) -> Result<(), Failure> {
        let segment = self.segments.get_mut(id)?;
        let row = segment.row_to_lock(&lock_request)?;
        let until_us = now.steady_us.saturating_add(lock_request.lease_us.into());
        let (before, shared) = (segment.lock_queue.lock_word(), lock_request.shared);
        let holder = Holder { token, owner: requester.owner(), shared, until_us };
        segment.lock_queue.grant(holder, row).map_err(Failure::Busy)?;
        let fields = ReplyFields::of(segment.stamp(), token.0);
        let (at, holder) = (segment.at, segment.lock_queue.lock_word());
        let is_hidden = row.is_some() && planted!(self.segments, UnmarkedRowLock);
        if holder != before && !is_hidden {
            self.output.push(Action::SetLockHolder { at, holder });
        }
        self.counters.locks_granted += 1;
        self.segments.mark_busy(id);
        match row {
            Some(row) => self.answer_row_grant(now, id, requester, (row, token))?,
            None => self.output.answer(requester, Outcome::Done, fields),
        }
        Ok(())
    }

    /// Releases a grant.
    pub(crate) fn unlock_at_home(
        &mut self,
        now: Now,
        id: SegmentId,
        token: LockToken,
        owner: LockOwner,
    ) -> Result<ReplyFields, Failure> {
        // An unlock that succeeds here after another home granted the lock would hide that the lock did not
        // exclude.
        self.segments.check_home(now, self.replicas, id)?;
        let releases_all = planted!(self.segments, UncheckedUnlock);
        let segment = self.segments.get_mut(id)?;
        if !segment.lock_queue.release(token, owner) {
            if releases_all {
                segment.lock_queue.release_all();
                self.unmark(id);
                self.serve_lock_queue(now, id);
            }
            return Err(Failure::LockLost);
        }
        let fields = ReplyFields::of(segment.stamp(), 0);
        self.unmark(id);
        self.serve_lock_queue(now, id);
        Ok(fields)
    }

    /// Extends the lease of a grant that is in force. A renewal never revives a lock: the next waiter may have it.
    pub(crate) fn renew_at_home(
        &mut self,
        now: Now,
        id: SegmentId,
        token: LockToken,
        owner: LockOwner,
        lease_us: u32,
    ) -> Result<ReplyFields, Failure> {
        // Another home may have granted the lock since.
        self.segments.check_home(now, self.replicas, id)?;
        let forgets = planted!(self.segments, UnrecordedRenewal);
        let segment = self.segments.get_mut(id)?;
        let until_us = if forgets { 0 } else { now.steady_us.saturating_add(lease_us.into()) };
        if !segment.lock_queue.renew(token, owner, now.steady_us, until_us) {
            return Err(Failure::LockLost);
        }
        let fields = ReplyFields::of(segment.stamp(), 0);
        self.segments.mark_busy(id);
        Ok(fields)
    }

    /// Breaks a lock, for the segment's owner and root. A holder that still lives learns it from its next put under the
    /// lock, which is refused as after the end of its lease.
    pub(crate) fn break_at_home(
        &mut self,
        now: Now,
        principal: Principal,
        id: SegmentId,
        requester: Requester,
    ) -> Result<(), Failure> {
        let segment = self.segments.get_mut(id)?;
        segment.permissions.allow(principal, Access::Release)?;
        self.segments.check_home(now, self.replicas, id)?;
        let segment = self.segments.get_mut(id)?;
        let broken = segment.lock_queue.release_all() as u64;
        let fields = ReplyFields::of(segment.stamp(), broken);
        self.unmark(id);
        self.output.answer(requester, Outcome::Done, fields);
        self.serve_lock_queue(now, id);
        Ok(())
    }

    /// Clears the lock word in the header unless an exclusive holder is left, of the segment or of a row.
    fn unmark(&mut self, id: SegmentId) {
        if let Ok(segment) = self.segments.get(id)
            && segment.lock_queue.lock_word() == LockToken::default()
        {
            let at = segment.at;
            self.output.push(Action::SetLockHolder { at, holder: LockToken::default() });
        }
    }

    /// Executes the queued operations that need not wait any more, in order. One that may pass the queue of its table may
    /// have to wait for its row.
    pub(crate) fn serve_lock_queue(&mut self, now: Now, id: SegmentId) {
        while let Ok(segment) = self.segments.get_mut(id)
            && let Some(ready) = segment.lock_queue.next_ready()
        {
            let (Ready::OfSegment(waiter) | Ready::OfRow(waiter)) = ready;
            if planted!(self.segments, WaiterDropped) && now.steady_us.is_multiple_of(5) {
                continue;
            }
            let executed = match ready {
                Ready::OfSegment(waiter) => self.admit_op(now, id, &waiter),
                Ready::OfRow(waiter) => self.execute_op(now, id, &waiter),
            };
            if let Err(failure) = executed {
                self.fail_waiter(&waiter, failure);
            }
        }
    }

    /// Removes a requester from a segment's queues, and ends its sweep; `false` if it has neither.
    pub(crate) fn cancel_at_home(&mut self, now: Now, id: SegmentId, requester: Requester) -> bool {
        let Some(segment) = self.segments.watched(id) else { return false };
        if let Some(waiter) = segment.lock_queue.take_waiter(requester) {
            self.fail_waiter(&waiter, Failure::TimedOut);
            // Waiters behind it may have waited for it alone.
            self.serve_lock_queue(now, id);
        } else if segment.lock_queue.take_watcher(requester) {
            self.output.answer(requester, Outcome::Failed(Failure::TimedOut), ReplyFields::default());
        } else {
            return self.end_sweeps(now, id, |call| call.requester == requester);
        }
        true
    }

    /// Breaks the locks and drops the queue entries of an owner that is gone.
    pub(crate) fn drop_owner(&mut self, now: Now, owner: LockOwner) {
        self.segments.sweeps.remove_owner(now, owner);
        let mut next = 0;
        while let Some(id) = self.segments.busy(next) {
            next += 1;
            if let Some(segment) = self.segments.watched(id) {
                let holders_before = segment.lock_queue.holders();
                let waiters = segment.lock_queue.remove_owner(owner);
                let broken = holders_before - segment.lock_queue.holders();
                self.counters.locks_broken += broken as u64;
                for waiter in waiters {
                    self.free_op_buffers(&waiter.op);
                }
                if broken > 0 {
                    self.unmark(id);
                }
            }
            self.serve_lock_queue(now, id);
        }
    }

    /// Expires leases, and the deadlines of waiters and watchers.
    pub(crate) fn tick_lock_queues(&mut self, now: Now) {
        self.segments.find_due(now.steady_us);
        let mut next = 0;
        while let Some(id) = self.segments.due(next) {
            next += 1;
            self.segments.update_lock_gate(now, self.replicas, id);
            self.expire_forward(now, id);
            self.continue_large_forward(now, id);
            let is_endless = planted!(self.segments, EndlessLease);
            let Some(segment) = self.segments.watched(id) else { continue };
            let holders_before = segment.lock_queue.holders();
            if !is_endless && segment.lock_queue.expire_leases(now.steady_us) {
                self.counters.locks_broken += (holders_before - segment.lock_queue.holders()) as u64;
                self.unmark(id);
            }
            while let Ok(segment) = self.segments.get_mut(id)
                && let Some(waiter) = segment.lock_queue.next_expired_waiter(now.steady_us)
            {
                self.fail_waiter(&waiter, Failure::TimedOut);
            }
            self.watches().expire(now, id);
            self.serve_lock_queue(now, id);
            self.segments.schedule(id);
        }
        self.segments.forget_idle();
    }
    /// Answers waiters before the node stops. A lock would end with the node, and no client starts a put any more, so
    /// waiters for a lock or a version are failed, and so are sweeps. With `all`, every queued operation is failed: none of
    /// them has started.
    pub(crate) fn fail_waiters(&mut self, now: Now, all: bool) {
        self.fail_all_sweeps(Self::shutdown_failure);
        let busy: Vec<_> = (0..).map_while(|index| self.segments.busy(index)).collect();
        for id in busy {
            let Some(segment) = self.segments.watched(id) else { continue };
            let (waiters, watchers) = segment.lock_queue.drain_blocked(all);
            for waiter in waiters {
                self.fail_waiter(&waiter, Self::shutdown_failure(waiter.requester));
            }
            for watcher in watchers {
                self.output.answer(
                    watcher.requester,
                    Outcome::Failed(Self::shutdown_failure(watcher.requester)),
                    ReplyFields::default(),
                );
            }
            self.serve_lock_queue(now, id);
        }
    }

    /// Returns the failure that tells a requester of the shutdown.
    fn shutdown_failure(requester: Requester) -> Failure {
        match requester {
            Requester::Client(..) => Failure::GoingDown,
            Requester::Peer(..) => Failure::NodeDown,
        }
    }
}
