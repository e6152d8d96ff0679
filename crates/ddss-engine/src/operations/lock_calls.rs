//! Calls that end a lock or a wait: unlock, renew, break, cancel, the end of an owner, deadlines, and the stop of the node.

use crate::config::Now;
use crate::operations::handler::Operations;
use crate::requester::{LockOwner, ReplyFields, Requester};
use ddss_core::{Access, Failure, LockToken, Principal, SegmentId};

impl Operations<'_> {
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

    /// Removes a requester from a segment's queues, and ends its sweep; `false` if it has neither.
    pub(crate) fn cancel_at_home(&mut self, now: Now, id: SegmentId, requester: Requester) -> bool {
        if !self.locks().cancel(id, requester) {
            return self.sweep_calls().end(now, id, |call| call.requester == requester);
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

    /// Expires the leases of a segment, and the deadlines of its waiters and watchers.
    pub(crate) fn expire_waits(&mut self, now: Now, id: SegmentId) {
        self.locks().expire(now, id);
        self.watches().expire(now, id);
        self.serve_lock_queue(now, id);
    }

    /// Answers waiters before the node stops. A lock would end with the node, and no client starts a put any more, so
    /// waiters for a lock or a version are failed, and so are sweeps. With `all`, every queued operation is failed: none of
    /// them has started.
    pub(crate) fn fail_waiters(&mut self, now: Now, all: bool) {
        let failure = |requester| match requester {
            Requester::Client(..) => Failure::GoingDown,
            Requester::Peer(..) => Failure::NodeDown,
        };
        self.sweep_calls().fail_all(failure);
        let busy: Vec<_> = (0..).map_while(|index| self.segments.busy(index)).collect();
        for id in busy {
            self.locks().fail_blocked(id, all, failure);
            self.serve_lock_queue(now, id);
        }
    }
}
