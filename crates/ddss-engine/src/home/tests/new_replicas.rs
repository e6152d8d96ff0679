//! Tests of the choice of the next replica, and of large puts that a replica refuses or for which the home has no memory.

use super::forwarded_rows::{self, FIRST};
use super::interrupted_ops::{decide, lose, paired};
use super::{NOW, OWNER, Parts};
use crate::action::{Action, PeerAction};
use crate::config::Now;
use crate::home::upload_calls::Uploader;
use crate::requester::Requester;
use crate::state::memory::uploads::UploadOwner;
use ddss_core::{
    ClientId, Failure, Message, NodeId, OfferReply, Outcome, PutConditions, Refusal, ReplicaAck, SegmentId, Spec,
    Storage, Timestamp, Version,
};

const SOON: Now = Now { steady_us: 1500, wall_us: 1500 };
const BYTES: u32 = 200_000;
const STEP: u64 = 9;

fn offered(parts: &mut Parts) -> Option<NodeId> {
    parts.actions().into_iter().find_map(|action| match action {
        Action::Peer(PeerAction::Send { node, message: Message::Offer { .. }, .. }) => Some(node),
        _ => None,
    })
}

#[test]
fn replica_that_left_the_cluster_is_replaced_at_once() {
    // If this broke, each orderly departure of a node would leave segments with one copy for ten seconds.
    for leaves in [false, true] {
        let (mut parts, id, replica, other) = paired(Spec::new(64));
        lose(&mut parts, replica);
        if leaves {
            parts.peers.remove(replica);
        }
        decide(&mut parts, SOON, id, NodeId(1), replica, (1, 2), false);
        parts.actions();
        parts.home().tick_replication(SOON);
        assert_eq!(offered(&mut parts), leaves.then_some(other), "a member that may return is waited for");
    }
}

#[test]
fn replica_that_refuses_its_copy_later_is_recorded_with_the_reason() {
    // If this broke, `stat` would not say why a segment is degraded, and the same node would be asked again at once.
    let (mut parts, id, replica, other) = paired(Spec::new(64));
    parts
        .home()
        .replicate(|replication| replication.offer_answered(SOON, replica, id, 1, OfferReply::No(Refusal::NoRoom)));
    decide(&mut parts, SOON, id, NodeId(1), replica, (1, 2), false);
    parts.actions();
    parts.home().tick_replication(SOON);
    assert_eq!(offered(&mut parts), Some(other));
}

/// Begins a large put; returns its timestamp.
fn begin_large(parts: &mut Parts, id: SegmentId) -> Timestamp {
    let client = ClientId { index: 0, generation: 1 };
    let requester = Requester::Peer(super::A, STEP);
    let uploader = Uploader { requester, principal: OWNER, client, deadline_us: NOW.steady_us + 50_000 };
    let owner = UploadOwner { node: super::A, client };
    let at = parts.segments.allocate_blocks(BYTES.into()).expect("the pool has room");
    let upload = parts.uploads.begin(NOW.steady_us, owner, id, (at, BYTES));
    parts.uploads.append(NOW.steady_us, upload, (owner, id), (0, BYTES)).expect("it is the only part");
    parts.home().commit_upload(NOW, &uploader, id, (0, upload), PutConditions::default()).expect("it is allowed");
    let actions = parts.actions();
    let [Action::ReserveUndo { segment, bytes: BYTES, timestamp, .. }] = actions[..] else {
        panic!("memory for the commit here comes before all parts: {actions:?}")
    };
    assert_eq!(segment, id);
    timestamp
}

/// Begins a large put for which this home has memory; returns the timestamp of its parts, and how many are in flight.
fn put_large(parts: &mut Parts, id: SegmentId) -> (Timestamp, usize) {
    let timestamp = begin_large(parts, id);
    parts.home().replicate(|replication| replication.undo_reserved(NOW, id, timestamp, true));
    sent(parts).expect("the first parts go out")
}

/// Returns the timestamp of the parts that are sent now, and their number.
fn sent(parts: &mut Parts) -> Option<(Timestamp, usize)> {
    let forwards: Vec<Timestamp> = (parts.actions().into_iter())
        .filter_map(|action| match action {
            Action::Peer(PeerAction::Send { message: Message::ForwardPart { timestamp, .. }, .. })
            | Action::Peer(PeerAction::SendStaged { message: Message::ForwardPart { timestamp, .. }, .. }) => {
                Some(timestamp)
            }
            _ => None,
        })
        .collect();
    Some((*forwards.first()?, forwards.len()))
}

fn ended(parts: &mut Parts) -> Option<(Outcome, u64)> {
    parts.actions().into_iter().find_map(|action| match action {
        Action::Peer(PeerAction::Send { message: Message::Ended { step: STEP, outcome, word, .. }, .. }) => {
            Some((outcome, word))
        }
        _ => None,
    })
}

