//! Handler of locks, and of the operations that wait in a lock queue. It executes no operation: after a method that takes a
//! holder or a waiter away, its caller serves the queue.

use crate::action::{Action, CommitSource};
use crate::config::Now;
use crate::fault_injection::planted;
use crate::locks::sweep_calls::SweepCalls;
use crate::requester::{LockOwner, ReplyFields, Requester};
use crate::state::lock_queue::{Get, Holder, PendingOp, Waiter};
use crate::state::memory::uploads::Uploads;
use crate::state::output::Output;
use crate::state::pending::{PendingRecord, RecordOp};
use crate::state::segments::Segments;
use crate::uploads::memory::UploadMemory;
use ddss_core::{Failure, Limit, LockRequest, LockToken, Outcome, PutConditions, SegmentId};

/// Borrows the segments, whose queues have the holders and waiters, and what waiters own.
pub(crate) struct Locks<'a> {
    pub(crate) segments: &'a mut Segments,
    pub(crate) uploads: &'a mut Uploads,
    pub(crate) output: &'a mut Output,
}

impl Locks<'_> {
    /// Records a grant and answers.
    pub(crate) fn grant(
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
        self.output.counters.locks_granted += 1;
        self.segments.mark_busy(id);
        match row {
            Some(row) => self.answer_row_grant(now, id, requester, (row, token))?,
            None => self.output.answer(requester, Outcome::Done, fields),
        }
        Ok(())
    }

    /// Answers the grant of a row's lock, with the version that the row has now: only its record has it.
    fn answer_row_grant(
        &mut self,
        now: Now,
        id: SegmentId,
        requester: Requester,
        (row, token): (u64, LockToken),
    ) -> Result<(), Failure> {
        let segment = self.segments.get(id)?;
        let place = segment.spec.layout().ok_or(Failure::Unsupported)?.record(row).of_segment(segment.at);
        let op = RecordOp::Grant(token);
        let pending = PendingRecord { now, segment: id, requester, row, place, op, blocking: None };
        self.output.read_record(Action::ReadRecord { place, word: None }, pending);
        Ok(())
    }

    /// Releases a grant.
    pub(crate) fn unlock(&mut self, id: SegmentId, token: LockToken, owner: LockOwner) -> Result<ReplyFields, Failure> {
        let releases_all = planted!(self.segments, UncheckedUnlock);
        let lock_queue = &mut self.segments.get_mut(id)?.lock_queue;
        if !(lock_queue.release(token, owner) || releases_all && lock_queue.release_all() > 0) {
            return Err(Failure::LockLost);
        }
        self.unmark(id);
        Ok(ReplyFields::of(self.segments.get(id)?.stamp(), 0))
    }

    /// Extends the lease of a grant that is in force. A renewal never revives a lock: the next waiter may have it.
    pub(crate) fn renew(
        &mut self,
        now: Now,
        id: SegmentId,
        token: LockToken,
        owner: LockOwner,
        lease_us: u32,
    ) -> Result<ReplyFields, Failure> {
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

    /// Breaks all locks of a segment, and answers with their number.
    pub(crate) fn break_all(&mut self, id: SegmentId, requester: Requester) -> Result<(), Failure> {
        let segment = self.segments.get_mut(id)?;
        let broken = segment.lock_queue.release_all() as u64;
        let fields = ReplyFields::of(segment.stamp(), broken);
        self.unmark(id);
        self.output.answer(requester, Outcome::Done, fields);
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

    /// Queues an operation behind the lock of the segment, or of a row.
    pub(crate) fn enqueue(&mut self, id: SegmentId, waiter: &Waiter, row: Option<u64>) -> Result<(), Failure> {
        let Waiter { requester, op, .. } = *waiter;
        let segment = self.segments.get_mut(id)?;
        match op {
            PendingOp::Lock(LockRequest { no_wait: true, .. }) => return Err(Failure::Locked),
            // It would wait for itself. If another thread of that client holds the lock, this thread has to take the
            // lock too: to let it pass would lose updates. A change under the lock waits for something else.
            PendingOp::Put { conditions: PutConditions { token: None, .. }, .. }
            | PendingOp::Atomic { token: None, .. }
                if segment.lock_queue.is_held_by(requester.owner(), row) =>
            {
                return Err(Failure::OwnLock);
            }
            _ => {}
        }
        if !segment.lock_queue.enqueue(*waiter, row) {
            return Err(Failure::Busy(Limit::Waiters));
        }
        self.segments.mark_busy(id);
        Ok(())
    }

    /// Ends the wait or the watch of a requester; `false` if it has neither.
    pub(crate) fn cancel(&mut self, id: SegmentId, requester: Requester) -> bool {
        let Some(segment) = self.segments.watched(id) else { return false };
        if let Some(waiter) = segment.lock_queue.take_waiter(requester) {
            self.fail(&waiter, Failure::TimedOut);
            return true;
        }
        let is_watcher = segment.lock_queue.take_watcher(requester);
        if is_watcher {
            self.output.answer(requester, Outcome::Failed(Failure::TimedOut), ReplyFields::default());
        }
        is_watcher
    }

    /// Breaks the locks and drops the queue entries of an owner that is gone.
    pub(crate) fn drop_owner(&mut self, id: SegmentId, owner: LockOwner) {
        let Some(segment) = self.segments.watched(id) else { return };
        let holders_before = segment.lock_queue.holders();
        let waiters = segment.lock_queue.remove_owner(owner);
        let broken = holders_before - segment.lock_queue.holders();
        self.output.counters.locks_broken += broken as u64;
        for waiter in waiters {
            self.free_buffers(&waiter.op);
        }
        if broken > 0 {
            self.unmark(id);
        }
    }

    /// Expires leases, and the deadlines of waiters.
    pub(crate) fn expire(&mut self, now: Now, id: SegmentId) {
        let is_endless = planted!(self.segments, EndlessLease);
        let Some(segment) = self.segments.watched(id) else { return };
        let holders_before = segment.lock_queue.holders();
        if !is_endless && segment.lock_queue.expire_leases(now.steady_us) {
            self.output.counters.locks_broken += (holders_before - segment.lock_queue.holders()) as u64;
            self.unmark(id);
        }
        while let Ok(segment) = self.segments.get_mut(id)
            && let Some(waiter) = segment.lock_queue.next_expired_waiter(now.steady_us)
        {
            self.fail(&waiter, Failure::TimedOut);
        }
    }

    /// Fails every waiter and watcher of a segment and its sweeps, and ends its locks.
    pub(crate) fn fail_all(&mut self, id: SegmentId, failure: Failure) {
        SweepCalls { segments: self.segments, output: self.output }.fail(id, failure);
        if let Ok(segment) = self.segments.get_mut(id) {
            segment.lock_queue.release_all();
            self.fail_blocked(id, true, |_| failure);
        }
    }

    /// Fails every watcher and the waiters for locks, or (`all`) all waiters.
    pub(crate) fn fail_blocked(&mut self, id: SegmentId, all: bool, failure: impl Fn(Requester) -> Failure) {
        let Some(segment) = self.segments.watched(id) else { return };
        let (waiters, watchers) = segment.lock_queue.drain_blocked(all);
        for waiter in waiters {
            self.fail(&waiter, failure(waiter.requester));
        }
        for watcher in watchers {
            let failure = failure(watcher.requester);
            self.output.answer(watcher.requester, Outcome::Failed(failure), ReplyFields::default());
        }
    }

    /// Fails an operation that was not executed.
    pub(crate) fn fail(&mut self, waiter: &Waiter, failure: Failure) {
        self.free_buffers(&waiter.op);
        self.output.answer(waiter.requester, Outcome::Failed(failure), ReplyFields::default());
    }

    /// Frees the buffers of an operation that will not be executed.
    pub(crate) fn free_buffers(&mut self, op: &PendingOp) {
        match op {
            PendingOp::Put { source: CommitSource::Buffer(buffer), .. } => self.output.drop_buffer(buffer),
            PendingOp::Put { source: CommitSource::Pool(at), .. } => {
                UploadMemory { segments: self.segments, uploads: self.uploads }.free_at(*at);
            }
            _ => {}
        }
        if let PendingOp::Put { parts, .. } | PendingOp::Get(Get { parts, .. }) = op {
            self.output.free_table(parts);
        }
    }
}

#[cfg(test)]
mod tests;
