//! Tests of operations that have read their word or record when a decision of the cluster comes, before their change.

use super::{A, B, NOW, OWNER, Parts};
use crate::action::{Action, CommitSource, ControlAction, PeerAction, RangeSet};
use crate::config::Now;
use crate::home::handler::Home;
use crate::requester::{LockOwner, Requester};
use crate::role::RoleAssignment;
use crate::state::lock_queue::{Destination, Get, PendingOp, Waiter, Watcher};
use ddss_core::{
    ANY_ROW, AtomicOp, BucketLayout, BucketSearch, ChannelId, ClientId, EntryChange, EntryChangeKind, EntryState,
    Failure, LockDependency, LockRequest, LockToken, Message, NodeId, OfferReply, Outcome, PermissionUpdate,
    PutConditions, ReplicaAck, RequestId, SegmentId, Spec, Timestamp, Version,
};

/// Time while the lease of [`paired`] lasts, and times after its end.
const SOON: Now = Now { steady_us: 1500, wall_us: 1500 };
const LEASE_END_US: u64 = 2000;
const LATER: Now = Now { steady_us: 3000, wall_us: 3000 };
const LATER_STILL: Now = Now { steady_us: 4000, wall_us: 4000 };
/// Step of the operation that is interrupted.
const STEP: u64 = 9;

/// Home node 1 with a segment of two copies; returns the node of the replica and another node.
pub(in crate::home) fn paired(spec: Spec) -> (Parts, SegmentId, NodeId, NodeId) {
    let (mut parts, id) = Parts::with(Spec { copies: 2, ..spec });
    parts.replicas.join_cluster();
    parts.home().replicate(|replication| replication.begin_as_home(NOW, id));
    let offered = parts.actions().into_iter().find_map(|action| match action {
        Action::Peer(PeerAction::Send { node, message: Message::Offer { .. }, .. }) => Some(node),
        _ => None,
    });
    let replica = offered.expect("a connected node is asked to be the replica");
    parts.home().replicate(|replication| replication.offer_answered(NOW, replica, id, 1, OfferReply::Whole));
    let floor = parts.actions().into_iter().find_map(|action| match action {
        Action::Peer(PeerAction::Send { message: Message::Forward { timestamp, .. }, .. }) => Some(timestamp),
        _ => None,
    });
    let floor = floor.expect("the replica learns of all tokens");
    parts
        .home()
        .replicate(|replication| replication.replica_acknowledged(NOW, replica, id, 1, (ReplicaAck::Put, floor)));
    decide(&mut parts, NOW, id, NodeId(1), replica, (1, 1), true);
    parts.home().lease(NOW, LEASE_END_US);
    parts.actions();
    (parts, id, replica, if replica == A { B } else { A })
}

/// Lets the cluster decide: home and replica, epoch and turn, and whether the replica may take over.
pub(in crate::home) fn decide(
    parts: &mut Parts,
    now: Now,
    segment: SegmentId,
    home: NodeId,
    replica: NodeId,
    (epoch, turn): (u32, u64),
    paired: bool,
) {
    let assignment = RoleAssignment { segment, home, replica, epoch, turn, paired, vacant: false };
    parts.home().assign_role(now, &assignment);
}

/// Loses the connection to the replica, as the engine does it.
pub(in crate::home) fn lose(parts: &mut Parts, replica: NodeId) {
    parts.peers.disconnect(replica);
    parts.home().operations().drop_owner(NOW, LockOwner::Peer(replica));
    parts.home().replicas_lost(NOW, replica);
}

/// A change that reads a word or a record before it.
#[derive(Clone, Copy, Debug)]
enum Change {
    Atomic,
    AtomicOfRow,
    PutOfRow,
    Entry,
}

const CHANGES: [Change; 4] = [Change::Atomic, Change::AtomicOfRow, Change::PutOfRow, Change::Entry];

impl Change {
    fn layout() -> BucketLayout {
        BucketLayout::new(8, 8).expect("sizes of a map")
    }

    fn spec(self) -> Spec {
        match self {
            Self::Atomic => Spec::new(64),
            _ => Spec::table(4, Self::layout().row_bytes() as u32),
        }
    }

