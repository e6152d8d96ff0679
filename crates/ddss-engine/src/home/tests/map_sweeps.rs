//! Tests of sweeps: what a home frees when a client asks, and by itself.

use crate::action::{Action, CommitSource, GarbageSearch, PeerAction, RangeSet};
use crate::config::Now;
use crate::home::tests::interrupted_ops::{decide, lose, paired};
use crate::home::tests::{A, B, NOW, OWNER, Parts};
use crate::requester::{Caller, LockOwner, Requester};
use crate::state::lock_queue::PendingOp;
use ddss_core::limits::{SWEEP_BUCKETS_MAX, SWEEP_PAUSE_US};
use ddss_core::{
    BucketGarbage, BucketLayout, BucketSearch, EntryChange, EntryChangeKind, Failure, LockRequest, LockToken,
    MapLayout, Message, Name, NodeId, Outcome, Permissions, PutConditions, Range, ReplicaAck, SegmentId, SlotWord,
    Spec, TableLayout, Timestamp,
};

const STEP: u64 = 9;
/// Buckets of the map.
const BUCKETS: u64 = 100;

fn layout() -> BucketLayout {
    BucketLayout::new(8, 8).expect("sizes of a map")
}

fn spec() -> Spec {
    Spec::table(BUCKETS + 1, layout().row_bytes() as u32)
}

fn at(steady_us: u64) -> Now {
    Now { steady_us, wall_us: steady_us }
}

fn sweep(parts: &mut Parts, id: SegmentId, buckets: (u64, u64)) -> Result<(), Failure> {
    sweep_for(parts, B, id, buckets)
}

fn sweep_for(parts: &mut Parts, node: NodeId, id: SegmentId, (first, buckets): (u64, u64)) -> Result<(), Failure> {
    let (requester, deadline_us) = (Requester::Peer(node, STEP), NOW.steady_us + 100_000);
    let caller = Caller { requester, principal: OWNER, deadline_us, lock: None, text: &[] };
    parts.home().operations().sweep(NOW, &caller, id, (first, buckets))
}

/// Returns the buckets that the daemon searches through now, and the other actions.
fn searched(parts: &mut Parts) -> (Option<(u64, u64)>, Vec<Action>) {
    let (searches, others): (Vec<Action>, Vec<Action>) =
        parts.actions().into_iter().partition(|action| matches!(action, Action::FindGarbage { .. }));
    assert!(searches.len() < 2, "one slice at a time: {searches:?}");
    let slice = searches.first().map(|action| match *action {
        Action::FindGarbage { first, end, rows, .. } => {
            assert!(end - first <= SWEEP_BUCKETS_MAX && rows == BUCKETS + 1);
            (first, end)
        }
        _ => unreachable!(),
    });
    (slice, others)
}

/// Reports that nothing was found in these buckets, or an expired entry in the first of them.
fn found(parts: &mut Parts, now: Now, id: SegmentId, buckets: (u64, u64), is_found: bool, expiry_ms: u64) {
    find(parts, now, id, buckets, (is_found, 1), expiry_ms);
}

/// Does the same; so many bytes were read.
fn find(
    parts: &mut Parts,
    now: Now,
    id: SegmentId,
    (first, end): (u64, u64),
    (is_found, bytes): (bool, usize),
    expiry_ms: u64,
) {
    let mut garbage = BucketGarbage { expiry_ms, ..BucketGarbage::default() };
    if is_found {
        garbage.ranges.push(Range { offset: layout().head_at(3) as u64, bytes: 8 });
        garbage.entries = 1;
    }
    let search = GarbageSearch { begin: end, end: first, state: 2 * 5, owner_state: 0, garbage, expiry_ms, bytes };
    parts.home().operations().garbage_found(now, id, Some(&search));
}

fn ended(actions: &[Action]) -> Option<(Outcome, u64)> {
    actions.iter().find_map(|action| match action {
        Action::Peer(PeerAction::Send { message: Message::Ended { step: STEP, outcome, word, .. }, .. }) => {
            Some((*outcome, *word))
        }
        _ => None,
    })
}