fn large() -> (Parts, SegmentId, NodeId) {
    let (mut parts, id, replica, _) = paired(Spec::new(BYTES.into()));
    parts.uploads.at_once_max = 64;
    (parts, id, replica)
}

/// Counts the reservations that end without a commit, and the commits that have one.
fn ends_of_reservations(actions: &[Action]) -> (usize, usize) {
    let count = |ends: fn(&Action) -> bool| actions.iter().filter(|&action| ends(action)).count();
    let is_commit = |action: &Action| matches!(action, Action::CommitLarge { has_undo: true, .. });
    (count(|action| matches!(action, Action::ReleaseUndo)), count(is_commit))
}

#[test]
fn large_put_that_this_home_has_no_memory_to_commit_fails_before_the_replica_has_it() {
    // If this broke, the home would part from its replica, and acknowledge the next put with one copy.
    let (mut parts, id, replica) = large();
    let version = parts.segments.get(id).unwrap().version();
    let timestamp = begin_large(&mut parts, id);
    assert_eq!(parts.put(id, replica, b"behind it"), Ok(()));
    assert_eq!(parts.actions(), [], "the next put waits");
    parts.home().replicate(|replication| replication.undo_reserved(SOON, id, timestamp, false));
    let actions = parts.actions();
    let [Action::Peer(PeerAction::Send { message: Message::Ended { step: STEP, outcome, word, .. }, .. }), .., put] =
        &actions[..]
    else {
        panic!("the put fails, and the next one goes out: {actions:?}")
    };
    assert_eq!((*outcome, *word), (Outcome::Failed(Failure::NoSpace), 1), "this node has no memory");
    assert!(matches!(put, Action::Peer(PeerAction::Send { message: Message::Forward { .. }, .. })), "{put:?}");
    assert_eq!(ends_of_reservations(&actions), (0, 0));
    let segment = parts.segments.get(id).unwrap();
    assert!(segment.version() == version && segment.replication.as_ref().unwrap().needs_acknowledgement());
    assert_eq!(parts.uploads.usage(), (0, 0), "the memory of the put is free");
}

#[test]
fn reservation_ends_with_its_commit_or_without_one() {
    // If this broke, the memory of the undo log would never be free again, or be taken from a commit that needs it.
    let (mut parts, id, replica) = large();
    let (timestamp, _) = put_large(&mut parts, id);
    parts
        .home()
        .replicate(|replication| replication.replica_acknowledged(SOON, replica, id, 1, (ReplicaAck::Put, timestamp)));
    assert_eq!(ends_of_reservations(&parts.actions()), (0, 1));
    parts.home().large_committed(SOON, id, true);
    assert_eq!(ended(&mut parts), Some((Outcome::Done, 0)));
    // The replica refuses.
    let (timestamp, count) = put_large(&mut parts, id);
    for _ in 0..count {
        parts.home().replicate(|replication| {
            replication.replica_acknowledged(SOON, replica, id, 1, (ReplicaAck::NoRoom, timestamp))
        });
    }
    assert_eq!(ends_of_reservations(&parts.actions()), (1, 0));
    // The replica goes while the memory is reserved: the commit without a replica looks for memory by itself.
    let timestamp = begin_large(&mut parts, id);
    lose(&mut parts, replica);
    decide(&mut parts, SOON, id, NodeId(1), replica, (1, 2), false);
    let actions = parts.actions();
    assert!(actions.iter().any(|action| matches!(action, Action::CommitLarge { has_undo: false, .. })), "{actions:?}");
    parts.home().replicate(|replication| replication.undo_reserved(SOON, id, timestamp, true));
    assert_eq!(parts.actions(), [Action::ReleaseUndo]);
}

#[test]
fn large_put_that_the_replica_has_no_room_for_fails_and_changes_nothing() {
    // If this broke, the home would commit alone, acknowledge, and throw a good replica out.
    let (mut parts, id, replica) = large();
    let version = parts.segments.get(id).unwrap().version();
    let (timestamp, count) = put_large(&mut parts, id);
    for part in 0..count {
        assert_eq!(ended(&mut parts), None, "{part} parts are answered");
        parts.home().replicate(|replication| {
            replication.replica_acknowledged(SOON, replica, id, 1, (ReplicaAck::NoRoom, timestamp))
        });
    }
    assert_eq!(ended(&mut parts), Some((Outcome::Failed(Failure::NoSpace), replica.0.into())));
    let segment = parts.segments.get(id).unwrap();
    assert!(segment.version() == version && segment.replication.as_ref().unwrap().needs_acknowledgement());
    assert_eq!(parts.uploads.usage(), (0, 0), "the memory of the put is free");
    // The next put goes its way.
    assert!(put_large(&mut parts, id).1 > 0);
}