    /// Begins the change in row 2, or in a plain segment; its read is the last action.
    fn submit(self, parts: &mut Parts, id: SegmentId, node: NodeId) {
        let offset = if let Self::Atomic = self { 8 } else { 2 * Self::layout().row_bytes() as u64 };
        let op = match self {
            Self::Atomic | Self::AtomicOfRow => PendingOp::Atomic { offset, change: AtomicOp::Add(1), token: None },
            Self::PutOfRow => {
                let source = CommitSource::Buffer(parts.output.store(&[7; 8]));
                PendingOp::Put {
                    parts: RangeSet::One { offset, bytes: 8 },
                    source,
                    conditions: PutConditions::default(),
                }
            }
            Self::Entry => {
                let change = EntryChange { kind: EntryChangeKind::Insert, key_bytes: 8, value_bytes: 8, expected: 0 };
                let bytes = change.payload_bytes();
                let source = CommitSource::Buffer(parts.output.store(&vec![7; bytes as usize]));
                let conditions = PutConditions { entry: Some(change), ..PutConditions::default() };
                PendingOp::Put { parts: RangeSet::One { offset, bytes }, source, conditions }
            }
        };
        assert_eq!(parts.submit(id, node, STEP, op), Ok(()));
    }

    /// Completes the read, of a word 41 or of a record with version 5.
    fn complete_read(self, mut home: Home<'_>) {
        match self {
            Self::Atomic => home.operations().word_read(41),
            Self::AtomicOfRow | Self::PutOfRow => home.operations().record_read(2 * 5, Timestamp(77), 41),
            Self::Entry => {
                let found = BucketSearch { free: Some(0), ..BucketSearch::default() };
                home.operations().entry_found(NOW, 2 * 5, Timestamp(77), Some(found));
            }
        }
    }

    /// Returns version and word of its answer.
    fn result(self) -> (Version, u64) {
        match self {
            Self::Atomic => (Version(1), 41),
            Self::AtomicOfRow => (Version(6), 41),
            Self::PutOfRow => (Version(6), 0),
            Self::Entry => (Version(6), EntryState::Absent as u64),
        }
    }
}

fn is_read(action: &Action) -> bool {
    matches!(action, Action::ReadWord { .. } | Action::ReadRecord { .. } | Action::FindEntry { .. })
}

fn reads(actions: &[Action]) -> usize {
    actions.iter().filter(|action| is_read(action)).count()
}

/// Returns the number of commits, and the answers of the interrupted operation.
fn effects(actions: &[Action]) -> (usize, Vec<(Outcome, Version, u64)>) {
    let commits =
        actions.iter().filter(|action| matches!(action, Action::Commit(_) | Action::CommitRecord { .. })).count();
    let answers = actions.iter().filter_map(|action| match action {
        Action::Peer(PeerAction::Send {
            message: Message::Ended { step: STEP, outcome, version, word, .. }, ..
        }) => Some((*outcome, *version, *word)),
        _ => None,
    });
    (commits, answers.collect())
}

/// Lets all time pass that an operation may wait for; returns its effects.
fn settle(parts: &mut Parts, change: Change, now: Now) -> (usize, Vec<(Outcome, Version, u64)>) {
    let mut seen = Vec::new();
    loop {
        let actions = parts.actions();
        if actions.is_empty() {
            break;
        }
        (0..reads(&actions)).for_each(|_| change.complete_read(parts.home()));
        seen.extend(actions);
    }
    parts.home().tick_lock_queues(now);
    seen.extend(parts.actions());
    effects(&seen)
}