#[test]
fn sweep_goes_over_all_buckets_in_slices_between_other_work() {
    // If this broke, all clients of a node would wait while one map is swept, or a part of the map would be left out.
    let (mut parts, id) = Parts::with(spec());
    assert_eq!(sweep(&mut parts, id, (0, u64::MAX)), Ok(()));
    let (mut end, mut slices) = (BUCKETS, 0);
    loop {
        let actions = parts.actions();
        if let Some(ended) = ended(&actions) {
            assert_eq!((ended, end), ((Outcome::Done, 0), 0));
            break;
        }
        assert_eq!(actions, [Action::ContinueSweep { segment: id }], "the daemon decides when");
        parts.home().operations().sweep_slice(NOW, id);
        let (slice, others) = searched(&mut parts);
        let (first, from) = slice.expect("a slice");
        assert!(others.is_empty() && from == end);
        found(&mut parts, NOW, id, (first, from), false, 0);
        (end, slices) = (first, slices + 1);
    }
    assert_eq!(slices, BUCKETS.div_ceil(SWEEP_BUCKETS_MAX));
    parts.home().operations().tick_sweeps(at(u64::MAX / 2));
    assert_eq!(
        (searched(&mut parts), parts.segments.sweeps.due_us()),
        ((None, vec![]), u64::MAX),
        "nothing is left to do"
    );
}

#[test]
fn found_entry_is_freed_by_a_change_of_its_bucket_which_is_looked_at_again() {
    // If this broke, an entry would be freed without a version, or not all of one bucket.
    let (mut parts, id) = Parts::with(spec());
    assert_eq!(sweep(&mut parts, id, (40, 10)), Ok(()));
    parts.actions();
    parts.home().operations().sweep_slice(NOW, id);
    assert_eq!(searched(&mut parts).0, Some((40, 50)));
    found(&mut parts, NOW, id, (44, 50), true, 0);
    let actions = parts.actions();
    let [Action::CommitRecord { parts: ranges, source: CommitSource::Buffer(zeros), version, .. }, ref others @ ..] =
        actions[..]
    else {
        panic!("{actions:?}")
    };
    let RangeSet::Many { bytes: 8, .. } = ranges else { panic!("{ranges:?}") };
    assert_eq!((parts.output.buffer(zeros), version.0, ended(others)), (&[0; 8][..], 6, None));
    let [Action::FindGarbage { first: 40, end: 45, .. }] = others else { panic!("the same bucket again: {others:?}") };
    found(&mut parts, NOW, id, (40, 45), false, 0);
    assert_eq!(ended(&parts.actions()), Some((Outcome::Done, 1)));
}

#[test]
fn slice_frees_as_many_buckets_as_its_bound_of_work_allows() {
    // If this broke, a map with garbage in each bucket would need more time than its caller has.
    for (bytes, freed) in [(1, SWEEP_BUCKETS_MAX / 2), (GarbageSearch::BYTES_MAX / 4, 4)] {
        let (mut parts, id) = Parts::with(spec());
        assert_eq!(sweep(&mut parts, id, (0, u64::MAX)), Ok(()));
        parts.actions();
        parts.home().operations().sweep_slice(NOW, id);
        let (mut bucket, mut commits) = (BUCKETS, 0);
        loop {
            let (slice, others) = searched(&mut parts);
            commits += others.iter().filter(|action| matches!(action, Action::CommitRecord { .. })).count() as u64;
            let Some((first, end)) = slice else {
                assert!(others.contains(&Action::ContinueSweep { segment: id }), "{others:?}");
                break;
            };
            assert!(end == BUCKETS || end == bucket + 1, "a bucket is looked at again");
            let is_found = first < bucket;
            bucket -= u64::from(is_found);
            find(&mut parts, NOW, id, (bucket, end), (is_found, bytes), 0);
        }
        assert_eq!(commits, freed);
    }
}

