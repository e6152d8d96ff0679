//! Tests of `api/watch.rs`.

use crate::testing::{TestNode, block_on, poll_once};
use crate::{Spec, Version};
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
