//! Tests of `api/segment.rs`.

use crate::testing::{TestNode, block_on};
use crate::{ErrorKind, Spec, Version};

#[test]
fn async_vectored_calls_are_atomic() {
    // If this broke, a task would mix the bytes of two versions, or write some ranges without the others.
    let node = TestNode::start();
    let client = node.client().aio().unwrap();
    block_on(async {
        let table = client.allocate("table", Spec { history: 2, ..Spec::new(9000) }).await.unwrap();
        let first = table.put_many(&[(0, b"head"), (8990, b"tail")]).await.unwrap();
        let second = table.put_many_if(first.version, &[(0, b"HEAD")]).await.unwrap();
        let stale = table.put_many_if(first.version, &[(0, b"late")]).await.unwrap_err();
        assert_eq!(stale.kind(), ErrorKind::VersionMismatch);
        let ranges = [0..4, 8990..8994];
        for (values, head, stamp) in [
            (table.get_many(&ranges).await.unwrap(), b"HEAD", second),
            (table.get_many_at(first.version, &ranges).await.unwrap(), b"head", first),
        ] {
            assert_eq!((&values[0][..], &values[1][..]), (&head[..], &b"tail"[..]));
            assert!(values.iter().all(|value| value.stamp() == stamp));
        }
        let (mut head, mut tail) = ([0; 4], [0; 4]);
        let stamp = table.get_many_into(&mut [(0, &mut head), (8990, &mut tail)]).await.unwrap();
        assert_eq!((stamp, &head, &tail), (second, b"HEAD", b"tail"));
        let mut two = [0; 2];
        assert_eq!(table.get_into(1, &mut two).await.unwrap(), second);
        assert_eq!(&two, b"EA");
        assert_eq!(&table.get_newer_than(Version(1), 0..4).await.unwrap()[..], b"HEAD");
    });
}