#[test]
fn calls_for_no_bucket_end_in_slices_like_others() {
    // If this broke, many of them that waited for a lock would end in one round, and stop the daemon for seconds.
    let (mut parts, id) = Parts::with(spec());
    for _ in 0..3 * SWEEP_BUCKETS_MAX {
        assert_eq!(sweep(&mut parts, id, (0, 0)), Ok(()));
    }
    parts.actions();
    parts.home().operations().sweep_slice(NOW, id);
    let mut searches = 0;
    while let (Some((first, end)), _) = searched(&mut parts) {
        searches += 1;
        find(&mut parts, NOW, id, (first, end), (false, 0), 0);
    }
    assert_eq!(searches, SWEEP_BUCKETS_MAX);
}

#[test]
fn sweep_waits_for_a_lock_of_the_table_and_passes_over_a_locked_row() {
    // If this broke, a holder would find its rows changed under the lock.
    let (mut parts, id) = Parts::with(spec());
    let row_offset = Some(45 * layout().row_bytes() as u64);
    for row_offset in [None, row_offset] {
        let lock_request = LockRequest { shared: false, no_wait: false, lease_us: 1_000_000, row_offset };
        parts.submit(id, A, 1, PendingOp::Lock(lock_request)).expect("it is free");
        parts.actions();
        assert_eq!(sweep(&mut parts, id, (40, 10)), Ok(()));
        parts.home().operations().sweep_slice(NOW, id);
        if row_offset.is_none() {
            assert_eq!(searched(&mut parts).0, None, "the table is locked");
            parts.home().operations().tick_sweeps(at(NOW.steady_us + 100_000));
            assert_eq!(ended(&parts.actions()), Some((Outcome::Failed(Failure::TimedOut), 0)));
        } else {
            assert_eq!(searched(&mut parts).0, Some((40, 50)));
            // Bucket 44 is row 45.
            found(&mut parts, NOW, id, (44, 50), true, 0);
            let (slice, others) = searched(&mut parts);
            assert_eq!((slice, others), (Some((40, 44)), vec![]), "the bucket is left to a later sweep");
            found(&mut parts, NOW, id, (40, 44), false, 0);
            assert_eq!(ended(&parts.actions()), Some((Outcome::Done, 0)));
            parts.home().operations().tick_sweeps(at(NOW.steady_us + SWEEP_PAUSE_US));
            assert!(searched(&mut parts).0.is_some(), "which the home does by itself");
        }
        parts.home().operations().drop_owner(NOW, LockOwner::Peer(A));
        parts.actions();
    }
}

#[test]
fn replica_gets_what_a_sweep_frees_and_the_answer_comes_after_it() {
    // If this broke, the two copies of a map would differ, and the versions of its buckets.
    let (mut parts, id, replica, other) = paired(spec());
    assert_eq!(sweep(&mut parts, id, (0, 1)), Ok(()));
    parts.actions();
    parts.segments.sweeps.get(id).expect("it has a call").is_unknown = false;
    parts.home().operations().sweep_slice(NOW, id);
    assert_eq!(searched(&mut parts).0, Some((0, 1)));
    found(&mut parts, NOW, id, (0, 1), true, 0);
    let actions = parts.actions();
    let forwarded = actions.iter().find_map(|action| match action {
        Action::Peer(PeerAction::SendStaged { message: Message::Forward { timestamp, row_version, .. }, .. }) => {
            Some((*timestamp, row_version.0))
        }
        _ => None,
    });
    let (timestamp, 6) = forwarded.expect("the replica gets the change") else { panic!("{forwarded:?}") };
    assert!(!actions.iter().any(|action| matches!(action, Action::CommitRecord { .. })), "{actions:?}");
    parts.home().operations().sweep_slice(NOW, id);
    assert_eq!(searched(&mut parts), (None, vec![]), "it waits for the replica");
    parts
        .home()
        .replicate(|replication| replication.replica_acknowledged(NOW, replica, id, 1, (ReplicaAck::Put, timestamp)));
    let actions = parts.actions();
    assert!(actions.iter().any(|action| matches!(action, Action::CommitRecord { .. })), "{actions:?}");
    let goes_on = actions.iter().any(|action| matches!(action, Action::FindGarbage { .. }));
    assert!(ended(&actions).is_none() && goes_on, "the slice goes on: {actions:?}");
    found(&mut parts, NOW, id, (0, 1), false, 0);
    assert_eq!(ended(&parts.actions()), Some((Outcome::Done, 1)));
    // A home that is replaced ends the sweep, and its passes.
    assert_eq!(sweep_for(&mut parts, other, id, (0, 1)), Ok(()));
    lose(&mut parts, replica);
    decide(&mut parts, at(3000), id, replica, NodeId(1), (2, 1), false);
    assert_eq!(ended(&parts.actions()), Some((Outcome::Failed(Failure::NodeDown), 0)));
}

