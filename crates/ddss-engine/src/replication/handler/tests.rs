//! Tests of the replica of a segment at home here, without a home around them.

use super::Replication;
use crate::action::{Action, CommitSource, PeerAction, RangeSet};
use crate::config::{EngineConfig, Now};
use crate::requester::Requester;
use crate::state::memory::uploads::Uploads;
use crate::state::output::Output;
use crate::state::peers::Peers;
use crate::state::replication::{ForwardKind, HomeWork, Replicas, SegmentChange};
use crate::state::segments::Segments;
use ddss_core::{
    Failure, HybridClock, LockRequest, LockToken, Message, Name, NodeId, OfferReply, Outcome, PermissionUpdate,
    Permissions, Principal, ReplicaAck, SegmentId, Shard, Spec, Storage, Timestamp, Version,
};

const REPLICA: NodeId = NodeId(2);
const NOW: Now = Now { steady_us: 1000, wall_us: 1000 };
const OWNER: Principal = Principal { uid: 7, gid: 7 };
const CALLER: Requester = Requester::Peer(REPLICA, 9);

struct Parts {
    segments: Segments,
    replicas: Replicas,
    peers: Peers,
    uploads: Uploads,
    clock: HybridClock,
    output: Output,
    id: SegmentId,
}

impl Parts {
    /// Makes a home whose replica has acknowledged all that it was sent.
    fn new() -> Self {
        let (node, shard, peers) = (NodeId(1), Shard::ONLY, vec![REPLICA]);
        let config = EngineConfig { node, shard, pool_bytes: 1 << 20, peers, first_generation: 1, reads_overlap: true };
        let (mut segments, mut peers) = (Segments::new(&config), Peers::default());
        peers.connect(REPLICA);
        let (name, permissions) =
            (Name::new("copied").expect("it is short"), Permissions { owner: OWNER, mode: 0o600 });
        let spec = Spec { copies: 2, ..Spec::new(64) };
        let made = segments.allocate(name, spec, permissions, Timestamp(1), Requester::Peer(REPLICA, 0), None);
        let id = made.expect("the pool is empty").segment;
        segments.formed(id).expect("it is in creation");
        let (replicas, uploads) = (Replicas::default(), Uploads::new(1 << 20, 0));
        let (clock, output) = (HybridClock::default(), Output::new());
        let mut parts = Self { segments, replicas, peers, uploads, clock, output, id };
        parts.replication().begin_as_home(NOW, id);
        assert!(matches!(parts.sent()[..], [Message::Offer { .. }]));
        parts.replication().offer_answered(NOW, REPLICA, id, 1, OfferReply::Whole);
        parts
    }

    fn replication(&mut self) -> Replication<'_> {
        let Self { segments, replicas, peers, uploads, clock, output, .. } = self;
        Replication { segments, replicas, peers, uploads, clock, output }
    }

    /// Acknowledges what has that timestamp.
    fn acknowledge(&mut self, timestamp: Timestamp) {
        let id = self.id;
        self.replication().replica_acknowledged(NOW, REPLICA, id, 1, (ReplicaAck::Put, timestamp));
    }

    /// Returns the messages that went out.
    fn sent(&mut self) -> Vec<Message> {
        let actions = std::iter::from_fn(|| self.output.next_action());
        let messages = actions.filter_map(|action| match action {
            Action::Peer(PeerAction::Send { message, .. }) => Some(message),
            _ => None,
        });
        messages.collect()
    }

    /// Returns the timestamp of the only message, which goes to the replica.
    fn forwarded(&mut self) -> Timestamp {
        match self.sent()[..] {
            [Message::Forward { timestamp, .. }] => timestamp,
            ref other => panic!("{other:?}"),
        }
    }

    fn put(&mut self) -> Result<(), Failure> {
        let (id, parts) = (self.id, RangeSet::One { offset: 0, bytes: 8 });
        let (requester, source, deadline_us) = (Some(CALLER), CommitSource::Word(5), NOW.steady_us + 100);
        self.replication().forward_put(
            NOW,
            id,
            SegmentChange { requester, parts, source, row: None, word: 0, deadline_us },
        )
    }

    fn blocks_puts(&self) -> bool {
        self.segments.get(self.id).expect("it exists").lock_queue.blocks_puts()
    }

    fn work(&mut self) -> Vec<HomeWork> {
        let works = std::iter::from_fn(|| self.replicas.next_work());
        works
            .map(|(now, id, work)| {
                assert_eq!((now, id), (NOW, self.id));
                work
            })
            .collect()
    }
}

