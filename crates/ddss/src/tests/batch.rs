//! Tests of `batch.rs` and `api/batch.rs`.

use crate::deadline::Deadline;
use crate::testing::{TestNode, block_on, poll_once};
use crate::*;
use crate::{ErrorKind, Spec};
use std::task::Poll;

#[test]
fn batch_larger_than_ring_returns_each_reply() {
    // If this broke, a batch would mix up replies, hang when the ring is full, or leak arena memory.
    let node = TestNode::start();
    let client = node.client();
    let segments: Vec<_> =
        (0..4).map(|index| client.segment(&format!("s{index}")).allocate(Spec::new(100_000)).unwrap()).collect();
    for round in 0..3u8 {
        let mut batch = Batch::new();
        for index in 0..300usize {
            let bytes = vec![index as u8 ^ round; if index % 3 == 0 { 8 } else { 300 }];
            batch.put(&segments[index % 4], index as u64 * 300, &bytes).unwrap();
        }
        client.run(batch).unwrap().ok().unwrap();
        let (mut batch, mut tickets) = (Batch::new(), Vec::new());
        for index in 0..300usize {
            tickets.push(batch.get(&segments[index % 4], index as u64 * 300..index as u64 * 300 + 8).unwrap());
        }
        let mut replies = client.run(batch).unwrap();
        for (index, ticket) in tickets.into_iter().enumerate() {
            assert_eq!(replies.take(ticket).unwrap().value, [index as u8 ^ round; 8]);
        }
    }
    // Large calls take turns in the arena.
    let large = client.segment("large").allocate(Spec::new(1 << 20)).unwrap();
    let mut batch = Batch::new();
    let tickets: Vec<_> = (0..12).map(|_| batch.get(&large, ..).unwrap()).collect();
    let mut replies = client.run(batch).unwrap();
    assert!(tickets.into_iter().all(|ticket| replies.take(ticket).unwrap().len() == 1 << 20));
    // A failed call does not affect the others.
    segments[0].clone().release().unwrap();
    let mut batch = Batch::new();
    let (gone, present) = (batch.get(&segments[0], 0..8).unwrap(), batch.get(&segments[1], 0..8).unwrap());
    let mut replies = client.run(batch).unwrap();
    assert!(replies.take(gone).is_err() && replies.take(present).is_ok());
    client.run(Batch::new()).unwrap().ok().unwrap();
}

#[test]
fn batch_covers_every_operation_on_bytes() {
    // If this broke, a program would have to make some of its calls one by one, or take one reply for another.
    let node = TestNode::start_with(|config| config.progress_threads = 2);
    let client = node.client();
    let [one, other] = ["one", "other"].map(|name| client.segment(name).allocate(Spec::new(10_000)).unwrap());
    let rows: Table = client.table("rows").allocate(Spec::new(4).row_len(24)).unwrap();
    one.put(0, &5u64.to_le_bytes()).unwrap();
    let mut batch = Batch::new();
    let parts: [(u64, &[u8]); 2] = [(0, &[1; 3000]), (5000, &[2; 3000])];
    let put = batch.put_with(&other, &parts, PutOptions::new()).unwrap();
    let changes = [
        (0, Atomic::Add(2)),
        (8, Atomic::CheckedSub(1)),
        (16, Atomic::Max(9)),
        (24, Atomic::Swap(4)),
        (32, Atomic::CompareAndSwap { expected: 1, new: 2 }),
    ];
    let changes = changes.map(|(offset, change)| batch.atomic(&one, offset, change).unwrap());
    let if_version = |version| PutOptions::new().if_version(version);
    let stale = batch.put_with(&one, &[(40, b"x")], if_version(Version(1))).unwrap();
    let row = batch.put(rows.row(3), 16, b"row").unwrap();
    let word = batch.atomic(rows.row(3), 8, Atomic::Add(7)).unwrap();
    let mut replies = client.run(batch).unwrap();
    assert_eq!(replies.take(put).unwrap().version, Version(1));
    assert_eq!(changes.map(|ticket| replies.take(ticket).unwrap().before), [5, 0, 0, 0, 0]);
    assert_eq!(replies.take(stale).unwrap_err().kind(), ErrorKind::VersionMismatch);
    assert!(replies.take(row).is_ok() && replies.take(word).unwrap().before == 0);
    let version = one.get(0..8).unwrap().version();
    let mut batch = Batch::new();
    let fresh = batch.put_with(&one, &[(40, b"y")], if_version(version)).unwrap();
    let stale = batch.put_with(&other, &[(0, b"stale")], if_version(Version(0))).unwrap();
    let (part, whole) = (batch.get(rows.row(3), 8..19).unwrap(), batch.get(rows.row(3), ..).unwrap());
    let mut replies = client.run(batch).unwrap();
    assert_eq!(replies.take(fresh).unwrap().version.0, version.0 + 1);
    assert_eq!(replies.take(stale).unwrap_err().kind(), ErrorKind::VersionMismatch);
    assert_eq!(replies.take(part).unwrap().value, *b"\x07\0\0\0\0\0\0\0row");
    assert_eq!((replies.take(whole).unwrap().len(), rows.row(2).get().unwrap().version().0), (24, 0));
    let words = one.get(0..40).unwrap();
    let word = |index: usize| u64::from_le_bytes(std::array::from_fn(|byte| words[8 * index + byte]));
    assert_eq!([0, 1, 2, 3, 4].map(word), [7, 0, 9, 4, 0]);
    // A call that cannot be made is refused before the batch runs, and the others stay.
    let mut batch = Batch::new();
    let kept = batch.get(&one, 0..8).unwrap();
    let mut progress = |_, _| ();
    let refused = [
        batch.atomic(&one, 9_993, Atomic::Add(1)).map(drop),
        batch.atomic(&one, 9_996, Atomic::Add(1)).map(drop),
        batch.atomic(rows.row(3), 24, Atomic::Add(1)).map(drop),
        batch.put_with(&one, &[(9_999, b"ab"), (0, b"")], PutOptions::new()).map(drop),
        batch.put_with(&one, &[(0, b"ab")], PutOptions::new().progress(&mut progress)).map(drop),
        batch.put(rows.row(3), 23, b"ab").map(drop),
        batch.get(rows.row(4), ..).map(drop),
        batch.get(rows.row(0), 8..25).map(drop),
        batch.release(rows.row(0)).map(drop),
    ];
    assert!(refused.iter().all(Result::is_err), "{refused:?}");
    let mut replies = client.run(batch).unwrap();
    let mut foreign = Batch::new();
    let foreign = foreign.get(&one, 0..8).unwrap();
    assert_eq!(replies.take(foreign).unwrap_err().kind(), ErrorKind::BadArgument);
    replies.take(kept).unwrap();
}

