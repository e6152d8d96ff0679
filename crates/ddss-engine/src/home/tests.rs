//! Tests of the home's handler without an engine around it: its parts are the whole world.

use super::handler::Home;
use crate::action::{Action, CommitSource, PeerAction, RangeSet, SegmentCommit};
use crate::config::{EngineConfig, Now};
use crate::requester::{LockOwner, Requester};
use crate::state::lock_queue::{PendingOp, Waiter};
use crate::state::memory::uploads::Uploads;
use crate::state::name_claims::NameClaims;
use crate::state::output::Output;
use crate::state::peers::Peers;
use crate::state::replication::Replicas;
use crate::state::segments::Segments;
use ddss_core::{
    Failure, HybridClock, LockRequest, LockToken, Message, Name, NodeId, Outcome, Permissions, Principal,
    PutConditions, SegmentId, Shard, Spec, Timestamp, Version,
};

mod entries;
mod forwarded_rows;
mod interrupted_ops;
mod map_sweeps;
mod new_replicas;
mod row_locks;

pub(super) const OWNER: Principal = Principal { uid: 7, gid: 7 };
pub(super) const NOW: Now = Now { steady_us: 1000, wall_us: 1000 };
pub(super) const A: NodeId = NodeId(2);
pub(super) const B: NodeId = NodeId(3);

pub(super) struct Parts {
    pub(super) segments: Segments,
    replicas: Replicas,
    pub(super) peers: Peers,
    uploads: Uploads,
    directory: Option<NameClaims>,
    clock: HybridClock,
    pub(super) output: Output,
}

impl Parts {
    /// Makes the parts of a node with one segment and two connected peers.
    fn new() -> (Self, SegmentId) {
        Self::with(Spec::new(64))
    }

    pub(super) fn with(spec: Spec) -> (Self, SegmentId) {
        let (node, shard, pool_bytes) = (NodeId(1), Shard::ONLY, 4 << 20);
        let config =
            EngineConfig { node, shard, pool_bytes, peers: vec![A, B], first_generation: 1, reads_overlap: true };
        let mut parts = Self {
            segments: Segments::new(&config),
            replicas: Replicas::default(),
            peers: Peers::default(),
            uploads: Uploads::new(1 << 20, 0),
            directory: None,
            clock: HybridClock::default(),
            output: Output::new(),
        };
        parts.peers.connect(A);
        parts.peers.connect(B);
        let (name, permissions) = (Name::new("parts").expect("it is short"), Permissions { owner: OWNER, mode: 0o600 });
        let maker = Requester::Peer(A, 0);
        let made = parts.segments.allocate(name, spec, permissions, Timestamp(1), maker, None);
        let id = made.expect("the pool is empty").segment;
        parts.segments.formed(id).expect("it is in creation");
        (parts, id)
    }

    pub(super) fn home(&mut self) -> Home<'_> {
        Home {
            segments: &mut self.segments,
            replicas: &mut self.replicas,
            peers: &mut self.peers,
            uploads: &mut self.uploads,
            directory: &mut self.directory,
            clock: &mut self.clock,
            output: &mut self.output,
        }
    }

    pub(super) fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.output.next_action()).collect()
    }

    pub(super) fn submit(&mut self, id: SegmentId, node: NodeId, step: u64, op: PendingOp) -> Result<(), Failure> {
        let (requester, deadline_us) = (Requester::Peer(node, step), NOW.steady_us + 100);
        self.home().operations().submit_op(NOW, id, &Waiter { requester, principal: OWNER, op, deadline_us })
    }

    /// Locks for a node; returns the token.
    fn lock(&mut self, id: SegmentId, node: NodeId) -> LockToken {
        let lock_request = LockRequest { shared: false, no_wait: false, lease_us: 1000, row_offset: None };
        self.submit(id, node, 1, PendingOp::Lock(lock_request)).expect("the lock is free");
        let granted = self.actions().into_iter().find_map(|action| match action {
            Action::Peer(PeerAction::Send { message: Message::Ended { outcome: Outcome::Done, word, .. }, .. }) => {
                Some(word)
            }
            _ => None,
        });
        LockToken(granted.expect("the grant goes out"))
    }

    fn put(&mut self, id: SegmentId, node: NodeId, bytes: &[u8]) -> Result<(), Failure> {
        let source = CommitSource::Buffer(self.output.store(bytes));
        let parts = RangeSet::One { offset: 0, bytes: bytes.len() as u32 };
        self.submit(id, node, 2, PendingOp::Put { parts, source, conditions: PutConditions::default() })
    }
}