#[test]
fn acknowledged_put_is_left_to_the_home_and_blocks_others_until_then() {
    // If this broke, a put would be answered before the replica has it, or two would have one version.
    let mut parts = Parts::new();
    let joined = parts.forwarded();
    parts.acknowledge(joined);
    assert!(parts.work().is_empty());
    parts.sent();
    parts.put().expect("the pool has room");
    let timestamp = parts.forwarded();
    assert!(parts.blocks_puts());
    parts.acknowledge(Timestamp(timestamp.0 - 1));
    let (id, ack) = (parts.id, (ReplicaAck::Put, timestamp));
    parts.replication().replica_acknowledged(NOW, REPLICA, id, 2, ack);
    parts.replication().replica_acknowledged(NOW, NodeId(3), id, 1, ack);
    assert!(parts.work().is_empty(), "another put, another term, another node");
    parts.acknowledge(timestamp);
    parts.acknowledge(timestamp);
    let work = parts.work();
    let [HomeWork::Finish(forward)] = work[..] else { panic!("{work:?}") };
    assert_eq!((forward.version, forward.timestamp, forward.requester), (Version(1), timestamp, Some(CALLER)));
    assert!(parts.sent().is_empty(), "the home answers");
}

#[test]
fn home_without_its_replica_finishes_what_waited_for_it_in_order() {
    // If this broke, permissions would change before a put that was sent under the old ones, or a caller would hang.
    let mut parts = Parts::new();
    let id = parts.id;
    parts.forwarded();
    let request = LockRequest { row_offset: None, shared: false, lease_us: 50, no_wait: false };
    assert!(parts.replication().forward_grant(NOW, id, CALLER, request, LockToken(70)));
    let update = (OWNER, PermissionUpdate::default(), CALLER);
    parts.segments.replication_of(id).expect("it has a replica").deferred_updates.push(update);
    parts.replication().lose_replica(NOW, id);
    let work = parts.work();
    let [HomeWork::Finish(forward), HomeWork::Update((by, _, CALLER)), HomeWork::Serve] = work[..] else {
        panic!("{work:?}")
    };
    assert!(matches!(forward.what, ForwardKind::Grant(_)) && by == OWNER);
    assert!(!parts.blocks_puts());
    parts.replication().lose_replica(NOW, id);
    assert!(parts.work().is_empty(), "it is alone");
}

#[test]
fn put_that_waits_too_long_is_answered_once_and_released_memory_returns() {
    // If this broke, a caller would get two answers, or the pool would lose the bytes of each put that was abandoned.
    let mut parts = Parts::new();
    let id = parts.id;
    parts.forwarded();
    let free = parts.segments.free_bytes(Storage::Memory);
    parts.put().expect("the pool has room");
    parts.sent();
    assert!(parts.segments.free_bytes(Storage::Memory) < free);
    let late = Now { steady_us: NOW.steady_us + 100, ..NOW };
    parts.replication().expire_forward(late, id);
    let sent = parts.sent();
    assert!(matches!(sent[..], [Message::Ended { step: 9, outcome: Outcome::Indeterminate(Failure::TimedOut), .. }]));
    parts.replication().end_replication(late, id);
    assert!(parts.sent().is_empty() && parts.work().is_empty());
    assert_eq!(parts.segments.free_bytes(Storage::Memory), free);
}
