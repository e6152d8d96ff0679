//! Tests of `api/watch.rs`.

use crate::testing::{TestNode, block_on, poll_once};
use crate::{ErrorKind, RowEvent, Spec, Table, Version};
use ddss_core::limits::ROW_CHANGES_MAX;
use futures_core::Stream;
use std::pin::Pin;

#[test]
fn watch_reports_newest_version_and_end_of_segment() {
    // If this broke, a follower would stall, or watch a segment that is gone.
    let node = TestNode::start();
    let (client, hasty) = (node.client(), node.short_timeout_client());
    let segment = client.segment("watched").allocate(Spec::new(8)).unwrap();
    let mut seen = hasty.segment("watched").open().unwrap().watch();
    assert_eq!(seen.next().unwrap().unwrap().version, Version(0));
    let (has_seen, last_seen) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let follower = scope.spawn(move || {
            let last = seen.by_ref().find(|stamp| stamp.as_ref().is_ok_and(|stamp| stamp.version == Version(20)));
            has_seen.send(last.is_some()).unwrap();
            seen.next().is_none()
        });
        for turn in 0..20u64 {
            // Longer than the follower's call timeout.
            std::thread::sleep(std::time::Duration::from_millis(if turn == 3 { 900 } else { 1 }));
            segment.put(0, &turn.to_le_bytes()).unwrap();
        }
        assert!(last_seen.recv().unwrap());
        segment.clone().release().unwrap();
        assert!(follower.join().unwrap());
    });
    let tasks = client.aio().unwrap();
    let later = block_on(tasks.segment("later").allocate(Spec::new(8))).unwrap();
    let mut versions = later.watch();
    assert_eq!(block_on(versions.next()).unwrap().unwrap().version, Version(0));
    let put = block_on(later.put(0, &[1; 8])).unwrap();
    assert_eq!(block_on(versions.next()).unwrap().unwrap(), put);
    // A dropped future that was waiting, then a stream of the same watch.
    drop(poll_once(&mut Box::pin(versions.next())));
    let put = block_on(later.put(0, &[2; 8])).unwrap();
    let next = std::future::poll_fn(|context| Pin::new(&mut versions).poll_next(context));
    assert_eq!(block_on(next).unwrap().unwrap(), put);
    block_on(later.release()).unwrap();
    assert!(block_on(versions.next()).is_none() && block_on(versions.next()).is_none());
}

#[test]
fn watch_of_a_row_reports_its_own_versions_only() {
    // If this broke, a follower of one order would wake for each of the others, or miss its own.
    let node = TestNode::start();
    for client in [node.client(), node.local_read_client()] {
        let table: Table = client.table("rows").open_or_allocate(Spec::new(4).row_len(8)).unwrap();
        let before = table.row(2).get().unwrap().stamp;
        let tasks = client.aio().unwrap();
        let of_tasks = block_on(tasks.table::<[u8]>("rows").open()).unwrap();
        let (mut watch, mut stream) = (table.row(2).watch(), of_tasks.row(2).watch());
        assert_eq!((watch.next().unwrap().unwrap(), block_on(stream.next()).unwrap().unwrap()), (before, before));
        table.row(1).put(b"other").unwrap();
        assert_eq!(watch.next_within(std::time::Duration::from_millis(20)).unwrap(), None);
        assert!(poll_once(&mut Box::pin(stream.next())).is_pending());
        for turn in 0..3u8 {
            let put = table.row(2).put(&[turn]).unwrap();
            assert_eq!((watch.next().unwrap().unwrap(), block_on(stream.next()).unwrap().unwrap()), (put, put));
        }
        let outside = table.row(4).watch().next().unwrap().unwrap_err();
        assert_eq!(outside.kind(), ErrorKind::OutOfRange);
    }
    let table: Table = node.client().table("rows").open().unwrap();
    let mut watch = table.row(2).watch();
    watch.next().unwrap().unwrap();
    table.segment().release().unwrap();
    assert!(watch.next().is_none());
}

#[test]
fn watch_of_a_table_reports_each_change_or_that_some_were_missed() {
    // If this broke, a cache in front of a table would keep an old row for ever.
    let node = TestNode::start();
    let client = node.client();
    let table: Table = client.table("rows").allocate(Spec::new(2000).row_len(8)).unwrap();
    let of_tasks = block_on(async { client.aio().unwrap().table::<[u8]>("rows").open().await }).unwrap();
    let (mut watch, mut stream) = (table.watch(), of_tasks.watch());
    let mut next = || (watch.next().unwrap().unwrap(), block_on(stream.next()).unwrap().unwrap());
    assert_eq!(next(), (RowEvent::Missed, RowEvent::Missed));
    let held = table.row(9).lock().unwrap();
    table.row(7).put(b"a").unwrap();
    table.row(3).word(0).fetch_add(1).unwrap();
    table.row(7).put(b"b").unwrap();
    held.put(b"c").unwrap();
    for row in [7, 3, 7, 9] {
        assert_eq!(next(), (RowEvent::Changed { row }, RowEvent::Changed { row }));
    }
    // Two changes more than the home remembers.
    for row in 0..ROW_CHANGES_MAX as u64 + 2 {
        table.row(if row == 9 { 8 } else { row }).put(b"d").unwrap();
    }
    assert_eq!(next(), (RowEvent::Missed, RowEvent::Missed));
    table.row(1).put(b"e").unwrap();
    assert_eq!(next(), (RowEvent::Changed { row: 1 }, RowEvent::Changed { row: 1 }));
    let plain = client.segment("plain").allocate(8).unwrap();
    assert_eq!(Table::<[u8]>::try_from(plain).unwrap_err().kind(), ErrorKind::WrongShape);
    held.unlock().unwrap();
    table.segment().release().unwrap();
    assert!(watch.next().is_none() && block_on(stream.next()).is_none());
}