#[test]
fn change_whose_replica_goes_after_its_read_is_executed_and_answered_once() {
    // If this broke, the daemon would end by an assertion, or an addition would happen twice or never.
    for change in CHANGES {
        let (mut parts, id, replica, other) = paired(change.spec());
        change.submit(&mut parts, id, other);
        lose(&mut parts, replica);
        let actions = parts.actions();
        assert!(is_read(&actions[0]) && reads(&actions) == 1, "{change:?}: {actions:?}");
        assert!(
            actions.iter().any(|action| matches!(action, Action::Control(ControlAction::Propose { .. }))),
            "{change:?}: {actions:?}"
        );
        change.complete_read(parts.home());
        assert_eq!(parts.actions(), [], "{change:?} waits until the cluster knows that the replica is gone");
        decide(&mut parts, SOON, id, NodeId(1), replica, (1, 2), false);
        let (version, word) = change.result();
        assert_eq!(settle(&mut parts, change, SOON), (1, vec![(Outcome::Done, version, word)]), "{change:?}");
        assert_eq!(parts.output.counters.commits, 1, "{change:?}");
    }
}

#[test]
fn atomic_behind_the_lock_of_the_node_with_the_replica_is_executed_once_when_that_node_goes() {
    // If this broke, the death of one node would end the daemon of another: the lock ends, the atomic reads its word, and
    // the replica goes, all in one event.
    let (mut parts, id, replica, other) = paired(Spec::new(64));
    let lock_request = LockRequest { shared: false, no_wait: false, lease_us: 500_000, row_offset: None };
    parts.submit(id, replica, 1, PendingOp::Lock(lock_request)).expect("the lock is free");
    let token = parts.actions().into_iter().find_map(|action| match action {
        Action::Peer(PeerAction::Send { message: Message::Forward { timestamp, .. }, .. }) => Some(timestamp),
        _ => None,
    });
    let token = token.expect("the replica learns of the grant");
    parts
        .home()
        .replicate(|replication| replication.replica_acknowledged(NOW, replica, id, 1, (ReplicaAck::Put, token)));
    Change::Atomic.submit(&mut parts, id, other);
    assert_eq!(reads(&parts.actions()), 0, "the atomic waits for the lock");
    lose(&mut parts, replica);
    assert_eq!(reads(&parts.actions()), 1);
    parts.home().operations().word_read(41);
    assert_eq!(parts.actions(), []);
    decide(&mut parts, SOON, id, NodeId(1), replica, (1, 2), false);
    assert_eq!(settle(&mut parts, Change::Atomic, SOON), (1, vec![(Outcome::Done, Version(1), 41)]));
}

#[test]
fn change_whose_node_stops_being_the_home_after_its_read_does_nothing_and_says_so() {
    // If this broke, a change would be acknowledged by a home that another node has replaced, and be lost.
    for change in CHANGES {
        let (mut parts, id, replica, other) = paired(change.spec());
        let free = parts.output.store(b"first");
        parts.output.drop_buffer(&free);
        change.submit(&mut parts, id, other);
        decide(&mut parts, LATER, id, replica, NodeId(1), (2, 1), false);
        let actions = parts.actions();
        assert_eq!(reads(&actions), 1, "{change:?}: {actions:?}");
        change.complete_read(parts.home());
        let refused = (Outcome::Failed(Failure::NodeDown), Version(0), 0);
        assert_eq!(settle(&mut parts, change, LATER), (0, vec![refused]), "{change:?}");
        assert!(
            parts.output.awaited_reads.atomics.is_empty() && parts.output.awaited_reads.records.is_empty(),
            "{change:?}"
        );
        assert_eq!(parts.output.store(b"second"), free, "{change:?}: its bytes are not freed");
    }
}

#[test]
fn change_whose_lease_ends_after_its_read_lets_no_get_pass_before_the_next_lease() {
    // If this broke, the old time of the change would open the gate, and a get behind it would read a value that another
    // home may have replaced.
    for change in CHANGES {
        let (mut parts, id, _, other) = paired(change.spec());
        change.submit(&mut parts, id, other);
        assert_eq!(reads(&parts.actions()), 1, "{change:?}");
        parts.home().tick_lock_queues(LATER);
        let get = Get {
            parts: RangeSet::One { offset: 0, bytes: 8 },
            sink: Destination::Peer,
            lock_dependency: LockDependency::None,
            version: None,
            token: None,
        };
        let (requester, deadline_us) = (Requester::Peer(other, 10), LATER_STILL.steady_us + 100);
        let waiter = Waiter { requester, principal: OWNER, op: PendingOp::Get(get), deadline_us };
        assert_eq!(parts.home().operations().submit_op(LATER, id, &waiter), Ok(()));
        change.complete_read(parts.home());
        assert_eq!(parts.actions(), [], "{change:?}: nothing runs without a lease");
        parts.home().lease(LATER, LATER_STILL.steady_us + 1000);
        // The change has waited for too long; the get has not.
        parts.home().tick_lock_queues(LATER_STILL);
        let actions = parts.actions();
        assert_eq!(effects(&actions), (0, vec![(Outcome::Failed(Failure::TimedOut), Version(0), 0)]), "{change:?}");
        let served = |action: &Action| {
            is_read(action)
                || matches!(
                    action,
                    Action::Snapshot { .. } | Action::Peer(PeerAction::Send { message: Message::Got { .. }, .. })
                )
        };
        assert!(actions.iter().any(served), "{change:?}: {actions:?}");
    }
}

