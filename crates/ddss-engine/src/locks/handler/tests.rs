//! Tests of locks and of waits for them, without a home around them.

use super::Locks;
use crate::action::{Action, CommitSource, PeerAction, RangeSet};
use crate::config::{EngineConfig, Now};
use crate::requester::{LockOwner, Requester};
use crate::state::lock_queue::{PendingOp, Ready, Waiter};
use crate::state::memory::uploads::{UploadOwner, Uploads};
use crate::state::output::Output;
use crate::state::segments::Segments;
use crate::uploads::memory::UploadMemory;
use ddss_core::{
    ClientId, Failure, LockRequest, LockToken, Message, Name, NodeId, Outcome, Permissions, Principal, PutConditions,
    SegmentId, Shard, Spec, Storage, Timestamp,
};

const PEER: NodeId = NodeId(2);
const OTHER: NodeId = NodeId(3);
const NOW: Now = Now { steady_us: 1000, wall_us: 1000 };
const LEASE_US: u32 = 50;
const FIRST: LockToken = LockToken(77);

struct Parts {
    segments: Segments,
    uploads: Uploads,
    output: Output,
    id: SegmentId,
}

impl Parts {
    fn new(spec: Spec) -> Self {
        let (node, shard, peers) = (NodeId(1), Shard::ONLY, vec![PEER, OTHER]);
        let config = EngineConfig { node, shard, pool_bytes: 1 << 20, peers, first_generation: 1, reads_overlap: true };
        let mut segments = Segments::new(&config);
        let (name, owner) = (Name::new("locked").expect("it is short"), Principal { uid: 7, gid: 7 });
        let permissions = Permissions { owner, mode: 0o600 };
        let made = segments.allocate(name, spec, permissions, Timestamp(1), Requester::Peer(PEER, 0), None);
        let id = made.expect("the pool is empty").segment;
        segments.formed(id).expect("it is in creation");
        let (uploads, output) = (Uploads::new(1 << 20, 0), Output::new());
        Self { segments, uploads, output, id }
    }

    fn locks(&mut self) -> Locks<'_> {
        let Self { segments, uploads, output, .. } = self;
        Locks { segments, uploads, output }
    }

    /// Grants the lock of the segment to a peer.
    fn lock(&mut self, node: NodeId, token: LockToken) {
        let (id, requester) = (self.id, Requester::Peer(node, 1));
        self.locks().grant(NOW, id, requester, request(None), token).expect("it is free");
        assert_eq!(self.ended(), [(node, 1, Outcome::Done)]);
    }

    /// Queues a put of a peer.
    fn put(&mut self, node: NodeId, step: u64, source: CommitSource) -> Result<(), Failure> {
        let (id, requester, principal) = (self.id, Requester::Peer(node, step), Principal { uid: 7, gid: 7 });
        let (parts, conditions) = (RangeSet::One { offset: 0, bytes: 8 }, PutConditions::default());
        let op = PendingOp::Put { parts, source, conditions };
        let deadline_us = NOW.steady_us + step;
        self.locks().enqueue(id, &Waiter { requester, principal, op, deadline_us }, None)
    }

    /// Returns the steps that have ended.
    fn ended(&mut self) -> Vec<(NodeId, u64, Outcome)> {
        let actions = std::iter::from_fn(|| self.output.next_action());
        let ended = actions.filter_map(|action| match action {
            Action::Peer(PeerAction::Send { node, message: Message::Ended { step, outcome, .. }, .. }) => {
                Some((node, step, outcome))
            }
            _ => None,
        });
        ended.collect()
    }

    fn queue_lengths(&self) -> (usize, usize) {
        let segment = self.segments.get(self.id).expect("it exists");
        (segment.lock_queue.holders(), segment.lock_queue.waiting())
    }
}

fn request(row_offset: Option<u64>) -> LockRequest {
    LockRequest { row_offset, shared: false, lease_us: LEASE_US, no_wait: false }
}

#[test]
fn lock_word_shows_the_holder_until_unlock_and_a_foreign_token_ends_nothing() {
    // If this broke, a client that reads in place would not see a lock, or one that never ends.
    let mut parts = Parts::new(Spec::new(64));
    let id = parts.id;
    let requester = Requester::Peer(PEER, 1);
    parts.locks().grant(NOW, id, requester, request(None), FIRST).expect("it is free");
    let Some(Action::SetLockHolder { holder, .. }) = parts.output.next_action() else { panic!("no lock word") };
    assert_eq!((holder, parts.ended()), (FIRST, vec![(PEER, 1, Outcome::Done)]));
    assert_eq!(parts.locks().unlock(id, FIRST, LockOwner::Peer(OTHER)), Err(Failure::LockLost));
    assert!(parts.output.next_action().is_none());
    let fields = parts.locks().unlock(id, FIRST, LockOwner::Peer(PEER));
    assert_eq!(fields.map(|fields| fields.version.0), Ok(0));
    let Some(Action::SetLockHolder { holder, .. }) = parts.output.next_action() else { panic!("no lock word") };
    assert_eq!((holder, parts.queue_lengths()), (LockToken::default(), (0, 0)));
    assert_eq!((parts.output.counters.locks_granted, parts.output.counters.locks_broken), (1, 0));
}

