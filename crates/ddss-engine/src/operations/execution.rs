//! Execution of operations on segments whose home is this node, for its own clients and for other nodes. The progress thread
//! is the one arbiter of their versions, words and locks.

use crate::action::{Action, CopyOut, RangeSet};
use crate::config::Now;
use crate::fault_injection::planted;
use crate::operations::handler::Operations;
use crate::requester::Requester;
use crate::state::lock_queue::{Destination, Get, PendingOp, Ready, Waiter};
use crate::state::pending::PendingAtomic;
use crate::state::replication::SegmentChange;
use ddss_core::{
    Completion, Failure, Header, LockRequest, LockToken, Outcome, PutConditions, SegmentId, Timestamp, Version,
};

impl Operations<'_> {
    /// Executes an operation, or queues it behind the lock. An error is the answer, and the operation's buffers are free.
    pub(crate) fn submit_op(&mut self, now: Now, id: SegmentId, waiter: &Waiter) -> Result<(), Failure> {
        self.try_submit_op(now, id, waiter).inspect_err(|_| self.locks().free_buffers(&waiter.op))
    }

    #[inline(always)]
    fn try_submit_op(&mut self, now: Now, id: SegmentId, waiter: &Waiter) -> Result<(), Failure> {
        let mut segment = self.segments.get(id)?;
        if segment.replication.is_some() {
            self.segments.update_lock_gate(now, self.replicas, id);
            segment = self.segments.get(id)?;
        }
        let depends_on_lock =
            self.authorize_op(segment, waiter).map_err(|failure| self.segments.mask_denial_in_doubt(id, failure))?;
        let is_ungated = planted!(self.segments, UngatedCommit) && segment.has_large_commit();
        if is_ungated && matches!(waiter.op, PendingOp::Get(_)) {
            return self.execute_op(now, id, waiter);
        }
        if segment.lock_queue.must_wait(&waiter.op, waiter.requester.owner(), depends_on_lock) {
            self.locks().enqueue(id, waiter, None)
        } else if segment.lock_queue.has_row_locks() {
            self.admit_op(now, id, waiter)
        } else {
            self.execute_op(now, id, waiter)
        }
    }

    /// Executes an operation that the queue of its segment lets pass, or queues it behind the lock of its row.
    #[inline(never)]
    pub(crate) fn admit_op(&mut self, now: Now, id: SegmentId, waiter: &Waiter) -> Result<(), Failure> {
        let segment = self.segments.get(id)?;
        let is_ignored = !matches!(waiter.op, PendingOp::Lock(_)) && planted!(self.segments, IgnoredRowLock);
        if segment.lock_queue.has_row_locks()
            && !is_ignored
            && let Some(row) = self.output.row_of_op(segment, &waiter.op)?
        {
            let (depends_on_lock, owner) = (segment.depends_on_lock(&waiter.op), waiter.requester.owner());
            if segment.lock_queue.must_wait_for_row(row, &waiter.op, owner, depends_on_lock) {
                return self.locks().enqueue(id, waiter, Some(row));
            }
        }
        self.execute_op(now, id, waiter)
    }

    pub(crate) fn execute_op(&mut self, now: Now, id: SegmentId, waiter: &Waiter) -> Result<(), Failure> {
        let Waiter { requester, deadline_us, .. } = *waiter;
        if let Some(layout) = self.segments.get(id)?.spec.layout()
            && !matches!(waiter.op, PendingOp::Lock(_))
        {
            return self.begin_record_op(now, id, waiter, layout);
        }
        match waiter.op {
            PendingOp::Get(get) => self.execute_get(id, requester, get)?,
            PendingOp::Put { parts, source, conditions } => {
                self.check_conditions(now, id, requester, conditions, None)?;
                let requester = Some(requester);
                self.change(now, id, SegmentChange { requester, parts, source, row: None, word: 0, deadline_us })?;
            }
            PendingOp::Atomic { offset, change, token } => {
                self.check_conditions(now, id, requester, PutConditions { token, ..PutConditions::default() }, None)?;
                let segment = self.segments.get_mut(id)?;
                segment.lock_queue.begin_word_read();
                let at = segment.at + Header::DATA_OFFSET + offset;
                self.output.read_word(at, PendingAtomic { now, segment: id, offset, change, waiter: *waiter });
            }
            PendingOp::Lock(lock_request) => self.grant(now, id, requester, lock_request)?,
        }
        Ok(())
    }

    fn execute_get(&mut self, id: SegmentId, requester: Requester, get: Get) -> Result<(), Failure> {
        let (at, version, timestamp) = self.segments.get(id)?.find(get.version)?;
        self.deliver_get(requester, &get, at, (version, timestamp))
    }

    /// Delivers the bytes of a get. The offsets of its ranges count from the pool offset `at`.
    pub(crate) fn deliver_get(
        &mut self,
        requester: Requester,
        get: &Get,
        at: u64,
        (version, timestamp): (Version, Timestamp),
    ) -> Result<(), Failure> {
        let Get { parts, sink, .. } = *get;
        let (channel, request) = match requester {
            Requester::Client(channel, request) => (channel, request),
            Requester::Peer(node, step) => {
                self.output.counters.served_gets += 1;
                return self.outgoing_bytes().serve_get(node, step, at, parts, (version, timestamp));
            }
        };
        let inline = sink == Destination::Inline;
        let done = Completion::bare(request, Outcome::Done);
        let done = Completion { version, timestamp, inline, ..done };
        let data = match (sink, parts) {
            (Destination::Inline, RangeSet::One { offset, bytes }) => Some((at + offset, bytes as u8)),
            (Destination::Arena(into), _) => {
                self.output.push(Action::CopyOut(CopyOut { at, parts, client: channel.client, into }));
                None
            }
            _ => return Err(Failure::Malformed),
        };
        self.output.free_table(&parts);
        self.output.reply(channel, done, data);
        Ok(())
    }

    /// Queues an operation again that was about to run, since a decision about the segment came in between. It waits for
    /// the next event: the time at which it was submitted is older than that decision.
    #[cold]
    pub(crate) fn submit_again(&mut self, id: SegmentId, waiter: Waiter) {
        let is_home = self.segments.get(id).map(|segment| !segment.is_replica());
        let queued = match is_home {
            Ok(true) => self.locks().enqueue(id, &waiter, None),
            Ok(false) => Err(Failure::NodeDown),
            Err(failure) => Err(failure),
        };
        if let Err(failure) = queued {
            self.locks().fail(&waiter, failure);
        }
    }

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
}
