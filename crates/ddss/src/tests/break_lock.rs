//! Tests of `api/break_lock.rs`.

use crate::testing::TestNode;
use crate::{ErrorKind, LockOptions, Spec};
use std::time::Duration;

#[test]
fn break_lock_grants_next_request_and_refuses_old_holder() {
    // If this broke, a service that hangs with a lock would stop all others until its lease ends, or continue
    // writing.
    let node = TestNode::start();
    let (mine, theirs) = (node.client(), node.client());
    let segment = mine.segment("door").allocate(Spec::new(8)).unwrap();
    assert_eq!(segment.stat().unwrap().lock.holder, None);
    let lease = Duration::from_secs(500);
    let held = segment.lock_with(LockOptions::new().lease(lease)).unwrap();
    let holder = segment.stat().unwrap().lock.holder.unwrap();
    assert_eq!((holder.node, holder.client.is_some()), (mine.node(), true));
    assert!(Duration::from_micros(holder.lease_left_us.into()) > lease / 2);
    let other = theirs.segment("door").open().unwrap();
    std::thread::scope(|scope| {
        let next = scope.spawn(|| other.lock().unwrap().token());
        while segment.stat().unwrap().lock.waiting == 0 {
            std::thread::yield_now();
        }
        assert_eq!(segment.break_lock().unwrap(), 1);
        assert!(next.join().unwrap() > held.token());
    });
    assert_eq!(held.put(0, b"late").unwrap_err().kind(), ErrorKind::LockLost);
    while segment.stat().unwrap().lock.holder.is_some() {
        std::thread::yield_now();
    }
    assert_eq!(segment.break_lock().unwrap(), 0, "the lock is free");
    // Shared holders are counted.
    let shared = [&segment, &other].map(|segment| segment.lock_with(LockOptions::new().shared()).unwrap());
    assert_eq!(segment.break_lock().unwrap(), 2);
    drop(shared);
}