#[test]
fn grant_of_a_row_is_answered_when_its_record_is_read() {
    // If this broke, the holder of a row would get the version of the table.
    let mut parts = Parts::new(Spec::table(4, 8));
    let id = parts.id;
    parts.locks().grant(NOW, id, Requester::Peer(PEER, 1), request(Some(16)), FIRST).expect("it is free");
    let actions: Vec<_> = std::iter::from_fn(|| parts.output.next_action()).collect();
    assert!(
        matches!(actions[..], [Action::SetLockHolder { .. }, Action::ReadRecord { word: None, .. }]),
        "{actions:?}"
    );
    assert_eq!(parts.output.end_record_read().row, 2);
}

#[test]
fn lease_ends_at_its_time_unless_it_is_renewed() {
    // If this broke, a dead client would block a segment, or a live one would lose its lock.
    let mut parts = Parts::new(Spec::new(64));
    let id = parts.id;
    parts.lock(PEER, FIRST);
    let later = Now { steady_us: NOW.steady_us + 40, ..NOW };
    parts.locks().renew(later, id, FIRST, LockOwner::Peer(PEER), LEASE_US).expect("it is in force");
    let after_first = Now { steady_us: NOW.steady_us + 60, ..NOW };
    parts.locks().expire(after_first, id);
    assert_eq!((parts.queue_lengths(), parts.output.counters.locks_broken), ((1, 0), 0));
    parts.locks().expire(Now { steady_us: later.steady_us + 50, ..NOW }, id);
    assert_eq!((parts.queue_lengths(), parts.output.counters.locks_broken), ((0, 0), 1));
    assert_eq!(parts.locks().renew(later, id, FIRST, LockOwner::Peer(PEER), LEASE_US), Err(Failure::LockLost));
}

#[test]
fn wait_ends_once_by_cancel_deadline_or_the_end_of_its_owner_and_frees_what_it_owns() {
    // If this broke, the pool would fill with the bytes of puts that never run.
    let mut parts = Parts::new(Spec::new(64));
    let (id, owner) = (parts.id, UploadOwner { node: PEER, client: ClientId { index: 1, generation: 1 } });
    parts.lock(PEER, FIRST);
    let free = parts.segments.free_bytes(Storage::Memory);
    let Parts { segments, uploads, .. } = &mut parts;
    let upload = UploadMemory { segments, uploads }.begin(NOW, owner, id, 4096).expect("the pool has room");
    parts.uploads.append(NOW.steady_us, upload, (owner, id), (0, 4096)).expect("it is the first part");
    let (at, _) = parts.uploads.commit(upload, owner, id).expect("it is complete");
    assert!(parts.segments.free_bytes(Storage::Memory) < free);
    let buffer = parts.output.store(&[1; 8]);
    parts.put(OTHER, 4, CommitSource::Pool(at)).expect("there is room");
    parts.put(OTHER, 5, CommitSource::Buffer(buffer)).expect("there is room");
    parts.put(OTHER, 9, CommitSource::Word(1)).expect("there is room");
    assert!(parts.locks().cancel(id, Requester::Peer(OTHER, 4)));
    assert!(!parts.locks().cancel(id, Requester::Peer(OTHER, 4)));
    assert_eq!(parts.segments.free_bytes(Storage::Memory), free);
    parts.locks().expire(Now { steady_us: NOW.steady_us + 5, ..NOW }, id);
    let timed_out = Outcome::Failed(Failure::TimedOut);
    assert_eq!(parts.ended(), [(OTHER, 4, timed_out), (OTHER, 5, timed_out)]);
    assert_eq!(parts.output.store(&[2; 8]), buffer, "its buffer is free");
    parts.locks().drop_owner(id, LockOwner::Peer(OTHER));
    assert_eq!((parts.ended(), parts.queue_lengths()), (vec![], (1, 0)), "an owner that is gone gets no answer");
    parts.locks().drop_owner(id, LockOwner::Peer(PEER));
    assert_eq!((parts.queue_lengths(), parts.output.counters.locks_broken), ((0, 0), 1));
}

#[test]
fn waits_for_locks_fail_before_the_node_stops_and_all_when_the_segment_goes() {
    // If this broke, a stopping node would cut puts off that could still run, or a released segment would keep waiters.
    let mut parts = Parts::new(Spec::new(64));
    let (id, principal) = (parts.id, Principal { uid: 7, gid: 7 });
    parts.lock(PEER, FIRST);
    parts.put(OTHER, 4, CommitSource::Word(1)).expect("there is room");
    let (requester, op) = (Requester::Peer(OTHER, 5), PendingOp::Lock(request(None)));
    let lock = Waiter { requester, principal, op, deadline_us: u64::MAX };
    parts.locks().enqueue(id, &lock, None).expect("there is room");
    parts.locks().fail_blocked(id, false, |_| Failure::GoingDown);
    assert_eq!(parts.ended(), [(OTHER, 5, Outcome::Failed(Failure::GoingDown))]);
    parts.locks().fail_all(id, Failure::NotFound);
    assert_eq!(parts.ended(), [(OTHER, 4, Outcome::Failed(Failure::NotFound))]);
    let lock_queue = &mut parts.segments.get_mut(id).expect("it exists").lock_queue;
    assert_eq!(lock_queue.next_ready().map(|ready| matches!(ready, Ready::OfSegment(_))), None);
    assert_eq!(parts.queue_lengths(), (0, 0));
}
