//! Tests of `api/vectored.rs`.

use crate::testing::TestNode;
use crate::*;
use crate::{Client, Spec};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const BYTES: usize = 100_000;

fn filled(client: &Client) -> Segment {
    let table = client.segment("table").allocate(Spec::new(2 * BYTES as u64)).unwrap();
    table.put_many(&[(0, &[1; BYTES]), (BYTES as u64, &[2; BYTES])]).unwrap();
    table
}

#[test]
fn overlapped_work_runs_exactly_once() {
    // If this broke, a scan that overlaps work and transfer would miss a piece, or process one twice.
    let node = TestNode::start();
    let table = filled(&node.client());
    let (mut left, mut right, mut runs) = (vec![0; BYTES], vec![0; BYTES], 0);
    let mut parts = [(0, &mut left[..]), (BYTES as u64, &mut right[..])];
    let (got, word) = table.get_many_into_while(&mut parts, || {
        runs += 1;
        "done"
    });
    assert_eq!((got.unwrap().version, word, runs), (Version(1), "done", 1));
    assert!(left == [1; BYTES] && right == [2; BYTES]);
    // The closure also runs where no request was sent, or the call fails.
    let outside = (2 * BYTES as u64, &mut left[..]);
    let (got, ()) = table.get_many_into_while(&mut [outside], || runs += 1);
    assert!(got.is_err_and(|error| error.kind() == ErrorKind::OutOfRange) && runs == 2);
    table.clone().release().unwrap();
    let (got, ()) = table.get_many_into_while(&mut [(0, &mut left)], || runs += 1);
    assert_eq!((got.unwrap_err().kind(), runs), (ErrorKind::NotFound, 3));
    // The call ends after it was planned, and before its request.
    for (timeout, kind) in [(Duration::ZERO, ErrorKind::TimedOut), (Duration::from_secs(601), ErrorKind::BadArgument)] {
        let before = runs;
        let (got, ()) = table.with_timeout(timeout).get_many_into_while(&mut [(0, &mut left)], || runs += 1);
        assert_eq!((got.unwrap_err().kind(), runs), (kind, before + 1));
    }
}

#[test]
fn client_can_be_used_during_overlapped_work() {
    // If this broke, a lookup in the middle of a scan would wait for itself.
    let node = TestNode::start();
    let client = node.client();
    let table = filled(&client);
    let (mut left, mut right) = (vec![0; BYTES], vec![0; BYTES]);
    let (got, inner) = table.get_many_into_while(&mut [(0, &mut left)], || {
        table.get_many_into_while(&mut [(BYTES as u64, &mut right)], || client.ping())
    });
    assert_eq!((got.unwrap().version, inner.0.unwrap().version), (Version(1), Version(1)));
    inner.1.unwrap();
    assert!(left == [1; BYTES] && right == [2; BYTES]);
}

#[test]
fn nested_call_is_busy_when_client_has_one_channel() {
    // If this broke, such a client would hang, or two calls would share exclusive memory.
    let node = TestNode::start();
    let table = filled(&node.client());
    let one = node.one_channel_client();
    let table = one.segment(table.name()).open().unwrap();
    let mut left = vec![0; BYTES];
    let (got, inner) = table.get_many_into_while(&mut [(0, &mut left)], || one.ping());
    assert!(matches!(inner.unwrap_err().kind(), ErrorKind::LimitReached));
    assert!(got.is_ok() && left == [1; BYTES]);
    one.ping().unwrap();
}

#[test]
fn memory_in_use_is_not_reused_after_panic_in_overlapped_work() {
    // If this broke, the bytes of an abandoned get would land in the buffer of another call.
    let node = TestNode::start();
    let client = node.client();
    let table = filled(&client);
    for turn in 0..200 {
        // Alternates between the channel's own memory and the shared part of the arena.
        let mut into = vec![0; if turn % 2 == 0 { 1000 } else { BYTES }];
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            table.get_many_into_while(&mut [(0, &mut into)], || std::panic::resume_unwind(Box::new("meanwhile")))
        }));
        assert!(panicked.is_err() && into.iter().all(|&byte| byte == 0), "it was not waited for");
        let mut after = vec![0; 1000];
        table.get_many_into(&mut [(BYTES as u64, &mut after)]).unwrap();
        assert_eq!(after, [2; 1000]);
    }
}

#[test]
fn get_fails_when_daemon_ends_during_overlapped_work() {
    // If this broke, a scan would hang, or take stale bytes for its reply.
    let node = TestNode::start();
    let client = node.short_timeout_client();
    let table = filled(&client);
    let (mut into, mut node) = (vec![0; BYTES], Some(node));
    let mut first = vec![0; 8];
    let (got, ()) = table.get_many_into_while(&mut [(0, &mut first)], || drop(node.take()));
    // Either the reply came before the daemon ended, or there is none.
    assert!(got.is_err() || first == [1; 8]);
    let (got, ran) = table.get_many_into_while(&mut [(0, &mut into)], || true);
    assert!(got.is_err() && ran);
}
