//! Tests of `api/metadata.rs`.

use crate::Spec;
use crate::testing::{TestNode, block_on};
use crate::*;

#[test]
fn allocate_for_is_all_or_nothing() {
    // If this broke, a service could not create segments for its users, or would leave unusable segments behind.
    let node = TestNode::start();
    let client = node.local_read_client();
    let own = client.allocate("mine", Spec::new(64)).unwrap().stat().unwrap().info.permissions.owner;
    let other = Principal { uid: own.uid + 12345, gid: own.gid + 12345 };
    let made = client.allocate_for("theirs", Spec::new(64).mode(0o640), other);
    if own.uid == 0 {
        let made = made.unwrap();
        made.put(0, b"for you").unwrap();
        assert_eq!(&*made.get(0..7).unwrap(), b"for you");
        let permissions = made.stat().unwrap().info.permissions;
        assert_eq!((permissions.owner, permissions.mode), (other, 0o640));
        let future = block_on(async {
            let tasks = client.aio().unwrap();
            let made = tasks.allocate_for("theirs-too", Spec::new(64), other).await.unwrap();
            made.stat().await.unwrap().info.permissions
        });
        assert_eq!((future.owner, future.mode), (other, Spec::new(64).mode));
    } else {
        assert_eq!(made.unwrap_err().kind(), ErrorKind::PermissionDenied);
        let free = client.allocate("theirs", Spec::new(64));
        assert!(free.is_ok(), "it was left behind: {free:?}");
    }
}

#[test]
fn set_owner_requires_permission() {
    // If this broke, an owner could lose a segment to another user, or an administrator could not transfer it.
    let node = TestNode::start();
    let client = node.local_read_client();
    let segment = client.allocate("mine", Spec::new(64)).unwrap();
    let put = segment.put(0, b"still here").unwrap();
    let own = segment.stat().unwrap().info.permissions.owner;
    segment.set_owner(own).unwrap();
    let other = Principal { uid: own.uid + 12345, gid: own.gid + 12345 };
    let given = segment.set_owner(other);
    if own.uid == 0 {
        given.unwrap();
        let info = segment.stat().unwrap().info;
        assert_eq!((info.permissions.owner, info.permissions.mode), (other, 0o600));
        block_on(async {
            let same = client.aio().unwrap().open("mine").await.unwrap();
            same.set_owner(own).await.unwrap();
            same.set_mode(0o644).await.unwrap();
        });
    } else {
        assert_eq!(given.unwrap_err().kind(), ErrorKind::PermissionDenied);
        segment.set_mode(0o644).unwrap();
    }
    let permissions = segment.stat().unwrap().info.permissions;
    assert_eq!((permissions.owner, permissions.mode), (own, 0o644));
    // The bytes have moved and are unchanged.
    let value = client.open("mine").unwrap().get(0..10).unwrap();
    assert_eq!((&value[..], value.stamp()), (&b"still here"[..], put));
}
