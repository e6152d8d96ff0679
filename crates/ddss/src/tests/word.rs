//! Tests of `api/word.rs`.

use crate::testing::TestNode;
use crate::*;
use crate::{ErrorKind, GetOptions, LockOptions, Spec};
use std::time::Duration;

#[test]
fn atomics_are_atomic_and_increment_version() {
    // If this broke, two services could both believe that they are the leader.
    let node = TestNode::start();
    let client = node.client();
    let words = client.segment("words").allocate(Spec::new(32)).unwrap();
    assert_eq!(words.word(8).fetch_add(5).unwrap().before, 0);
    assert_eq!(words.word(8).swap(9).unwrap().before, 5);
    let lost = words.word(8).compare_and_swap(1, 2).unwrap();
    assert_eq!((lost.before, lost.stamp.version.0), (9, 2));
    let won = words.word(8).compare_and_swap(9, u64::MAX).unwrap();
    assert_eq!((won.before, won.stamp.version.0), (9, 3));
    assert_eq!(words.word(8).fetch_add(2).unwrap().before, u64::MAX);
    assert_eq!(&words.get(8..16).unwrap()[..], &1u64.to_le_bytes());
    assert_eq!(words.word(4).fetch_add(1).unwrap_err().kind(), ErrorKind::BadArgument);
    assert_eq!(words.word(4).get().unwrap_err().kind(), ErrorKind::BadArgument);
    assert_eq!(words.word(32).fetch_add(1).unwrap_err().kind(), ErrorKind::OutOfRange);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..250 {
                    words.word(0).fetch_add(1).unwrap();
                }
            });
        }
    });
    assert_eq!(&words.get(0..8).unwrap()[..], &1000u64.to_le_bytes());
}

#[test]
fn put_if_does_nothing_when_version_differs() {
    // If this broke, a checkpoint could overwrite a newer one.
    let node = TestNode::start();
    let segment = node.client().segment("versions").allocate(Spec::new(64)).unwrap();
    let first = segment.put_if(Version(0), 0, b"one").unwrap();
    let stale = segment.put_if(Version(0), 0, b"two").unwrap_err();
    assert_eq!((stale.kind(), stale.is_indeterminate()), (ErrorKind::VersionMismatch, false));
    assert_eq!(segment.put_if(first.version, 0, b"three").unwrap().version, Version(2));
    assert_eq!(&segment.get(0..5).unwrap()[..], b"three");
    let strict = Spec::new(8).model(Model::Version);
    let versioned = node.client().segment("model-version").allocate(strict).unwrap();
    assert_eq!(versioned.put(0, &[1]).unwrap_err().kind(), ErrorKind::VersionMismatch);
    assert_eq!(versioned.put_if(Version(0), 0, &[1]).unwrap().version, Version(1));
}

#[test]
fn wait_newer_than_returns_when_version_comes() {
    // If this broke, a follower would poll, or sleep forever.
    let node = TestNode::start();
    let client = node.client();
    let segment = client.segment("watched").allocate(Spec::new(8)).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| segment.get_with(.., GetOptions::new().newer_than(Version(0))).unwrap());
        std::thread::sleep(Duration::from_millis(20));
        segment.put(0, &7u64.to_le_bytes()).unwrap();
        assert_eq!(&waits.join().unwrap()[..], &7u64.to_le_bytes());
    });
    let impatient = node.short_timeout_client();
    let waited = impatient.segment("watched").open().unwrap().wait_newer_than(Version(1)).unwrap_err();
    assert_eq!(waited.kind(), ErrorKind::TimedOut);
}

#[test]
fn lock_excludes_expires_with_lease_and_fences_late_puts() {
    // If this broke, two holders could write at the same time, or a dead holder would block every client.
    let node = TestNode::start();
    let (mine, theirs) = (node.client(), node.short_timeout_client());
    let segment = mine.segment("locked").allocate(Spec::new(64)).unwrap();
    let other = theirs.segment("locked").open().unwrap();
    let held = segment.lock().unwrap();
    held.put(0, b"mine").unwrap();
    assert_eq!(&held.get(0..4).unwrap()[..], b"mine");
    let no_wait = other.lock_with(LockOptions::new().timeout(Duration::ZERO)).unwrap_err();
    assert_eq!(no_wait.kind(), ErrorKind::Locked);
    assert_eq!(other.lock().unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(other.put(0, b"they").unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(other.get(0..4).unwrap_err().kind(), ErrorKind::TimedOut, "strict gets exclude writers");
    held.unlock().unwrap();
    assert_eq!(&other.get(0..4).unwrap()[..], b"mine");
    let short = segment.lock_with(LockOptions::new().lease(Duration::from_millis(5))).unwrap();
    let next = loop {
        if let Ok(next) = other.lock() {
            break next;
        }
    };
    assert!(next.token() > short.token());
    assert_eq!(short.put(0, b"late").unwrap_err().kind(), ErrorKind::LockLost);
    next.put(0, b"next").unwrap();
    drop(theirs);
    drop((next, other));
    // A second lock of one client waits in the lock queue like any other and is granted when the first one is
    // released.
    let again = node.short_timeout_client().segment("locked").open().unwrap();
    let first = again.lock().unwrap();
    let at_once = again.lock_with(LockOptions::new().timeout(Duration::ZERO)).unwrap_err();
    assert_eq!(at_once.kind(), ErrorKind::Locked);
    let second = again.lock().unwrap_err();
    assert_eq!((second.kind(), second.is_indeterminate()), (ErrorKind::TimedOut, false));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            loop {
                if let Ok(held) = again.lock() {
                    break held.token();
                }
            }
        });
        std::thread::sleep(Duration::from_millis(5));
        let token = first.token();
        first.unlock().unwrap();
        assert!(waits.join().unwrap() > token);
    });
    let both = [0, 1].map(|_| segment.lock_with(LockOptions::new().shared()).unwrap());
    assert_ne!(both[0].token(), both[1].token());
    for refused in [both[0].put(0, b"no").map(drop), both[1].word(0).fetch_add(1).map(drop)] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::SharedLock);
    }
    let [shared, _] = both;
    segment.break_lock().unwrap();
    assert_eq!(shared.put(0, b"no").unwrap_err().kind(), ErrorKind::LockLost);
}