#[test]
fn batch_takes_guards_and_handles_of_both_forms() {
    // If this broke, a call of a batch under a lock would wait for its own client, or be made without the lock.
    let node = TestNode::start();
    let (client, tasks) = (node.client(), node.client().aio().unwrap());
    let plain = client.segment("plain").allocate(64).unwrap();
    let rows: Table = client.table("rows").allocate(Spec::new(4).row_len(8)).unwrap();
    let (held, row) = (plain.lock().unwrap(), rows.row(1).lock().unwrap());
    let of_task = block_on(tasks.segment("plain").open()).unwrap();
    let mut batch = Batch::new();
    let (put, in_row) = (batch.put(&held, 0, b"a").unwrap(), batch.put(&row, 0, b"b").unwrap());
    let (own, got) = (batch.put(&plain, 0, b"c").unwrap(), batch.get(&of_task, 0..1).unwrap());
    let mut replies = client.run(batch).unwrap();
    assert!(replies.take(put).is_ok() && replies.take(in_row).is_ok() && replies.take(got).is_ok());
    assert_eq!(replies.take(own).unwrap_err().kind(), ErrorKind::OwnLock);
    // The lock belongs to the other client.
    let mut batch = Batch::new();
    let (put, got) = (batch.put(&held, 0, b"d").unwrap(), batch.get(&plain, 0..1).unwrap());
    let mut replies = block_on(tasks.run(batch)).unwrap();
    assert_eq!(replies.take(put).unwrap_err().kind(), ErrorKind::BadArgument);
    assert_eq!(replies.take(got).unwrap().value, b"a");
}

#[test]
fn batch_refuses_handles_of_another_daemon() {
    // If this broke, a program that copies between two clusters would overwrite an unrelated segment of the same id.
    let (node, other) = (TestNode::start(), TestNode::start());
    let (client, stranger) = (node.client(), other.client());
    let ours = client.segment("ours").allocate(64).unwrap();
    let theirs = stranger.segment("theirs").allocate(64).unwrap();
    let mut batch = Batch::new();
    let (good, foreign) = (batch.put(&ours, 0, b"ours").unwrap(), batch.put(&theirs, 0, b"theirs").unwrap());
    let mut replies = client.run(batch).unwrap();
    assert_eq!(replies.take(foreign).unwrap_err().kind(), ErrorKind::BadArgument);
    replies.take(good).unwrap();
    assert_eq!(ours.get(0..4).unwrap()[..], b"ours"[..]);
    assert_eq!(theirs.get(0..6).unwrap()[..], [0; 6]);
}

