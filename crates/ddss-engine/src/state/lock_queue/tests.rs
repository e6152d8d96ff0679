//! Tests of the lock queue of a segment.

use super::*;
use crate::action::{CommitSource, RangeSet};
use ddss_core::{LockDependency, NodeId, Principal, PutConditions};

const NOBODY: Principal = Principal { uid: 0, gid: 0 };

fn lock(node: u16, shared: bool) -> Waiter {
    lock_row(node, shared, None)
}

/// Makes a request for the lock of a row of 8 bytes.
fn lock_row(node: u16, shared: bool, row: Option<u64>) -> Waiter {
    let lock_request = LockRequest { shared, no_wait: false, lease_us: 1, row_offset: row.map(|row| row * 8) };
    Waiter {
        requester: Requester::Peer(NodeId(node), 0),
        principal: NOBODY,
        op: PendingOp::Lock(lock_request),
        deadline_us: 100,
    }
}

fn hold(node: u16, shared: bool) -> Holder {
    Holder { token: LockToken(node.into()), owner: LockOwner::Peer(NodeId(node)), shared, until_us: 50 }
}

#[test]
fn lock_queue_is_fifo_and_readers_do_not_overtake_writer() {
    // If this broke, a stream of readers could keep a writer out for ever.
    let mut lock_queue = LockQueue::default();
    lock_queue.grant(hold(1, true), None).unwrap();
    let (alone, shared) = (lock(2, false), lock(3, true));
    assert!(lock_queue.must_wait(&alone.op, alone.requester.owner(), true));
    assert!(lock_queue.enqueue(alone, None));
    assert!(lock_queue.must_wait(&shared.op, shared.requester.owner(), true));
    assert!(lock_queue.enqueue(shared, None));
    assert_eq!(lock_queue.next_ready(), None);
    assert!(lock_queue.release(LockToken(1), LockOwner::Peer(NodeId(1))));
    assert_eq!(lock_queue.next_ready(), Some(Ready::OfSegment(alone)));
    lock_queue.grant(hold(2, false), None).unwrap();
    assert_eq!(lock_queue.next_ready(), None);
    assert!(!lock_queue.release(LockToken(2), LockOwner::Peer(NodeId(9))), "only its owner releases it");
    assert!(lock_queue.release(LockToken(2), LockOwner::Peer(NodeId(2))));
    assert_eq!(lock_queue.next_ready(), Some(Ready::OfSegment(shared)));
}

#[test]
fn expired_lease_admits_no_put() {
    // If this broke, a holder that was away for too long could overwrite its successor's put.
    let mut lock_queue = LockQueue::default();
    lock_queue.grant(hold(1, false), None).unwrap();
    let owner = LockOwner::Peer(NodeId(1));
    assert!(lock_queue.admits(LockToken(1), owner, 49, None));
    assert!(!lock_queue.admits(LockToken(1), owner, 50, None));
    assert!(
        !lock_queue.admits(LockToken(1), LockOwner::Peer(NodeId(2)), 49, None),
        "the lock belongs to another owner"
    );
    assert!(lock_queue.expire_leases(50));
    assert!(lock_queue.is_idle());
}

#[test]
fn only_a_lease_in_force_is_renewed_by_its_owner() {
    // If this broke, a holder could take back a lock that it had lost, or extend the lock of another.
    let mut lock_queue = LockQueue::default();
    lock_queue.grant(hold(1, false), None).unwrap();
    let (token, owner) = (LockToken(1), LockOwner::Peer(NodeId(1)));
    assert!(!lock_queue.renew(token, LockOwner::Peer(NodeId(2)), 10, 90), "another owner");
    assert!(!lock_queue.renew(LockToken(2), owner, 10, 90), "another token");
    assert!(lock_queue.renew(token, owner, 49, 90));
    assert!(lock_queue.renew(token, owner, 49, 60), "a renewal never shortens a lease");
    assert!(!lock_queue.expire_leases(89));
    assert!(lock_queue.admits(token, owner, 89, None) && !lock_queue.admits(token, owner, 90, None));
    assert!(!lock_queue.renew(token, owner, 90, 200), "the lease has ended, though no tick has removed it");
    assert!(lock_queue.expire_leases(90));
    assert!(!lock_queue.renew(token, owner, 50, 200));
}

#[test]
fn removed_owner_holds_no_lock() {
    // If this broke, a lock would outlive its holder.
    let mut lock_queue = LockQueue::default();
    lock_queue.grant(hold(1, false), None).unwrap();
    lock_queue.enqueue(lock(1, false), None);
    lock_queue.enqueue(lock(2, false), None);
    assert_eq!(lock_queue.remove_owner(LockOwner::Peer(NodeId(1))).len(), 1);
    assert_eq!(lock_queue.next_ready(), Some(Ready::OfSegment(lock(2, false))));
}