#[test]
fn watcher_of_a_row_whose_node_stops_being_the_home_is_told() {
    // If this broke, the watcher would wait at a node that learns of no change.
    let (mut parts, id, replica, other) = paired(Change::PutOfRow.spec());
    let requester = Requester::Peer(other, STEP);
    let watcher = Watcher { requester, row: 0, above: Version(5), deadline_us: NOW.steady_us + 1_000_000 };
    parts.home().operations().await_at_home(NOW, id, OWNER, 0, watcher).expect("this node is the home");
    assert_eq!(reads(&parts.actions()), 1);
    decide(&mut parts, LATER, id, replica, NodeId(1), (2, 1), false);
    parts.home().operations().record_read(2 * 5, Timestamp(77), 0);
    let refused = (Outcome::Failed(Failure::NodeDown), Version(0), 0);
    assert_eq!(effects(&parts.actions()).1, [refused]);
}

#[test]
fn put_under_the_lock_waits_for_the_cluster_and_is_executed() {
    // If this broke, a holder would be told that it waits for its own lock whenever the replica goes.
    let (mut parts, id, replica, _) = paired(Spec::new(64));
    let client = ClientId { index: 1, generation: 1 };
    parts.output.attach(client, OWNER, 1 << 20);
    let requester = |request| Requester::Client(ChannelId { client, index: 0 }, RequestId(request));
    let submit = |parts: &mut Parts, request: u64, op: PendingOp| {
        let waiter = Waiter { requester: requester(request), principal: OWNER, op, deadline_us: LATER.steady_us };
        parts.home().operations().submit_op(NOW, id, &waiter)
    };
    let lock_request = LockRequest { shared: false, no_wait: false, lease_us: 500_000, row_offset: None };
    assert_eq!(submit(&mut parts, 1, PendingOp::Lock(lock_request)), Ok(()));
    let granted = parts.actions().into_iter().find_map(|action| match action {
        Action::Peer(PeerAction::Send { message: Message::Forward { timestamp, .. }, .. }) => Some(timestamp),
        _ => None,
    });
    let granted = granted.expect("the replica learns of the grant");
    parts
        .home()
        .replicate(|replication| replication.replica_acknowledged(NOW, replica, id, 1, (ReplicaAck::Put, granted)));
    lose(&mut parts, replica);
    parts.actions();
    let add = |parts: &mut Parts, request: u64, token: Option<LockToken>| {
        submit(parts, request, PendingOp::Atomic { offset: 8, change: AtomicOp::Add(1), token })
    };
    assert_eq!(add(&mut parts, 2, None), Err(Failure::OwnLock), "without its token it waits for itself");
    assert_eq!(add(&mut parts, 3, Some(LockToken(granted.0))), Ok(()));
    assert_eq!(parts.actions(), [], "it waits for the cluster");
    decide(&mut parts, SOON, id, NodeId(1), replica, (1, 2), false);
    assert_eq!(settle(&mut parts, Change::Atomic, SOON).0, 1);
}