/// Inserts an entry with that expiry.
fn insert(parts: &mut Parts, id: SegmentId, now: Now, expiry_ms: u64) {
    let change = EntryChange { kind: EntryChangeKind::Insert, key_bytes: 8, value_bytes: 8, expected: 0 };
    let bytes = change.payload_bytes();
    let source = CommitSource::Buffer(parts.output.store(&vec![7; bytes as usize]));
    let conditions = PutConditions { entry: Some(change), ..PutConditions::default() };
    let range = RangeSet::One { offset: layout().row_bytes() as u64, bytes };
    parts.submit(id, A, 1, PendingOp::Put { parts: range, source, conditions }).expect("no lock is held");
    let search = BucketSearch { free: Some(0), expiry_ms, ..BucketSearch::default() };
    parts.home().operations().entry_found(now, 2 * 5, Timestamp(77), Some(search));
    assert_eq!(searched(parts).0, None);
}

#[test]
fn home_sweeps_by_itself_after_an_entry_has_expired_and_never_otherwise() {
    // If this broke, a cache of sessions would fill up, or a home would slice through maps in which nothing expires.
    let (mut parts, id) = Parts::with(spec());
    insert(&mut parts, id, NOW, 0);
    assert_eq!(parts.segments.sweeps.due_us(), u64::MAX, "the entry stays for ever");
    let expiry_ms = 2 * SWEEP_PAUSE_US / 1000;
    insert(&mut parts, id, NOW, expiry_ms);
    let due_us = parts.segments.sweeps.due_us();
    assert_eq!(due_us, expiry_ms * 1000);
    parts.home().operations().tick_sweeps(at(due_us - 1));
    assert_eq!(parts.actions(), []);
    // Small work in each tick.
    let (mut end, mut now) = (BUCKETS, at(due_us));
    let (next_ms, mut next) = (expiry_ms + 7, None);
    while end > 0 {
        if next.is_none() {
            parts.home().operations().tick_sweeps(now);
            let (slice, others) = searched(&mut parts);
            assert_eq!(others, []);
            next = slice;
        }
        let (first, from) = next.expect("a slice");
        assert_eq!(from, end);
        // The first bucket has an expired entry, and is searched again.
        let is_found = first == 0 && end > 1;
        found(&mut parts, now, id, (first, from), is_found, next_ms);
        let (slice, others) = searched(&mut parts);
        next = slice;
        let freed = others.iter().filter(|action| matches!(action, Action::CommitRecord { .. })).count();
        assert_eq!((freed, next.is_some()), (usize::from(is_found), is_found));
        (end, now) = (if is_found { 1 } else { first }, at(now.steady_us + 1000));
    }
    // The next pass comes for the entry that stays, after a pause.
    parts.home().operations().tick_sweeps(now);
    assert_eq!((parts.actions(), parts.segments.sweeps.due_us()), (vec![], now.steady_us - 1000 + SWEEP_PAUSE_US));
    now = at(now.steady_us + SWEEP_PAUSE_US);
    for _ in 0..BUCKETS.div_ceil(SWEEP_BUCKETS_MAX) {
        parts.home().operations().tick_sweeps(now);
        let slice = searched(&mut parts).0.expect("a slice");
        found(&mut parts, now, id, slice, false, 0);
    }
    parts.home().operations().tick_sweeps(at(now.steady_us + 10 * SWEEP_PAUSE_US));
    assert_eq!((parts.actions(), parts.segments.sweeps.due_us()), (vec![], u64::MAX), "nothing can expire any more");
}

