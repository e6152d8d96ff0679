//! Tests of `api/tables/row.rs`.

use crate::testing::{TestNode, block_on};
use crate::*;
use crate::{ErrorKind, Spec};
use std::time::Duration;

fn no_wait() -> LockOptions {
    LockOptions::new().timeout(Duration::ZERO)
}

fn failure<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn row_lock_protects_its_row_and_leaves_the_others_free() {
    // If this broke, a lock of a row would not exclude other writers of it, or would stop the whole table.
    let node = TestNode::start();
    let (mine, theirs) = (node.client(), node.client());
    let table = mine.table::<[u8]>("rows").allocate(Spec::new(8).row_len(16)).unwrap();
    let other = theirs.table::<[u8]>("rows").open().unwrap();
    // Its calls wait in vain.
    let hasty = <Table>::try_from(other.segment().with_timeout(Duration::from_millis(30))).unwrap();
    let put = table.row(3).put(b"first").unwrap();
    let held = table.row(3).lock().unwrap();
    assert_eq!(held.version(), put.version);
    assert_eq!(failure(hasty.row(3).put(b"they")), ErrorKind::TimedOut);
    assert_eq!(failure(hasty.row(3).word(8).fetch_add(1)), ErrorKind::TimedOut);
    assert_eq!(failure(hasty.row(3).get()), ErrorKind::TimedOut);
    assert_eq!(failure(hasty.row(3).lock()), ErrorKind::TimedOut);
    assert_eq!(failure(other.row(3).lock_with(no_wait())), ErrorKind::Locked);
    assert_eq!(failure(table.row(3).put(b"past the guard")), ErrorKind::OwnLock);
    // Other rows.
    other.row(4).put(b"they").unwrap();
    other.row(4).word(8).fetch_add(1).unwrap();
    assert_eq!(&other.row(4).get().unwrap()[..4], b"they");
    let next = other.row(5).lock().unwrap();
    assert!(next.token() > held.token());
    // Calls under the lock.
    let put = held.put_if(held.version(), b"mine").unwrap();
    assert_eq!(failure(held.put_if(held.version(), b"late")), ErrorKind::VersionMismatch);
    assert_eq!((held.get().unwrap().stamp, &held.get().unwrap()[..4]), (put, &b"mine"[..]));
    assert_eq!(held.word(8).fetch_add(5).unwrap().before, 0);
    assert_eq!(held.word(8).swap(7).unwrap().before, 5);
    assert_eq!(held.word(8).compare_and_swap(7, 9).unwrap().before, 7);
    assert_eq!((held.word(8).fetch_max(12).unwrap().before, held.word(8).checked_sub(2).unwrap().before), (9, 12));
    let mut word = [0; 8];
    held.get_into(8, &mut word).unwrap();
    assert_eq!(u64::from_le_bytes(word), 10);
    assert_eq!(failure(held.put_with(&[(9, &[0; 8])], PutOptions::new())), ErrorKind::OutOfRange);
    held.renew().unwrap();
    assert!(!held.lease_left().is_zero());
    held.unlock().unwrap();
    other.row(3).put(b"they").unwrap();
    assert_eq!(failure(table.row(8).lock()), ErrorKind::OutOfRange);
    drop(next);
    while other.row(5).lock_with(no_wait()).is_err() {}
}

#[test]
fn lost_row_lock_admits_no_put() {
    // If this broke, a holder that was away for too long could overwrite its successor's row.
    let node = TestNode::start();
    let (mine, theirs) = (node.client(), node.client());
    let table = mine.table::<[u8]>("rows").allocate(Spec::new(4).row_len(16)).unwrap();
    let other = theirs.table::<[u8]>("rows").open().unwrap();
    let short = LockOptions::new().lease(Duration::from_millis(1));
    let late = table.row(1).lock_with(short).unwrap();
    let next = other.row(1).lock().unwrap();
    assert_eq!(failure(late.put(b"late")), ErrorKind::LockLost);
    assert_eq!(failure(late.renew()), ErrorKind::LockLost);
    assert_eq!(failure(late.unlock()), ErrorKind::LockLost);
    next.put(b"next").unwrap();
    // The owner of the table breaks the locks of all rows.
    let second = table.row(2).lock().unwrap();
    assert_eq!(table.segment().break_lock().unwrap(), 2);
    assert_eq!(failure(next.put(b"late")), ErrorKind::LockLost);
    assert_eq!(failure(second.word(8).fetch_add(1)), ErrorKind::LockLost);
}