#[test]
fn no_call_of_a_batch_begins_after_its_deadline() {
    // If this broke, a batch of many slow calls would take many times its timeout.
    const CALLS: u64 = 1000;
    let node = TestNode::start();
    let locked = node.client().segment("locked").allocate(64).unwrap();
    let _held = locked.lock_with(LockOptions::new().lease(std::time::Duration::from_secs(600))).unwrap();
    for (client, tasks) in [false, true].map(|tasks| (node.short_timeout_client(), tasks)) {
        let (segment, before) = (client.segment("locked").open().unwrap(), node.puts());
        let mut batch = Batch::new();
        let tickets: Vec<_> = (0..CALLS).map(|_| batch.put(&segment, 0, b"slow").unwrap()).collect();
        let replies = if tasks { block_on(client.aio().unwrap().run(batch)) } else { client.run(batch) };
        let mut replies = replies.unwrap();
        for ticket in tickets {
            let error = replies.take(ticket).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::LimitReached), "{error}");
        }
        let sent = node.puts() - before;
        assert!(sent <= ddss_core::limits::RING_SLOTS as u64, "{sent} of {CALLS} calls were sent");
    }
}

#[test]
fn calls_of_a_batch_refuse_a_timeout_that_no_call_has() {
    // If this broke, a batch with an hour would end after ten minutes without a reason.
    let node = TestNode::start();
    let client = node.client().with_timeout(std::time::Duration::from_secs(601));
    let segment = node.client().segment("s").allocate(64).unwrap();
    for tasks in [false, true] {
        let mut batch = Batch::new();
        let tickets = [0, 8].map(|at| batch.put(&segment, at, b"put").unwrap());
        let replies = if tasks { block_on(client.aio().unwrap().run(batch)) } else { client.run(batch) };
        let mut replies = replies.unwrap();
        for ticket in tickets {
            let error = replies.take(ticket).unwrap_err();
            assert!(error.kind() == ErrorKind::BadArgument && error.to_string().contains("timeout"), "{error}");
        }
    }
    assert_eq!(segment.get(..).unwrap().version(), Version(0));
}

#[test]
fn batch_attaches_to_its_shards_by_its_own_deadline() {
    // If this broke, a batch on several shards would take the timeout of a call for each of them.
    let node = TestNode::start_with(|config| config.progress_threads = 3);
    let (client, (ended, ends)) = (node.client(), std::sync::mpsc::channel());
    let turn = client.shards.turn();
    let caller = client.clone();
    std::thread::spawn(move || {
        let mut batch = Batch::new();
        for number in 0..8 {
            batch.open(&format!("s{number}")).unwrap();
        }
        let soon = Deadline::of(std::time::Duration::from_millis(1));
        ended.send(caller.run_by(soon, batch).1).unwrap();
    });
    let end = ends
        .recv_timeout(std::time::Duration::from_secs(30))
        .expect("it does not wait as long as a call of the client");
    assert_eq!(end.unwrap().kind(), ErrorKind::NoDaemon);
    drop(turn);
}

#[test]
fn end_of_the_daemon_between_two_steps_is_an_error_of_the_call() {
    // If this broke, a batch would report that no call had an effect although some had one.
    // On a busy machine a daemon may answer both steps before the client looks: another one follows.
    let error = (0..100).find_map(|_| error_of_a_daemon_that_ends_between_two_steps()).expect("a batch of two polls");
    assert!(matches!(error.kind(), ErrorKind::NoDaemon | ErrorKind::DaemonGone), "{error}");
}

/// Ends a daemon behind the first step of a batch. Returns `None` if it had done both steps.
fn error_of_a_daemon_that_ends_between_two_steps() -> Option<Error> {
    let node = TestNode::start();
    let client = Client::connect_with(node.options().local_reads(false).retries(false)).unwrap();
    let map: Map<u64, u64> = client.map("map").allocate(8).unwrap();
    let first = map.put(&1, &1).unwrap();
    let mut batch = Batch::new();
    let ticket = batch.map_put(&map, &1, &2, EntryOptions::new().if_version(first.version)).unwrap();
    let (tasks, (gets, _)) = (client.aio().unwrap(), node.gets(0));
    let mut run = Box::pin(tasks.run(batch));
    let Poll::Pending = poll_once(&mut run) else { return None };
    // The first step is done at its daemon, and not yet seen here.
    node.gets(gets + 1);
    drop(node);
    block_on(run).expect("the first step was answered").take(ticket).err()
}
