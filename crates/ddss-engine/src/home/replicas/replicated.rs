//! Operations of a home that a replica has acknowledged, or that need no replica any more.

use crate::action::{CommitSource, RangeSet};
use crate::config::Now;
use crate::fault_injection::planted;
use crate::home::handler::Home;
use crate::replication::handler::Replication;
use crate::requester::{LockOwner, ReplyFields, Requester};
use crate::state::memory::areas::no_room;
use crate::state::memory::uploads::LargeCommit;
use crate::state::replication::{ForwardKind, ForwardedUpload, HomeWork, PendingForward, UndoMemory};
use ddss_core::{Failure, LockToken, Outcome, SegmentId};

impl Home<'_> {
    /// Lets the handler of replicas do a step, and does the work that follows from it. A step within that work has work of its
    /// own, which comes first.
    pub(crate) fn replicate<T>(&mut self, now: Now, step: impl FnOnce(&mut Replication<'_>) -> T) -> T {
        let result = step(&mut self.replication());
        let mut works = self.replicas.take_work();
        while let Some((id, work)) = works.pop_front() {
            match work {
                HomeWork::Finish(forward) => self.finish_forward(now, id, forward),
                HomeWork::Update((principal, update, requester)) => {
                    if let Err(failure) = self.update_permissions_at_home(now, principal, id, update, requester) {
                        self.output.answer(requester, Outcome::Failed(failure), ReplyFields::default());
                    }
                }
                HomeWork::Serve => self.serve_lock_queue(now, id),
            }
        }
        self.replicas.return_work(works);
        result
    }

    /// Executes the operation that waited for the replica.
    fn finish_forward(&mut self, now: Now, id: SegmentId, forward: PendingForward) {
        let PendingForward { what, requester, version, timestamp, word, .. } = forward;
        match what {
            ForwardKind::Put(parts, row) => {
                let source = CommitSource::Pool(forward.place.map_or(0, |(at, _)| at));
                if self.commits().apply(id, (parts, row), source, (version, timestamp)).is_ok() {
                    self.output.counters.commits += 1;
                }
                self.output.free_table(&parts);
                self.answer_change(requester, id, row, (version, timestamp), word);
            }
            ForwardKind::Grant(lock_request) => {
                if let Some(requester) = requester.filter(|&requester| self.is_requester_alive(requester)) {
                    let granted = self.locks().grant(now, id, requester, lock_request, LockToken(timestamp.0));
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
        self.give_sweep_turn(now, id);
        self.serve_lock_queue(now, id);
        self.continue_slice(now, id);
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
        let _ = self.commits().start_large(id, commit);
    }

    /// Ends a large commit of a segment that has or is a replica.
    pub(crate) fn replicated_large_committed(&mut self, now: Now, id: SegmentId, commit: &LargeCommit, made: bool) {
        let LargeCommit { requester, offset, bytes, version, timestamp, .. } = *commit;
        let Ok(segment) = self.segments.get(id) else { return };
        let storage = segment.spec.storage;
        let Some(replication) = segment.replication.as_deref() else { return };
        let is_home = replication.is_home();
        let outcome = match made {
            _ if !is_home || commit.is_drop_deferred => Outcome::Indeterminate(Failure::NodeDown),
            true => Outcome::Done,
            false => Outcome::Failed(no_room(storage)),
        };
        let fields = if made { ReplyFields { version, timestamp, word: 0 } } else { ReplyFields::default() };
        if let Some(requester) = requester {
            self.output.answer(requester, outcome, fields);
        }
        if !is_home {
            return self.replica_committed(now, id, commit, made);
        }
        if commit.is_drop_deferred {
            return self.drop_replica(now, id);
        }
        if made {
            self.replication().note_dirty(now, id, &RangeSet::One { offset, bytes }, None);
            self.watches().answer_change(None, id, None, fields);
        }
        // A copy that was complete but for this value waited for it.
        self.replication().continue_resync(now, id);
        self.serve_lock_queue(now, id);
    }
}
