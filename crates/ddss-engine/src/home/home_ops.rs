//! Operations on segments whose home is this node, for its own clients and for other nodes. The progress thread is the
//! one arbiter of their versions, words and locks.

use crate::action::{Action, CommitSource, RangeSet};
use crate::config::Now;
use crate::fault_injection::planted;
use crate::home::handler::Home;
use crate::requester::{ReplyFields, Requester};
use crate::state::lock_queue::{Destination, Get, PendingOp, Waiter, Watcher};
use crate::state::pending::PendingAtomic;
use crate::state::replication::{RowCommit, SegmentChange};
use crate::state::segments::Segment;
use ddss_core::{
    ANY_ROW, Access, Completion, Failure, Header, LockDependency, Outcome, Principal, PutConditions, ReadOptions,
    SegmentId, Timestamp, Version,
};

impl Home<'_> {
    /// Returns which holders a get at home here waits for. A named version needs no lock.
    pub(crate) fn lock_dependency_of_get(
        &self,
        segment: SegmentId,
        options: &ReadOptions,
    ) -> Result<LockDependency, Failure> {
        let model = self.segments.get(segment)?.spec.model;
        match model.get_rules(options.requested_model).lock_dependency {
            _ if options.version.is_some() => Ok(LockDependency::None),
            LockDependency::Any if planted!(self.segments, ReadTogether) => Ok(LockDependency::Exclusive),
            lock_dependency => Ok(lock_dependency),
        }
    }

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

    /// Checks permissions and bounds of an operation, and returns whether it depends on the segment's lock.
    fn authorize_op(&self, segment: &Segment, waiter: &Waiter) -> Result<bool, Failure> {
        if segment.is_replica() {
            return Err(Failure::NodeDown);
        }
        let principal = waiter.principal;
        let check = |principal, access, parts: &RangeSet| {
            segment.permissions.allow(principal, access)?;
            self.check_parts(segment, parts)
        };
        match &waiter.op {
            PendingOp::Get(get) => {
                check(principal, Access::Read, &get.parts)?;
            }
            PendingOp::Put { parts, conditions, .. } => {
                let is_unchecked = planted!(self.segments, UncheckedPermission);
                let principal = if is_unchecked { segment.permissions.owner } else { principal };
                check(principal, Access::Write, parts)?;
                match conditions.entry {
                    // The key decides, on the newest version.
                    Some(change) => segment.check_entry_change(parts, change)?,
                    None => segment.check_names_version(conditions)?,
                }
            }
            PendingOp::Atomic { offset, .. } => {
                check(principal, Access::Write, &RangeSet::One { offset: *offset, bytes: 8 })?;
            }
            PendingOp::Lock(lock_request) => {
                segment.permissions.allow(principal, if lock_request.shared { Access::Read } else { Access::Write })?;
                segment.row_to_lock(lock_request)?;
            }
        }
        Ok(segment.depends_on_lock(&waiter.op))
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
                self.output.push(Action::CopyOut { at, parts, client: channel.client, into });
                None
            }
            _ => return Err(Failure::Malformed),
        };
        self.output.free_table(&parts);
        self.output.reply(channel, done, data);
        Ok(())
    }

    pub(crate) fn check_conditions(
        &mut self,
        now: Now,
        id: SegmentId,
        requester: Requester,
        conditions: PutConditions,
        row: Option<u64>,
    ) -> Result<(), Failure> {
        if conditions.token.is_none() && conditions.version.is_none() {
            return Ok(());
        }
        let segment = self.segments.get(id)?;
        let token = conditions.token.filter(|_| !planted!(self.segments, UncheckedToken));
        if token.is_some_and(|token| !segment.lock_queue.admits(token, requester.owner(), now.steady_us, row)) {
            let token = token.unwrap_or_default();
            return Err(segment.lock_queue.refusal(token, requester.owner(), now.steady_us, row));
        }
        if planted!(self.segments, UncheckedVersion) {
            return Ok(());
        }
        let (checked, found) = (segment.check_version(conditions.version), segment.version());
        checked.inspect_err(|_| self.output.name_version(found))
    }

    /// Changes a segment that may have a replica. An error means that nothing happened.
    pub(crate) fn change(&mut self, now: Now, id: SegmentId, change: SegmentChange) -> Result<(), Failure> {
        let SegmentChange { requester, parts, row, word, .. } = change;
        let replication = self.segments.get(id)?.replication.as_deref();
        let (is_replicated, is_large) = (replication.is_some(), self.commits().is_large(&change));
        let needs_acknowledgement = is_replicated
            && self.segments.replication_of(id).is_some_and(|replication| replication.needs_acknowledgement());
        match (needs_acknowledgement, is_large) {
            (true, true) => return self.replicate(now, |replication| replication.forward_large(now, id, change)),
            (true, false) => return self.replicate(now, |replication| replication.forward_put(now, id, change)),
            (false, true) => return self.commits().begin_large(now, id, &change),
            (false, false) => {}
        }
        let stamp = self.commits().commit(now, id, &change)?;
        if is_replicated {
            self.replication().note_dirty(now, id, &parts, row);
        }
        self.output.free_table(&parts);
        self.answer_change(requester, id, row, stamp, word);
        Ok(())
    }

    /// Answers the requester of a commit, and the watchers of what it has changed.
    pub(crate) fn answer_change(
        &mut self,
        requester: Option<Requester>,
        id: SegmentId,
        row: Option<RowCommit>,
        (of_segment, timestamp): (Version, Timestamp),
        word: u64,
    ) {
        let version = row.map_or(of_segment, |commit| commit.version);
        let row = row.map(|commit| commit.row);
        self.watches().answer_change(requester, id, row, ReplyFields { version, timestamp, word });
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

    /// Completes an atomic with the word that [`Action::ReadWord`] asked for.
    pub(crate) fn word_read(&mut self, word: u64) {
        let PendingAtomic { now, segment: id, offset, change, waiter } = self.output.end_word_read();
        let Waiter { requester, deadline_us, .. } = waiter;
        let Ok(segment) = self.segments.get_mut(id) else {
            return self.output.answer(requester, Outcome::Failed(Failure::NotFound), ReplyFields::default());
        };
        segment.lock_queue.end_word_read();
        if segment.lock_queue.blocks_puts() {
            return self.submit_again(id, waiter);
        }
        let fields = ReplyFields::of(segment.stamp(), word);
        match change.apply(word) {
            Some(new) => {
                let (parts, source) = (RangeSet::One { offset, bytes: 8 }, CommitSource::Word(new));
                let asked = Some(requester);
                let change = SegmentChange { requester: asked, parts, source, row: None, word, deadline_us };
                if let Err(failure) = self.change(now, id, change) {
                    self.output.answer(requester, Outcome::Failed(failure), ReplyFields::default());
                }
            }
            None => self.output.answer(requester, Outcome::Done, fields),
        }
        self.serve_lock_queue(now, id);
    }

    /// Watches for a version above `watcher.above`, or answers at once. In a table the version is that of the row at
    /// `offset`, or the number of the newest change of its rows.
    pub(crate) fn await_at_home(
        &mut self,
        now: Now,
        id: SegmentId,
        principal: Principal,
        offset: u64,
        watcher: Watcher,
    ) -> Result<(), Failure> {
        if self.segments.is_names(id) {
            return self.watches().await_names(watcher);
        }
        self.segments.check_home(now, self.replicas, id)?;
        let segment = self.segments.get_mut(id)?;
        segment.permissions.allow(principal, Access::Read)?;
        if let Some(layout) = segment.spec.layout() {
            if offset == ANY_ROW {
                // The clock never gives a number twice, not even after a restart.
                let first = Version(self.clock.next(now.wall_us).0);
                return self.watches().await_any_row(id, watcher, first);
            }
            return self.begin_record_watch(now, id, (layout, offset), watcher);
        }
        let fields = ReplyFields::of(segment.stamp(), 0);
        self.watches().watch(id, watcher, Some(fields).filter(|reached| reached.version > watcher.above))
    }
}
