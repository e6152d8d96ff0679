//! Tests of locks of rows at the home: what the daemon reads from a record is an argument.

use crate::action::{Action, CommitSource, PeerAction, RangeSet};
use crate::config::Now;
use crate::home::tests::{A, B, NOW, OWNER, Parts};
use crate::requester::{LockOwner, Requester};
use crate::state::lock_queue::PendingOp;
use ddss_core::limits::ROW_LOCKS_PER_TABLE_MAX;
use ddss_core::{
    Failure, Header, Limit, LockRequest, LockToken, Message, NodeId, Outcome, PutConditions, SegmentId, Spec,
    Timestamp, Version,
};

const ROW_BYTES: u64 = 16;

/// Makes a node with a table of eight rows.
fn table() -> (Parts, SegmentId) {
    Parts::with(Spec::table(8, ROW_BYTES as u32))
}

fn lock_op(row: u64) -> PendingOp {
    let row_offset = Some(row * ROW_BYTES);
    PendingOp::Lock(LockRequest { shared: false, no_wait: false, lease_us: 1000, row_offset })
}

/// Answers the reads of records that are due, each with version 5, and returns all actions but those reads.
fn actions(parts: &mut Parts) -> Vec<Action> {
    let mut others = Vec::new();
    while let Some(action) = parts.output.next_action() {
        match action {
            Action::ReadRecord { .. } => parts.home().operations().record_read(2 * 5, Timestamp(77), 0),
            other => others.push(other),
        }
    }
    others
}

/// Returns the answer to a step among some actions: outcome, version and word.
fn answer(actions: &[Action], wanted: u64) -> Option<(Outcome, Version, u64)> {
    actions.iter().find_map(|action| match *action {
        Action::Peer(PeerAction::Send { message: Message::Ended { step, outcome, version, word, .. }, .. })
            if step == wanted =>
        {
            Some((outcome, version, word))
        }
        _ => None,
    })
}

fn is_marked(actions: &[Action]) -> Option<LockToken> {
    let mut marks = actions.iter().filter_map(|action| match *action {
        Action::SetLockHolder { holder, .. } => Some(holder),
        _ => None,
    });
    marks.next_back()
}

fn commits(actions: &[Action]) -> usize {
    actions.iter().filter(|action| matches!(action, Action::CommitRecord { .. })).count()
}

fn put(parts: &mut Parts, id: SegmentId, (node, step): (NodeId, u64), row: u64, token: Option<LockToken>) {
    let source = CommitSource::Buffer(parts.output.store(b"bytes"));
    let conditions = PutConditions { token, ..PutConditions::default() };
    let range = RangeSet::One { offset: row * ROW_BYTES, bytes: 5 };
    let op = PendingOp::Put { parts: range, source, conditions };
    if let Err(failure) = parts.submit(id, node, step, op) {
        parts.output.answer(Requester::Peer(node, step), Outcome::Failed(failure), Default::default());
    }
}

/// Locks a row for a node and returns the token.
fn lock(parts: &mut Parts, id: SegmentId, (node, step): (NodeId, u64), row: u64) -> LockToken {
    assert_eq!(parts.submit(id, node, step, lock_op(row)), Ok(()));
    let (outcome, version, token) = answer(&actions(parts), step).expect("the row is free");
    assert_eq!((outcome, version), (Outcome::Done, Version(5)), "the grant tells the version of the row");
    LockToken(token)
}

#[test]
fn put_behind_a_row_lock_commits_after_the_unlock_and_other_rows_at_once() {
    // If this broke, a holder would find its row changed under the lock, or all other rows would wait for it.
    let (mut parts, id) = table();
    let token = lock(&mut parts, id, (A, 1), 3);
    put(&mut parts, id, (B, 2), 3, None);
    assert_eq!(actions(&mut parts), [], "the put of the locked row waits");
    put(&mut parts, id, (B, 3), 4, None);
    let other = actions(&mut parts);
    assert_eq!((commits(&other), answer(&other, 3).map(|(outcome, ..)| outcome)), (1, Some(Outcome::Done)));
    put(&mut parts, id, (A, 4), 4, Some(token));
    assert_eq!(answer(&actions(&mut parts), 4).map(|(outcome, ..)| outcome), Some(Outcome::Failed(Failure::LockLost)));
    put(&mut parts, id, (A, 5), 3, Some(token));
    assert_eq!(commits(&actions(&mut parts)), 1, "the holder does not wait");
    assert_eq!(parts.home().operations().unlock_at_home(NOW, id, token, LockOwner::Peer(B)), Err(Failure::LockLost));
    assert!(parts.home().operations().unlock_at_home(NOW, id, token, LockOwner::Peer(A)).is_ok());
    let after = actions(&mut parts);
    assert_eq!((commits(&after), is_marked(&after)), (1, Some(LockToken::default())));
}