#[test]
fn locks_of_rows_and_of_their_table_exclude_each_other() {
    // If this broke, a holder of the table would see a row change, or would never get the lock.
    let node = TestNode::start();
    let (mine, theirs) = (node.client(), node.client());
    let table = mine.table::<[u8]>("rows").allocate(Spec::new(4).row_len(16)).unwrap();
    let other = theirs.table::<[u8]>("rows").open().unwrap();
    let (first, second) = (table.row(1).lock().unwrap(), table.row(2).lock().unwrap());
    assert_eq!(failure(other.segment().lock_with(no_wait())), ErrorKind::Locked);
    std::thread::scope(|scope| {
        let whole = scope.spawn(|| other.segment().lock().unwrap());
        while table.segment().stat().unwrap().lock.waiting == 0 {
            std::thread::yield_now();
        }
        assert_eq!(failure(table.row(3).lock_with(no_wait())), ErrorKind::Locked, "the table comes first");
        first.put(b"goes on").unwrap();
        first.unlock().unwrap();
        second.unlock().unwrap();
        let whole = whole.join().unwrap();
        assert_eq!(failure(table.row(3).lock_with(no_wait())), ErrorKind::Locked);
        whole.put(16, b"whole").unwrap();
        whole.unlock().unwrap();
    });
    assert_eq!(&table.row(1).lock().unwrap().get().unwrap()[..5], b"whole");
    // Shared locks of a row admit each other.
    let shared = [&table, &other].map(|table| table.row(1).lock_with(LockOptions::new().shared()).unwrap());
    assert_eq!(failure(other.row(1).lock_with(no_wait())), ErrorKind::Locked);
    assert_eq!(failure(shared[0].put(b"shared")), ErrorKind::SharedLock);
}

#[test]
fn async_row_lock_is_released_by_drop_and_by_unlock() {
    // If this broke, a cancelled task would leave a row locked until its lease ends.
    let node = TestNode::start();
    let (mine, theirs) = (node.client().aio().unwrap(), node.client().aio().unwrap());
    block_on(async {
        let table = mine.table::<[u8]>("rows").allocate(Spec::new(4).row_len(16)).await.unwrap();
        let other = theirs.table::<[u8]>("rows").open().await.unwrap();
        let held = table.row(2).lock().await.unwrap();
        held.put(b"task").await.unwrap();
        assert_eq!(&held.get().await.unwrap()[..4], b"task");
        assert_eq!(failure(other.row(2).lock_with(no_wait()).await), ErrorKind::Locked);
        held.unlock().await.unwrap();
        let kept = LockOptions::new().keep_alive().lease(Duration::from_millis(300));
        drop(other.row(2).lock_with(kept).await.unwrap());
        while table.row(2).lock_with(no_wait()).await.is_err() {}
    });
}

#[test]
fn empty_range_at_the_end_of_a_row_is_in_that_row() {
    // If this broke, a put without bytes would make a version of the next row, and wake those that wait for it.
    let node = TestNode::start();
    let table = node.client().table::<[u8]>("rows").allocate(Spec::new(2).row_len(16)).unwrap();
    table.row(0).put_with(&[(16, b"")], PutOptions::new()).unwrap();
    let versions = [0, 1].map(|row| table.row(row).get().unwrap().version().0);
    assert_eq!(versions, [1, 0]);
    table.row(1).put_with(&[(16, b"")], PutOptions::new()).unwrap();
}

#[test]
fn clone_of_a_locked_handle_changes_nothing_after_the_lock() {
    // If this broke, a thread that still has the handle would write into what the next holder has locked.
    let node = TestNode::start();
    let (mine, theirs) = (node.client(), node.client());
    let segment = mine.segment("s").allocate(Spec::new(8)).unwrap();
    let table = mine.table::<[u8]>("rows").allocate(Spec::new(8).row_len(16)).unwrap();
    let (held, held_row) = (segment.lock().unwrap(), table.row(3).lock().unwrap());
    let (clone, row): (Segment, Row<'static>) = (held.clone(), held_row.clone());
    clone.put(0, b"mine").unwrap();
    row.put(b"mine").unwrap();
    held.unlock().unwrap();
    drop(held_row);
    let is_refused = || {
        let words = [clone.word(0).fetch_add(1).map(drop), row.word(0).fetch_add(1).map(drop)];
        let puts = [clone.put(0, b"late").map(drop), row.put(b"late").map(drop)];
        words.into_iter().chain(puts).for_each(|ended| assert_eq!(failure(ended), ErrorKind::LockLost));
    };
    is_refused();
    let (other, rows) = (theirs.segment("s").open().unwrap(), theirs.table::<[u8]>("rows").open().unwrap());
    let (next, next_row) = (other.lock().unwrap(), rows.row(3).lock().unwrap());
    is_refused();
    assert_eq!((&next.get(0..4).unwrap()[..], &next_row.get().unwrap()[..4]), (&b"mine"[..], &b"mine"[..]));
}

#[test]
fn lock_of_one_client_is_no_argument_for_a_batch() {
    // If this broke, a put would go out under the lock of another client.
    let node = TestNode::start();
    let (one, other) = (node.client(), node.client());
    let held = one.segment("s").allocate(Spec::new(8)).unwrap();
    let held = held.lock().unwrap();
    let batch = || {
        let mut batch = Batch::new();
        batch.put(&held, 0, b"x").unwrap();
        batch
    };
    assert_eq!(failure(other.run(batch()).unwrap().ok()), ErrorKind::BadArgument);
    one.run(batch()).unwrap().ok().unwrap();
}