#[test]
fn home_whose_clock_is_far_ahead_of_all_peers_frees_nothing_by_itself() {
    // If this broke, one node with a wrong clock would lose entries that live for all others.
    let (mut parts, id) = Parts::with(spec());
    parts.segments.note_expiry(NOW, id, 1);
    let hours_us = 7_200_000_000;
    let clock = |now: Now| Timestamp((now.wall_us - hours_us) << Timestamp::COUNTER_BITS);
    let ahead = |steady_us: u64| Now { steady_us, wall_us: steady_us + hours_us };
    let now = ahead(SWEEP_PAUSE_US);
    // A clock that is further ahead than this one does not make this one right.
    let furthest = Timestamp((now.wall_us + 12 * hours_us) << Timestamp::COUNTER_BITS);
    for (node, clock) in [(A, clock(now)), (B, furthest)] {
        parts.peers.reachable(node).expect("it is connected").note_clock(now, clock);
    }
    // Neither time nor the end of the connections makes it right.
    let now = ahead(3 * SWEEP_PAUSE_US);
    parts.peers.disconnect(A);
    parts.peers.disconnect(B);
    parts.home().operations().tick_sweeps(now);
    assert_eq!((parts.actions(), parts.segments.sweeps.due_us()), (vec![], now.steady_us + 100_000));
    // It does what a caller asks for.
    assert_eq!(sweep(&mut parts, id, (0, 1)), Ok(()));
    parts.home().operations().sweep_slice(NOW, id);
    let (slice, _) = searched(&mut parts);
    found(&mut parts, NOW, id, slice.expect("a slice"), false, 0);
    parts.actions();
    // One peer with the same time is enough: the other one may be wrong itself.
    parts.peers.connect(B).note_clock(now, Timestamp(now.wall_us << Timestamp::COUNTER_BITS));
    parts.home().operations().tick_sweeps(ahead(now.steady_us + 100_000));
    assert!(searched(&mut parts).0.is_some());
}

#[test]
fn table_that_is_no_map_is_refused_and_never_looked_at_again() {
    // If this broke, a home would slice through every table that it has from the daemon before.
    let (mut parts, id) = Parts::with(spec());
    assert_eq!(sweep(&mut parts, id, (0, 1)), Ok(()));
    parts.segments.note_unknown_expiry(NOW, id);
    parts.home().operations().sweep_slice(NOW, id);
    assert!(searched(&mut parts).0.is_some());
    parts.home().operations().garbage_found(NOW, id, None);
    assert_eq!(ended(&parts.actions()), Some((Outcome::Failed(Failure::Unsupported), 0)));
    parts.home().operations().tick_sweeps(at(10 * SWEEP_PAUSE_US));
    assert_eq!((parts.actions(), parts.segments.sweeps.due_us()), (vec![], u64::MAX));
    let (mut parts, plain) = Parts::with(Spec::new(64));
    assert_eq!(sweep(&mut parts, plain, (0, 1)), Err(Failure::Unsupported));
}

/// Puts 8 bytes into a bucket.
fn put(parts: &mut Parts, id: SegmentId, step: u64, bucket: u64) {
    let source = CommitSource::Buffer(parts.output.store(&[7; 8]));
    let offset = (bucket + 1) * layout().row_bytes() as u64;
    let op = PendingOp::Put { parts: RangeSet::One { offset, bytes: 8 }, source, conditions: PutConditions::default() };
    parts.submit(id, B, step, op).expect("no lock is held");
}

/// Returns the timestamp of the change that goes to the replica.
fn forwarded(actions: &[Action]) -> Option<Timestamp> {
    actions.iter().find_map(|action| match action {
        Action::Peer(PeerAction::Send { message: Message::Forward { timestamp, .. }, .. })
        | Action::Peer(PeerAction::SendStaged { message: Message::Forward { timestamp, .. }, .. }) => Some(*timestamp),
        _ => None,
    })
}

fn is_record_read(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::ReadRecord { .. }))
}