/// Makes a put of a row that waits for locks.
fn put(node: u16, row: u64) -> Waiter {
    let parts = RangeSet::One { offset: row * 8, bytes: 8 };
    let op = PendingOp::Put { parts, source: CommitSource::Word(1), conditions: PutConditions::default() };
    Waiter { op, ..lock(node, false) }
}

fn must_wait(lock_queue: &LockQueue, waiter: &Waiter) -> bool {
    lock_queue.must_wait(&waiter.op, waiter.requester.owner(), true)
}

fn must_wait_for_row(lock_queue: &LockQueue, row: u64, waiter: &Waiter) -> bool {
    lock_queue.must_wait_for_row(row, &waiter.op, waiter.requester.owner(), true)
}

fn peer(node: u16) -> LockOwner {
    LockOwner::Peer(NodeId(node))
}

#[test]
fn row_lock_delays_calls_of_its_row_only() {
    // If this broke, a lock of a row would not protect it, or stop the whole table.
    let mut lock_queue = LockQueue::default();
    lock_queue.grant(hold(1, false), Some(7)).unwrap();
    assert_eq!(lock_queue.lock_word(), LockToken(Header::ROWS_LOCKED));
    assert!(!must_wait(&lock_queue, &put(2, 7)), "the queue of the table is free");
    assert!(must_wait_for_row(&lock_queue, 7, &put(2, 7)) && !must_wait_for_row(&lock_queue, 8, &put(2, 8)));
    assert!(must_wait_for_row(&lock_queue, 7, &lock_row(2, true, Some(7))));
    assert!(lock_queue.admits(LockToken(1), peer(1), 49, Some(7)));
    assert!(!lock_queue.admits(LockToken(1), peer(1), 49, Some(8)), "another row");
    assert!(!lock_queue.admits(LockToken(1), peer(1), 49, None), "the table");
    assert!(lock_queue.enqueue(put(2, 7), Some(7)) && lock_queue.enqueue(lock_row(3, false, Some(7)), Some(7)));
    assert_eq!((lock_queue.holders(), lock_queue.waiting(), lock_queue.next_ready()), (1, 2, None));
    assert!(!lock_queue.release(LockToken(1), peer(9)), "only its owner releases it");
    assert!(lock_queue.release(LockToken(1), peer(1)));
    assert_eq!(lock_queue.lock_word(), LockToken::default());
    assert_eq!(lock_queue.next_ready(), Some(Ready::OfRow(put(2, 7))));
    assert_eq!(lock_queue.next_ready(), Some(Ready::OfRow(lock_row(3, false, Some(7)))));
    assert_eq!(lock_queue.next_ready(), None);
    assert!(lock_queue.is_idle() && !lock_queue.has_row_locks(), "an unlocked row takes no memory");
}

#[test]
fn lock_of_the_table_waits_for_rows_and_is_not_overtaken_by_them() {
    // If this broke, a lock of the table would not exclude rows, or a stream of row locks could keep it out for ever.
    let mut lock_queue = LockQueue::default();
    lock_queue.grant(hold(1, true), Some(1)).unwrap();
    for of_table in [lock(2, false), lock(2, true)] {
        assert!(must_wait(&lock_queue, &of_table));
    }
    assert!(!must_wait(&lock_queue, &lock_row(3, false, Some(2))), "another row is free");
    lock_queue.enqueue(lock(2, false), None);
    assert!(must_wait(&lock_queue, &lock_row(3, false, Some(2))), "it queues behind the table");
    lock_queue.enqueue(lock_row(3, false, Some(2)), None);
    assert_eq!(lock_queue.next_ready(), None);
    lock_queue.enqueue(lock_row(4, false, Some(1)), Some(1));
    assert!(lock_queue.release(LockToken(1), peer(1)));
    assert_eq!(lock_queue.next_ready(), Some(Ready::OfRow(lock_row(4, false, Some(1)))), "it came before the table");
    lock_queue.grant(hold(4, false), Some(1)).unwrap();
    assert_eq!(lock_queue.next_ready(), None);
    assert!(lock_queue.release(LockToken(4), peer(4)));
    assert_eq!(lock_queue.next_ready(), Some(Ready::OfSegment(lock(2, false))));
    lock_queue.grant(hold(2, false), None).unwrap();
    assert_eq!((lock_queue.next_ready(), lock_queue.lock_word()), (None, LockToken(2)));
    assert!(lock_queue.admits(LockToken(2), peer(2), 49, Some(2)), "the lock of the table is one of each row");
    assert!(lock_queue.release(LockToken(2), peer(2)));
    assert_eq!(lock_queue.next_ready(), Some(Ready::OfSegment(lock_row(3, false, Some(2)))));
}