/// Asks for the change of any row after that number; returns the answer, if there is one already.
fn ask_any_row(parts: &mut Parts, id: SegmentId, above: Version) -> Option<(Version, Timestamp)> {
    let watcher = Watcher { requester: Requester::Peer(A, STEP), row: 0, above, deadline_us: LATER_STILL.steady_us };
    parts.home().operations().await_at_home(LATER, id, OWNER, ANY_ROW, watcher).expect("this node is the home");
    parts.actions().into_iter().find_map(|action| match action {
        Action::Peer(PeerAction::Send { message: Message::Ended { version, timestamp, .. }, .. }) => {
            Some((version, timestamp))
        }
        _ => None,
    })
}

#[test]
fn watcher_of_all_rows_learns_that_it_missed_the_changes_of_another_home() {
    // If this broke, a node that is the home again would count on from its own last change, and a watcher that has seen
    // later ones would wait for ever.
    let (mut parts, id, replica, _) = paired(Change::PutOfRow.spec());
    parts.home().lease(NOW, LATER_STILL.steady_us);
    let (first, missed) = ask_any_row(&mut parts, id, Version(0)).expect("the first call begins");
    assert_eq!((missed, ask_any_row(&mut parts, id, first)), (Timestamp(0), None), "no row has changed");
    decide(&mut parts, LATER, id, replica, NodeId(1), (2, 1), false);
    // The other home has numbered its changes by its clock, which comes with each message.
    let seen = Version(first.0 + 50);
    parts.clock.hear(Timestamp(seen.0), LATER.wall_us);
    decide(&mut parts, LATER, id, NodeId(1), replica, (3, 1), false);
    parts.actions();
    for seen in [first, seen] {
        let told = ask_any_row(&mut parts, id, seen).expect("the watcher has missed changes");
        assert!(told.0 > seen && told.1 == Timestamp(0), "{told:?}");
    }
}

#[test]
fn watcher_of_all_rows_whose_number_is_ahead_of_the_new_home_learns_that_it_missed_changes() {
    // If this broke, the clock of a dead home, a millisecond ahead, would keep a watcher waiting for ever if another one had
    // asked the new home first.
    let (mut parts, id, ..) = paired(Change::PutOfRow.spec());
    parts.home().lease(NOW, LATER_STILL.steady_us);
    let (first, _) = ask_any_row(&mut parts, id, Version(0)).expect("another watcher begins");
    let seen = Version(first.0 + 1_000_000);
    // No clock here has reached that number: a client may have made it up.
    assert_eq!(ask_any_row(&mut parts, id, seen), None);
    // The message of the watcher's node brings the clock that its node has heard.
    parts.clock.hear(Timestamp(seen.0), LATER.wall_us);
    let told = ask_any_row(&mut parts, id, seen).expect("the watcher may have missed changes");
    assert!(told.0 > seen && told.1 == Timestamp(0), "{told:?}");
    let (again, _) = ask_any_row(&mut parts, id, first).expect("so may the other one");
    assert_eq!((again, ask_any_row(&mut parts, id, again)), (told.0, None));
}

#[test]
fn second_deferred_change_of_permissions_finds_the_move_of_the_first() {
    // If this broke, two changes that waited for the end of a replica would move the segment to two places.
    let (mut parts, id, replica, _) = paired(Spec::new(64));
    for (step, mode) in [(STEP, 0o640), (STEP + 1, 0o644)] {
        let (update, requester) = (PermissionUpdate { mode: Some(mode), owner: None }, Requester::Peer(A, step));
        let deferred = parts.home().update_permissions_at_home(NOW, OWNER, id, update, requester);
        assert_eq!(deferred, Ok(()));
    }
    assert!(
        matches!(parts.actions()[..], [Action::Control(ControlAction::Propose { .. })]),
        "the replica could take over with the old ones"
    );
    decide(&mut parts, NOW, id, NodeId(1), replica, (1, 2), false);
    let actions = parts.actions();
    let moves = actions.iter().filter(|action| matches!(action, Action::Move { .. })).count();
    let ended = actions.iter().filter_map(|action| match *action {
        Action::Peer(PeerAction::Send { message: Message::Ended { step, outcome, .. }, .. }) => Some((step, outcome)),
        _ => None,
    });
    assert_eq!(ended.collect::<Vec<_>>(), [(STEP + 1, Outcome::Failed(Failure::InProgress))]);
    assert_eq!(moves, 1);
}