#[test]
fn large_put_waits_until_other_puts_leave_room_at_the_replica() {
    // If this broke, puts at the same time would fail, although there is room for one after the other.
    let (mut parts, id, replica) = large();
    let (timestamp, count) = put_large(&mut parts, id);
    let at = |steady_us: u64| Now { steady_us, wall_us: steady_us };
    let refuse = |parts: &mut Parts, now: Now| {
        for _ in 0..count {
            parts.home().replicate(|replication| {
                replication.replica_acknowledged(now, replica, id, 1, (ReplicaAck::Busy, timestamp))
            });
        }
    };
    parts.home().lease(NOW, u64::MAX);
    refuse(&mut parts, SOON);
    parts.home().tick_lock_queues(SOON);
    assert_eq!(parts.actions(), [], "not at once");
    parts.home().tick_lock_queues(at(SOON.steady_us + 20_000));
    assert_eq!(sent(&mut parts), Some((timestamp, count)), "again from the first part");
    // The deadline ends it, as failed: nothing has happened.
    refuse(&mut parts, at(NOW.steady_us + 49_000));
    parts.home().tick_lock_queues(at(NOW.steady_us + 50_000));
    assert_eq!(ended(&mut parts), Some((Outcome::Failed(Failure::NoSpace), replica.0.into())));
}

#[test]
fn refused_large_put_whose_parts_are_not_all_answered_ends_at_its_deadline() {
    // If this broke, a put would wait for ever for a replica that refuses one part and then hangs.
    let (mut parts, id, replica) = large();
    let (timestamp, count) = put_large(&mut parts, id);
    assert!(count > 1, "a part stays unanswered");
    parts.home().lease(NOW, u64::MAX);
    parts
        .home()
        .replicate(|replication| replication.replica_acknowledged(SOON, replica, id, 1, (ReplicaAck::Busy, timestamp)));
    let end = Now { steady_us: NOW.steady_us + 50_000, wall_us: NOW.wall_us + 50_000 };
    parts.home().tick_lock_queues(end);
    assert_eq!(ended(&mut parts), Some((Outcome::Indeterminate(Failure::TimedOut), 0)));
    // Later answers free the memory, and nobody is answered twice.
    for _ in 1..count {
        parts.home().replicate(|replication| {
            replication.replica_acknowledged(end, replica, id, 1, (ReplicaAck::Busy, timestamp))
        });
    }
    assert_eq!((ended(&mut parts), parts.uploads.usage()), (None, (0, 0)));
}

/// Sends the first part of a large put of `total` bytes to a new replica, which holds another upload of `held` bytes, of
/// a home or of a client, and has so many free bytes in its pool; returns the answer.
fn first_part(total: u32, held: u32, of_home: bool, free: u64) -> ReplicaAck {
    let (mut parts, id) = forwarded_rows::replica(Spec::new(1 << 20));
    if held > 0 {
        let client = ClientId { index: 0, generation: 1 };
        let owner = if of_home { UploadOwner::of_home(super::B) } else { UploadOwner { node: NodeId(1), client } };
        let at = parts.segments.allocate_blocks(held.into()).expect("the pool has room");
        parts.uploads.begin(NOW.steady_us, owner, SegmentId::from_bits(7), (at, held));
    }
    let unused = parts.segments.free_bytes(Storage::Memory).saturating_sub(free);
    parts.segments.allocate_blocks(unused).expect("the pool has room");
    let message = Message::ForwardPart {
        segment: id,
        epoch: 2,
        version: Version(11),
        timestamp: Timestamp(FIRST.0 + 1),
        offset: 0,
        at: 0,
        total,
        length: 8,
        staged: Message::NOT_STAGED,
        number: Message::NOT_STAGED,
    };
    parts.home().replica_message(NOW, super::A, &message, &[1; 8]);
    let answer = parts.actions().into_iter().find_map(|action| match action {
        Action::Peer(PeerAction::Send { message: Message::Replicated { ack, .. }, .. }) => Some(ack),
        _ => None,
    });
    answer.expect("each part is answered")
}

#[test]
fn replica_is_busy_only_if_the_end_of_other_uploads_leaves_room() {
    // If this broke, a put that can never have room would hold its segment until its deadline, for minutes.
    let pool = 2 << 20;
    for held in [0, 4096] {
        for of_home in [false, true] {
            assert_eq!(first_part(524_289, held, of_home, pool), ReplicaAck::NoRoom, "more than all homes may have");
            assert_eq!(first_part(524_288 - held, held, of_home, pool), ReplicaAck::Piece);
            assert_eq!(first_part(300_000, held, of_home, 100_000), ReplicaAck::NoRoom, "the pool is full");
        }
    }
    assert_eq!(first_part(524_288, 1, true, pool), ReplicaAck::Busy, "the other home's put ends");
    for of_home in [false, true] {
        assert_eq!(first_part(300_000, 250_000, of_home, 100_000), ReplicaAck::Busy, "its memory is enough");
    }
}