#[test]
fn sweep_of_a_map_that_changes_all_the_time_has_its_turn_before_puts_that_wait() {
    // If this broke, sweeps of a busy map with a replica would end with nothing freed, and its home would free nothing.
    let (mut parts, id, replica, _) = paired(spec());
    assert_eq!(sweep(&mut parts, id, (0, u64::MAX)), Ok(()));
    parts.actions();
    put(&mut parts, id, 1, 0);
    for step in 0..4 {
        assert!(is_record_read(&parts.actions()), "one put runs");
        parts.home().operations().record_read(2 * 5, Timestamp(77), 0);
        let timestamp = forwarded(&parts.actions()).expect("it goes to the replica");
        put(&mut parts, id, 2 + step, 0);
        assert_eq!(parts.actions(), [], "another one waits");
        parts.home().operations().sweep_slice(NOW, id);
        assert_eq!(searched(&mut parts).0, None, "and so does the sweep");
        // Two changes for each time that a turn comes.
        let now = at(NOW.steady_us + step / 2 * 1000);
        parts.home().lease(now, now.steady_us + 1_000_000);
        parts.home().replicate(|replication| {
            replication.replica_acknowledged(now, replica, id, 1, (ReplicaAck::Put, timestamp))
        });
        if step % 2 == 0 {
            let (slice, others) = searched(&mut parts);
            assert!(!is_record_read(&others), "the put waits for the slice: {others:?}");
            found(&mut parts, now, id, slice.expect("a slice"), false, 0);
        }
    }
    let left = parts.segments.sweeps.get(id).and_then(|sweep| sweep.buckets().copied()).expect("it has not ended");
    assert!(left.end < BUCKETS - SWEEP_BUCKETS_MAX, "{left:?}");
}

#[test]
fn put_has_its_turn_after_each_change_of_a_sweep() {
    // If this broke, puts into a map would wait until its sweep has ended, wherever a replica is slow.
    let (mut parts, id, replica, _) = paired(spec());
    assert_eq!(sweep(&mut parts, id, (0, 10)), Ok(()));
    put(&mut parts, id, 1, 0);
    parts.actions();
    parts.home().operations().record_read(2 * 5, Timestamp(77), 0);
    let timestamp = forwarded(&parts.actions()).expect("it goes to the replica");
    put(&mut parts, id, 2, 0);
    parts
        .home()
        .replicate(|replication| replication.replica_acknowledged(NOW, replica, id, 1, (ReplicaAck::Put, timestamp)));
    let slice = searched(&mut parts).0.expect("a slice");
    found(&mut parts, NOW, id, slice, true, 0);
    let timestamp = forwarded(&parts.actions()).expect("it goes to the replica");
    let now = at(NOW.steady_us + 5000);
    parts.home().lease(now, now.steady_us + 1_000_000);
    parts
        .home()
        .replicate(|replication| replication.replica_acknowledged(now, replica, id, 1, (ReplicaAck::Put, timestamp)));
    let (slice, others) = searched(&mut parts);
    assert!(slice.is_none() && is_record_read(&others), "{slice:?} {others:?}");
}

#[test]
fn tick_searches_no_map_for_a_call() {
    // If this broke, a user with calls for many maps would hold up all clients of a node in one tick.
    let (mut parts, id) = Parts::with(spec());
    let lock_request = LockRequest { shared: false, no_wait: false, lease_us: 1_000_000, row_offset: None };
    parts.submit(id, A, 1, PendingOp::Lock(lock_request)).expect("it is free");
    assert_eq!(sweep(&mut parts, id, (0, 1)), Ok(()));
    parts.home().operations().sweep_slice(NOW, id);
    assert_eq!(searched(&mut parts).0, None, "the table is locked");
    parts.home().operations().drop_owner(NOW, LockOwner::Peer(A));
    parts.actions();
    let now = at(NOW.steady_us + 1000);
    parts.home().operations().tick_sweeps(now);
    assert_eq!(parts.actions(), [Action::ContinueSweep { segment: id }], "the daemon decides when");
    parts.home().operations().tick_sweeps(at(now.steady_us + 1000));
    assert_eq!(parts.actions(), [], "one slice at a time");
    parts.home().operations().sweep_slice(now, id);
    assert_eq!(searched(&mut parts).0, Some((0, 1)));
}