#[test]
fn header_shows_that_rows_are_locked_until_the_last_one_is_free() {
    // If this broke, a one-sided get would see the unfinished change of a holder.
    let (mut parts, id) = table();
    assert_eq!(parts.submit(id, A, 1, lock_op(1)), Ok(()));
    assert_eq!(is_marked(&parts.actions()), Some(LockToken(Header::ROWS_LOCKED)));
    parts.home().operations().record_read(0, Timestamp(1), 0);
    parts.actions();
    let second = lock(&mut parts, id, (B, 2), 2);
    assert!(parts.home().operations().unlock_at_home(NOW, id, second, LockOwner::Peer(B)).is_ok());
    assert_eq!(is_marked(&parts.actions()), None, "row 1 is still locked");
    let late = Now { steady_us: NOW.steady_us + 1000, ..NOW };
    parts.home().tick_lock_queues(late);
    assert_eq!(is_marked(&parts.actions()), Some(LockToken::default()), "its lease has ended");
}

#[test]
fn row_lock_of_a_dead_node_ends_and_its_waiting_put_is_gone() {
    // If this broke, the row of a dead holder would be locked until its lease ends.
    let (mut parts, id) = table();
    lock(&mut parts, id, (A, 1), 3);
    put(&mut parts, id, (B, 2), 3, None);
    assert_eq!(parts.submit(id, B, 3, lock_op(3)), Ok(()));
    parts.home().operations().drop_owner(NOW, LockOwner::Peer(B));
    assert_eq!(commits(&actions(&mut parts)), 0);
    assert_eq!(parts.submit(id, B, 4, lock_op(3)), Ok(()));
    parts.home().operations().drop_owner(NOW, LockOwner::Peer(A));
    let granted = answer(&actions(&mut parts), 4);
    assert_eq!(granted.map(|(outcome, ..)| outcome), Some(Outcome::Done), "the next request is granted");
}

#[test]
fn damaged_row_is_not_left_locked() {
    // If this broke, a lock that its requester never got would block the row until its lease ends.
    let (mut parts, id) = table();
    assert_eq!(parts.submit(id, A, 1, lock_op(3)), Ok(()));
    assert!(parts.actions().iter().any(|action| matches!(action, Action::ReadRecord { .. })));
    parts.home().operations().record_read(2 * 5 + 1, Timestamp(77), 0);
    let actions = parts.actions();
    assert_eq!(answer(&actions, 1).map(|(outcome, ..)| outcome), Some(Outcome::Failed(Failure::Damaged)));
    assert_eq!(is_marked(&actions), Some(LockToken::default()));
    lock(&mut parts, id, (B, 2), 3);
}

#[test]
fn only_the_first_byte_of_a_row_names_it() {
    // If this broke, two requests for one row would lock different things.
    let (mut parts, id) = table();
    let at = |row_offset| LockRequest { shared: false, no_wait: true, lease_us: 1000, row_offset: Some(row_offset) };
    for wrong in [1, ROW_BYTES + 8, 8 * ROW_BYTES, u64::MAX] {
        assert_eq!(parts.submit(id, A, 1, PendingOp::Lock(at(wrong))), Err(Failure::OutOfRange), "{wrong}");
    }
    let (mut plain, segment) = Parts::with(Spec::new(64));
    assert_eq!(plain.submit(segment, A, 1, PendingOp::Lock(at(0))), Err(Failure::Unsupported));
    lock(&mut parts, id, (A, 1), 7);
    assert_eq!(parts.submit(id, B, 2, PendingOp::Lock(at(7 * ROW_BYTES))), Err(Failure::Locked));
    parts.home().lifecycle().release_at_home(NOW, OWNER, id).expect("a release ends the locks of rows");
}

#[test]
fn locks_of_one_tables_rows_are_bounded() {
    // If this broke, one client's locks of rows would take the memory of its home, or a free row would stay locked.
    let rows = ROW_LOCKS_PER_TABLE_MAX as u64;
    let (mut parts, id) = Parts::with(Spec::table(rows + 2, 8));
    let lock = |row: u64| {
        let row_offset = Some(row * 8);
        PendingOp::Lock(LockRequest { shared: false, no_wait: false, lease_us: 1_000_000, row_offset })
    };
    let mut first = LockToken::default();
    for row in 0..rows {
        assert_eq!(parts.submit(id, A, 1 + row, lock(row)), Ok(()), "row {row}");
        let granted = answer(&actions(&mut parts), 1 + row).expect("the row is free");
        if row == 0 {
            first = LockToken(granted.2);
        }
    }
    let full = Failure::Busy(Limit::RowLocks);
    assert_eq!(parts.submit(id, B, 1, lock(rows)), Err(full));
    assert_eq!(answer(&actions(&mut parts), 1), None);
    parts.home().operations().unlock_at_home(NOW, id, first, LockOwner::Peer(A)).expect("its holder unlocks it");
    actions(&mut parts);
    assert_eq!(parts.submit(id, B, 3, lock(rows)), Ok(()));
    assert_eq!(answer(&actions(&mut parts), 3).map(|answer| answer.0), Some(Outcome::Done));
    assert_eq!(parts.submit(id, B, 4, lock(rows + 1)), Err(full));
}