#[test]
fn lease_wait_and_owner_of_a_row_end_by_themselves() {
    // If this broke, the row of a dead or slow holder would stay locked, or a waiter would miss its deadline.
    let mut lock_queue = LockQueue::default();
    for (row, node) in [(1, 1), (2, 2), (3, 3)] {
        lock_queue.grant(hold(node, false), Some(row)).unwrap();
        lock_queue.enqueue(put(9, row), Some(row));
    }
    assert_eq!(lock_queue.due_us(), 50);
    assert!(lock_queue.renew(LockToken(2), peer(2), 10, 70) && !lock_queue.renew(LockToken(2), peer(1), 10, 99));
    assert!(!lock_queue.expire_leases(49) && lock_queue.expire_leases(50));
    assert_eq!((lock_queue.holders(), lock_queue.due_us()), (1, 70));
    assert_eq!(lock_queue.next_ready(), Some(Ready::OfRow(put(9, 1))));
    assert_eq!(lock_queue.next_ready(), Some(Ready::OfRow(put(9, 3))));
    assert_eq!((lock_queue.next_expired_waiter(99), lock_queue.waiting()), (None, 1));
    assert_eq!(lock_queue.next_expired_waiter(100), Some(put(9, 2)));
    lock_queue.enqueue(put(8, 2), Some(2));
    assert_eq!(lock_queue.take_waiter(put(8, 2).requester), Some(put(8, 2)), "it is cancelled");
    assert_eq!(lock_queue.take_waiter(put(8, 2).requester), None);
    lock_queue.enqueue(put(8, 2), Some(2));
    assert_eq!(lock_queue.remove_owner(peer(8)), [put(8, 2)]);
    lock_queue.enqueue(put(7, 2), Some(2));
    assert_eq!(lock_queue.remove_owner(peer(2)), []);
    assert_eq!(lock_queue.next_ready(), Some(Ready::OfRow(put(7, 2))), "its holder is gone");
    assert!(lock_queue.is_idle() && !lock_queue.has_row_locks());
}

#[test]
fn waiters_of_rows_obey_what_blocks_the_table() {
    // If this broke, a put of a row would run while another is on its way to the replica, or never afterwards.
    let mut lock_queue = LockQueue::default();
    lock_queue.grant(hold(1, false), Some(1)).unwrap();
    let get = Get {
        parts: RangeSet::One { offset: 8, bytes: 8 },
        sink: Destination::Peer,
        lock_dependency: LockDependency::Exclusive,
        version: None,
        token: None,
    };
    let get = Waiter { op: PendingOp::Get(get), ..lock(5, false) };
    lock_queue.enqueue(put(2, 1), Some(1));
    lock_queue.enqueue(get, Some(1));
    lock_queue.set_gate(false, true);
    assert!(lock_queue.release(LockToken(1), peer(1)));
    assert_eq!(lock_queue.next_ready(), Some(Ready::OfRow(get)), "only gets run");
    assert_eq!(lock_queue.next_ready(), None);
    lock_queue.set_gate(true, false);
    assert_eq!(lock_queue.next_ready(), None, "nothing runs");
    lock_queue.set_gate(false, false);
    assert_eq!(lock_queue.next_ready(), Some(Ready::OfRow(put(2, 1))));
}

#[test]
fn everything_of_rows_ends_with_the_segment_or_the_daemon() {
    // If this broke, a waiter for a row would get no answer.
    let mut lock_queue = LockQueue::default();
    lock_queue.grant(hold(1, false), Some(1)).unwrap();
    lock_queue.grant(hold(2, true), Some(2)).unwrap();
    lock_queue.enqueue(lock_row(3, false, Some(1)), Some(1));
    lock_queue.enqueue(put(4, 1), Some(1));
    assert_eq!(lock_queue.drain_blocked(false).0, [lock_row(3, false, Some(1))]);
    assert_eq!((lock_queue.holders(), lock_queue.waiting()), (2, 1));
    lock_queue.release_all();
    assert_eq!(lock_queue.drain_blocked(true).0, [put(4, 1)]);
    assert!(lock_queue.is_idle());
    // A lock that is broken lets the next request run.
    lock_queue.grant(hold(1, false), Some(1)).unwrap();
    lock_queue.enqueue(put(4, 1), Some(1));
    assert_eq!((lock_queue.release_all(), lock_queue.next_ready()), (1, Some(Ready::OfRow(put(4, 1)))));
}
