//! Work that follows from a step: operations that a replica has acknowledged, or that need no replica any more, and the service of
//! lock queues. A handler of replicas executes no operation, so that it needs no home.

use crate::action::CommitSource;
use crate::config::Now;
use crate::fault_injection::planted;
use crate::home::handler::Home;
use crate::operations::handler::Operations;
use crate::replication::handler::Replication;
use crate::requester::{LockOwner, ReplyFields, Requester};
use crate::state::memory::uploads::LargeCommit;
use crate::state::replication::{ForwardKind, ForwardedUpload, HomeWork, PendingForward, UndoMemory};
use ddss_core::{LockToken, Outcome, SegmentId};

impl Home<'_> {
    /// Lets the handler of replicas do a step, and does the work that follows from it.
    pub(crate) fn replicate<T>(&mut self, step: impl FnOnce(&mut Replication<'_>) -> T) -> T {
        let result = step(&mut self.replication());
        self.follow_up();
        result
    }

    /// Lets the handler of operations do a step, and does the work that follows from it.
    pub(crate) fn operate<T>(&mut self, step: impl FnOnce(&mut Operations<'_>) -> T) -> T {
        let result = step(&mut self.operations());
        self.follow_up();
        result
    }

    /// Does the work that follows from the last step.
    #[inline]
    pub(crate) fn follow_up(&mut self) {
        if self.replicas.has_work() {
            self.do_work();
        }
    }

    #[inline(never)]
    fn do_work(&mut self) {
        while let Some((now, id, work)) = self.replicas.next_work() {
            match work {
                HomeWork::Finish(forward) => self.finish_forward(now, id, forward),
                HomeWork::Update((principal, update, requester)) => {
                    if let Err(failure) = self.update_permissions_at_home(now, principal, id, update, requester) {
                        self.output.answer(requester, Outcome::Failed(failure), ReplyFields::default());
                    }
                }
                HomeWork::Serve => self.operations().serve_lock_queue(now, id),
            }
        }
    }

    /// Executes the operation that waited for the replica.
    fn finish_forward(&mut self, now: Now, id: SegmentId, forward: PendingForward) {
        let PendingForward { what, requester, version, timestamp, word, .. } = forward;
        let mut operations = self.operations();
        match what {
            ForwardKind::Put(parts, row) => {
                let source = CommitSource::Pool(forward.place.map_or(0, |(at, _)| at));
                if operations.commits().apply(id, (parts, row), source, (version, timestamp)).is_ok() {
                    operations.output.counters.commits += 1;
                }
                operations.output.free_table(&parts);
                operations.answer_change(requester, id, row, (version, timestamp), word);
            }
            ForwardKind::Grant(lock_request) => {
                if let Some(requester) = requester.filter(|&requester| self.is_requester_alive(requester)) {
                    let granted =
                        self.operations().locks().grant(now, id, requester, lock_request, LockToken(timestamp.0));
                    if let Err(failure) = granted {
                        self.output.answer(requester, Outcome::Failed(failure), ReplyFields::default());
                    }
                }
            }
            ForwardKind::PutLarge(upload) => self.commit_forwarded(id, &forward, upload),
            ForwardKind::Done => {}
        }
        if !matches!(what, ForwardKind::Put(..)) || !planted!(self.segments, EarlyAcknowledgement) {
            self.replication().free_place(&forward);
        }
        self.segments.update_lock_gate(now, self.replicas, id);
        let mut operations = self.operations();
        operations.give_sweep_turn(now, id);
        operations.serve_lock_queue(now, id);
        operations.continue_slice(now, id);
    }

    fn is_requester_alive(&mut self, requester: Requester) -> bool {
        match requester.owner() {
            LockOwner::Client(client) => self.output.is_attached(client),
            LockOwner::Peer(node) => self.peers.reachable(node).is_some(),
        }
    }

    /// Writes the value of a large put into this home's segment: the replica has it, or there is none.
    fn commit_forwarded(&mut self, id: SegmentId, forward: &PendingForward, upload: ForwardedUpload) {
        let ForwardedUpload { offset, bytes, from, undo, .. } = upload;
        let PendingForward { requester, version, timestamp, .. } = *forward;
        let commit = LargeCommit {
            requester,
            offset,
            bytes,
            from,
            version,
            timestamp,
            acknowledges: None,
            is_drop_deferred: false,
            has_undo: undo == UndoMemory::Reserved,
        };
        // The segment exists: this cannot fail.
        let _ = self.operations().commits().start_large(id, commit);
    }
}