#[test]
fn shutdown_ends_sweeps() {
    // If this broke, a node that stops would wait for the deadline of a sweep, and go on with its passes.
    let (mut parts, id) = Parts::with(spec());
    assert_eq!(sweep(&mut parts, id, (0, u64::MAX)), Ok(()));
    parts.segments.note_expiry(NOW, id, 1);
    parts.actions();
    parts.home().operations().fail_waiters(NOW, false);
    assert_eq!(ended(&parts.actions()), Some((Outcome::Failed(Failure::NodeDown), 0)));
    parts.home().operations().sweep_slice(NOW, id);
    parts.home().operations().tick_sweeps(at(10 * SWEEP_PAUSE_US));
    assert_eq!((parts.actions(), parts.segments.sweeps.due_us()), (vec![], u64::MAX));
}

#[test]
fn cancel_ends_the_sweep_of_its_caller_only() {
    // If this broke, a home would free entries, and hold up its clients, for a caller that has given up.
    let (mut parts, id) = Parts::with(spec());
    assert_eq!(sweep_for(&mut parts, A, id, (0, u64::MAX)), Ok(()));
    assert_eq!(sweep(&mut parts, id, (0, u64::MAX)), Ok(()));
    parts.home().operations().sweep_slice(NOW, id);
    let (slice, _) = searched(&mut parts);
    assert!(!parts.home().operations().cancel_at_home(NOW, id, Requester::Peer(B, STEP + 1)), "another call");
    // A change of the sweep may run meanwhile.
    found(&mut parts, NOW, id, slice.expect("a slice"), true, 0);
    parts.actions();
    assert!(parts.home().operations().cancel_at_home(NOW, id, Requester::Peer(B, STEP)));
    assert_eq!(ended(&parts.actions()), Some((Outcome::Failed(Failure::TimedOut), 0)));
    assert_eq!(parts.segments.sweeps.get(id).map(|sweep| sweep.calls.len()), Some(1));
    assert!(parts.home().operations().cancel_at_home(NOW, id, Requester::Peer(A, STEP)));
    parts.home().operations().sweep_slice(NOW, id);
    assert!(parts.segments.sweeps.get(id).is_none() && searched(&mut parts).0.is_none(), "nothing is left to do");
    assert!(!parts.home().operations().cancel_at_home(NOW, id, Requester::Peer(A, STEP)));
}

#[test]
fn sweep_without_memory_for_its_change_is_tried_again_by_a_tick() {
    // If this broke, a sweep would search the same bucket again and again while memory is short.
    let (mut parts, id) = Parts::with(spec());
    assert_eq!(sweep(&mut parts, id, (0, 1)), Ok(()));
    parts.home().operations().sweep_slice(NOW, id);
    parts.actions();
    let lock_request = LockRequest { shared: false, no_wait: false, lease_us: 1_000_000, row_offset: None };
    let token = LockToken(5);
    parts.home().operations().locks().grant(NOW, id, Requester::Peer(A, 1), lock_request, token).expect("it is free");
    parts.actions();
    found(&mut parts, NOW, id, (0, 1), true, 0);
    assert_eq!((parts.actions(), parts.segments.sweeps.due_us()), (vec![], NOW.steady_us + 1000));
    parts.home().operations().tick_sweeps(at(NOW.steady_us + 1000));
    assert_eq!(parts.actions(), [Action::ContinueSweep { segment: id }]);
}

#[test]
fn pass_over_a_locked_table_and_the_end_of_a_caller_cause_few_ticks() {
    // If this broke, a node would wake up each millisecond while a client holds the lock of one map, or for ever.
    let (mut parts, id) = Parts::with(spec());
    let lock_request = LockRequest { shared: false, no_wait: false, lease_us: 1_000_000, row_offset: None };
    parts.submit(id, A, 1, PendingOp::Lock(lock_request)).expect("it is free");
    parts.segments.note_expiry(NOW, id, 1);
    let now = at(parts.segments.sweeps.due_us());
    parts.actions();
    parts.home().operations().tick_sweeps(now);
    assert_eq!((parts.actions(), parts.segments.sweeps.due_us()), (vec![], now.steady_us + 100_000));
    parts.home().operations().drop_owner(now, LockOwner::Peer(A));
    parts.actions();
    parts.home().operations().tick_sweeps(at(now.steady_us + 100_000));
    let slice = searched(&mut parts).0.expect("a slice");
    assert_eq!(slice.1, BUCKETS);
    // The end of the only caller leaves nothing behind.
    let (mut parts, id) = Parts::with(spec());
    assert_eq!(sweep(&mut parts, id, (0, 1)), Ok(()));
    parts.home().operations().drop_owner(NOW, LockOwner::Peer(B));
    parts.home().operations().sweep_slice(NOW, id);
    parts.actions();
    assert!(parts.segments.sweeps.due_us() == u64::MAX && parts.segments.sweeps.get(id).is_none());
}

