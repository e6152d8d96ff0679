//! Tests of `api/metadata.rs`.

use crate::Spec;
use crate::testing::{TestNode, block_on};
use crate::*;
use std::time::Duration;

#[test]
fn allocation_for_another_user_is_all_or_nothing() {
    // If this broke, a service could not create segments for its users, or would leave unusable segments behind.
    let node = TestNode::start();
    let client = node.local_read_client();
    let own = client.segment("mine").allocate(Spec::new(64)).unwrap().stat().unwrap().permissions;
    let other = Permissions { uid: own.uid + 12345, gid: own.gid + 12345, mode: Mode(0o640) };
    let made = client.segment("theirs").allocate(Spec::new(64).mode(Mode(0o640)).owner(other.uid, other.gid));
    if own.uid == 0 {
        let made = made.unwrap();
        made.put(0, b"for you").unwrap();
        assert_eq!(&*made.get(0..7).unwrap(), b"for you");
        assert_eq!(made.stat().unwrap().permissions, other);
        let future = block_on(async {
            let tasks = client.aio().unwrap();
            let made = tasks.segment("theirs-too").allocate(Spec::new(64).owner(other.uid, other.gid)).await.unwrap();
            made.stat().await.unwrap().permissions
        });
        assert_eq!(future, Permissions { mode: Mode::default(), ..other });
    } else {
        assert_eq!(made.unwrap_err().kind(), ErrorKind::PermissionDenied);
        let free = client.segment("theirs").allocate(Spec::new(64));
        assert!(free.is_ok(), "it was left behind: {free:?}");
    }
}

#[test]
fn change_of_owner_requires_permission() {
    // If this broke, an owner could lose a segment to another user, or an administrator could not transfer it.
    let node = TestNode::start();
    let client = node.local_read_client();
    let segment = client.segment("mine").allocate(Spec::new(64)).unwrap();
    let put = segment.put(0, b"still here").unwrap();
    let own = segment.stat().unwrap().permissions;
    segment.set_permissions(own).unwrap();
    let other = Permissions { uid: own.uid + 12345, gid: own.gid + 12345, mode: Mode(0o640) };
    let given = segment.set_permissions(other);
    if own.uid == 0 {
        given.unwrap();
        assert_eq!(segment.stat().unwrap().permissions, other);
        block_on(async {
            let same = client.aio().unwrap().segment("mine").open().await.unwrap();
            same.set_permissions(Permissions { mode: Mode(0o644), ..own }).await.unwrap();
        });
    } else {
        assert_eq!(given.unwrap_err().kind(), ErrorKind::PermissionDenied);
        segment.set_permissions(Permissions { mode: Mode(0o644), ..own }).unwrap();
    }
    assert_eq!(segment.stat().unwrap().permissions, Permissions { mode: Mode(0o644), ..own });
    // The bytes have moved and are unchanged.
    let value = client.segment("mine").open().unwrap().get(0..10).unwrap();
    assert_eq!((&value[..], value.stamp), (&b"still here"[..], put));
}

#[test]
fn allocation_for_another_user_that_did_nothing_has_left_no_segment() {
    // If this broke, a program would allocate again after a timeout, and take its own segment for one of another process.
    let node = TestNode::start();
    let (client, other) = (node.client(), node.client());
    let own = client.segment("mine").allocate(Spec::new(64)).unwrap().stat().unwrap().permissions;
    for round in 0..300 {
        let name = format!("theirs/{round}");
        let hasty = client.with_timeout(Duration::from_micros(10 * round));
        let Err(error) = hasty.segment(&name).allocate(Spec::new(64).owner(own.uid + 1, own.gid + 1)) else { continue };
        let is_there = other.segment(&name).open().is_ok();
        assert!(!is_there || error.is_indeterminate(), "round {round}: {error}");
    }
}