#[test]
fn put_behind_a_lock_commits_once_after_the_unlock_and_then_answers() {
    // If this broke, a holder would find its segment changed under the lock, or a put would be lost.
    let (mut parts, id) = Parts::new();
    let token = parts.lock(id, A);
    assert_eq!(parts.put(id, B, b"behind"), Ok(()));
    assert_eq!(parts.actions(), [], "the put waits");
    assert_eq!(parts.home().operations().unlock_at_home(NOW, id, token, LockOwner::Peer(B)), Err(Failure::LockLost));
    assert_eq!(parts.actions(), [], "a foreign unlock changes nothing");
    assert!(parts.home().operations().unlock_at_home(NOW, id, token, LockOwner::Peer(A)).is_ok());
    let actions = parts.actions();
    let [
        Action::SetLockHolder { .. },
        Action::Commit(SegmentCommit { version, .. }),
        Action::Peer(PeerAction::Send { node, message, .. }),
    ] = actions[..]
    else {
        panic!("unmark, commit, answer: {actions:?}")
    };
    assert_eq!((version, node, parts.output.counters.commits), (Version(1), B, 1));
    assert!(matches!(message, Message::Ended { step: 2, outcome: Outcome::Done, version: Version(1), .. }));
}

#[test]
fn peer_that_is_gone_loses_its_lock_and_its_waiting_put() {
    // If this broke, the lock of a dead node would hold until its lease ends, or a put without a requester would run.
    let (mut parts, id) = Parts::new();
    parts.lock(id, A);
    assert_eq!(parts.put(id, B, b"of a dead node"), Ok(()));
    parts.home().operations().drop_owner(NOW, LockOwner::Peer(B));
    assert!(!parts.actions().iter().any(|action| matches!(action, Action::Commit(_))), "the put is gone");
    parts.home().operations().drop_owner(NOW, LockOwner::Peer(A));
    assert_eq!((parts.output.counters.locks_broken, parts.output.counters.commits), (1, 0));
    parts.actions();
    assert_eq!(parts.put(id, A, b"free again"), Ok(()));
    assert!(
        parts
            .actions()
            .iter()
            .any(|action| matches!(action, Action::Commit(SegmentCommit { version: Version(1), .. })))
    );
}

#[test]
fn released_segment_fails_its_waiters_before_its_memory_is_zeroed() {
    // If this broke, a waiter would wait for a segment that exists no more.
    let (mut parts, id) = Parts::new();
    parts.lock(id, A);
    assert_eq!(parts.put(id, B, b"too late"), Ok(()));
    assert_eq!(parts.home().lifecycle().release_at_home(NOW, OWNER, id), Ok(()));
    let actions = parts.actions();
    let failed = actions.iter().position(|action| {
        let Action::Peer(PeerAction::Send { node, message: Message::Ended { step: 2, outcome, .. }, .. }) = action
        else {
            return false;
        };
        (*node, *outcome) == (B, Outcome::Failed(Failure::NotFound))
    });
    let zeroed = actions.iter().position(|action| matches!(action, Action::ZeroFill { .. }));
    assert!(failed.is_some() && failed < zeroed, "{actions:?}");
    assert_eq!(parts.put(id, B, b"later still"), Err(Failure::NotFound));
}