#[test]
fn tick_looks_at_one_bucket_each_of_some_tables_that_may_be_maps() {
    // If this broke, a node with many tables would look through all of them in one tick after its start, or for hours.
    let (mut parts, id) = Parts::with(spec());
    let mut ids = vec![id];
    for index in 0..40 {
        let name = Name::new(&format!("table-{index}")).expect("it is short");
        let (permissions, maker) = (Permissions { owner: OWNER, mode: 0o600 }, Requester::Peer(A, 0));
        let made = parts.segments.allocate(name, Spec::table(3, 64), permissions, Timestamp(1), maker, None);
        ids.push(made.expect("the pool has room").segment);
        parts.segments.formed(ids[ids.len() - 1]).expect("it is in creation");
    }
    ids.iter().for_each(|&id| parts.segments.note_unknown_expiry(Now::default(), id));
    let now = at(SWEEP_PAUSE_US);
    let mut maximum = 0;
    for _ in 0..4 {
        parts.home().operations().tick_sweeps(now);
        let actions = parts.actions();
        maximum = maximum.max(actions.len());
        for action in actions {
            let Action::FindGarbage { segment, first, end, .. } = action else { panic!("{action:?}") };
            assert_eq!(end - first, 1, "it may be no map");
            ids.retain(|&left| left != segment);
            parts.home().operations().garbage_found(now, segment, None);
        }
    }
    assert_eq!((ids, parts.segments.sweeps.due_us(), maximum), (vec![], u64::MAX, 16));
}

#[test]
fn search_ends_early_in_buckets_with_large_keys() {
    // If this broke, one slice of a map with large keys would hold up all clients of a node.
    let bucket = BucketLayout::new(1024, 8).expect("sizes of a map");
    let row_bytes = bucket.row_bytes();
    let table = TableLayout::new(row_bytes as u32).expect("a row of a table");
    let place = |row: u64| (table.record(row).of_segment(0).data + table.bounds(row).0) as usize;
    let mut memory = vec![0; place(BUCKETS) + row_bytes];
    let words = [MapLayout::MAGIC, 1024, 8, bucket.slots as u64, 5, 7];
    memory[place(0)..][..48].copy_from_slice(words.map(u64::to_le_bytes).as_flattened());
    let key = |number: u64| {
        let mut key = [0; 1024];
        key[..8].copy_from_slice(&number.to_le_bytes());
        key
    };
    let bucket_of = |number: u64| MapLayout::bucket_of(MapLayout::hash([5, 7], &key(number)), BUCKETS);
    for owner in 0..BUCKETS {
        let number = (0..).find(|&number| bucket_of(number) == owner).expect("a key of the bucket");
        for slot in 0..bucket.slots {
            let head = [&SlotWord::new(1, 0).bytes()[..], &key(number)].concat();
            memory[place(owner + 1) + bucket.head_at(slot)..][..head.len()].copy_from_slice(&head);
        }
    }
    let read = |at: u64, into: &mut [u8]| into.copy_from_slice(&memory[at as usize..][..into.len()]);
    let (mut end, mut searches) = (SWEEP_BUCKETS_MAX, 0);
    while end > 0 {
        let search = GarbageSearch::find((0, table, BUCKETS + 1), (0, end), 64 << 10, 1, read).expect("it is a map");
        assert!(!search.garbage.is_found() && search.begin == end && search.end < end, "{search:?}");
        (end, searches) = (search.end, searches + 1);
    }
    assert_eq!(searches, 5, "each looks at some buckets");
}
