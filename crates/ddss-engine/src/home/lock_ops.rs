//! Locks of segments at home here: grant, unlock, break, service of the lock queue, and its end before the node stops.

use crate::config::Now;
use crate::fault_injection::planted;
use crate::home::handler::Home;
use crate::requester::{LockOwner, ReplyFields, Requester};
use crate::state::lock_queue::Ready;
use ddss_core::{Access, Failure, LockRequest, LockToken, Principal, SegmentId};

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
        if self.segments.get(id)?.replication.is_some()
            && self.replication().forward_grant(now, id, requester, lock_request, token)
        {
            return Ok(());
        }
        self.locks().grant(now, id, requester, lock_request, token)
    }

    /// Releases a grant.
    pub(crate) fn unlock_at_home(
        &mut self,
        now: Now,
        id: SegmentId,
        token: LockToken,
        owner: LockOwner,
    ) -> Result<ReplyFields, Failure> {
        // An unlock that succeeds here after another home granted the lock would hide that the lock did not exclude.
        self.segments.check_home(now, self.replicas, id)?;
        let fields = self.locks().unlock(id, token, owner)?;
        self.serve_lock_queue(now, id);
        Ok(fields)
    }

    /// Extends the lease of a grant that is in force.
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
        self.locks().renew(now, id, token, owner, lease_us)
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
        self.segments.get(id)?.permissions.allow(principal, Access::Release)?;
        self.segments.check_home(now, self.replicas, id)?;
        self.locks().break_all(id, requester)?;
        self.serve_lock_queue(now, id);
        Ok(())
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
                self.locks().fail(&waiter, failure);
            }
        }
    }

    /// Removes a requester from a segment's queues, and ends its sweep; `false` if it has neither.
    pub(crate) fn cancel_at_home(&mut self, now: Now, id: SegmentId, requester: Requester) -> bool {
        if !self.locks().cancel(id, requester) {
            return self.end_sweeps(now, id, |call| call.requester == requester);
        }
        // Waiters behind it may have waited for it alone.
        self.serve_lock_queue(now, id);
        true
    }

    /// Breaks the locks and drops the queue entries of an owner that is gone.
    pub(crate) fn drop_owner(&mut self, now: Now, owner: LockOwner) {
        self.segments.sweeps.remove_owner(now, owner);
        let mut next = 0;
        while let Some(id) = self.segments.busy(next) {
            next += 1;
            self.locks().drop_owner(id, owner);
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
            self.replicate(now, |replication| {
                replication.expire_forward(now, id);
                replication.continue_large_forward(now, id);
            });
            self.locks().expire(now, id);
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
        let failure = |requester| match requester {
            Requester::Client(..) => Failure::GoingDown,
            Requester::Peer(..) => Failure::NodeDown,
        };
        self.fail_all_sweeps(failure);
        let busy: Vec<_> = (0..).map_while(|index| self.segments.busy(index)).collect();
        for id in busy {
            self.locks().fail_blocked(id, all, failure);
            self.serve_lock_queue(now, id);
        }
    }
}
