//! Tests of `api/segment.rs`.

use crate::testing::{TestNode, block_on};
use crate::{ErrorKind, GetOptions, PutOptions, Spec, Version};

#[test]
fn async_vectored_calls_are_atomic() {
    // If this broke, a task would mix the bytes of two versions, or write some ranges without the others.
    let node = TestNode::start();
    let client = node.client().aio().unwrap();
    block_on(async {
        let table = client.segment("table").allocate(Spec::new(9000).history(2)).await.unwrap();
        let first = table.put_many(&[(0, b"head"), (8990, b"tail")]).await.unwrap();
        let second = table.put_with(&[(0, b"HEAD")], PutOptions::new().if_version(first.version)).await.unwrap();
        let stale = table.put_with(&[(0, b"late")], PutOptions::new().if_version(first.version)).await.unwrap_err();
        assert_eq!(stale.kind(), ErrorKind::VersionMismatch);
        let ranges = [0..4, 8990..8994];
        let values = table.get_many(&ranges).await.unwrap();
        assert_eq!((&values[0][..], &values[1][..]), (&b"HEAD"[..], &b"tail"[..]));
        assert!(values.iter().all(|value| value.stamp == second));
        let before = table.get_with(0..4, GetOptions::new().at_version(first.version)).await.unwrap();
        assert_eq!((&before[..], before.stamp), (&b"head"[..], first));
        let (mut head, mut tail) = ([0; 4], [0; 4]);
        let stamp = table.get_many_into(&mut [(0, &mut head), (8990, &mut tail)]).await.unwrap();
        assert_eq!((stamp, &head, &tail), (second, b"HEAD", b"tail"));
        let mut two = [0; 2];
        assert_eq!(table.get_into(1, &mut two).await.unwrap(), second);
        assert_eq!(&two, b"EA");
        assert_eq!(&table.get_with(0..4, GetOptions::new().newer_than(Version(1))).await.unwrap()[..], b"HEAD");
    });
}

#[test]
fn timeout_of_a_client_is_that_of_what_it_opens() {
    // If this broke, the hasty part of a service would wait as long as the others.
    const SOON: std::time::Duration = std::time::Duration::from_secs(30);
    let node = TestNode::start_with(|config| config.progress_threads = 2);
    let client = node.client();
    let hasty = client.with_timeout(SOON);
    for name in ["a", "b", "c"] {
        client.segment(name).allocate(64).unwrap();
        let (patient, opened) = (client.segment(name).open().unwrap(), hasty.segment(name).open().unwrap());
        assert_eq!((patient.time().remaining(), opened.time().remaining()), (client.timeout, SOON));
        let of_tasks = block_on(async { client.aio()?.with_timeout(SOON).segment(name).open().await }).unwrap();
        assert_eq!(of_tasks.time().remaining(), SOON);
    }
    let endless = client.with_timeout(std::time::Duration::from_secs(601));
    assert_eq!(endless.ping().unwrap_err().kind(), ErrorKind::BadArgument);
}

#[test]
fn call_that_never_fits_is_refused_and_stops_no_other_call() {
    // If this broke, one large call of a client with a small arena would stop all its calls until its deadline.
    let node = TestNode::start();
    let client = crate::Client::connect_with(node.options().local_reads(false).arena_len(1 << 16)).unwrap();
    let segment = client.segment("large").allocate(100_000).unwrap();
    let never_fits = |error: crate::Error| {
        assert!(error.kind() == ErrorKind::BadArgument && error.to_string().contains("arena_len"), "{error}");
        assert!(!error.is_indeterminate() && !error.is_retryable(), "{error}");
    };
    never_fits(segment.get(0..40_000).unwrap_err());
    let mut batch = crate::Batch::new();
    let (large, small) = (batch.get(&segment, 0..40_000).unwrap(), batch.get(&segment, 0..100).unwrap());
    let mut replies = client.run(batch).unwrap();
    never_fits(replies.take(large).unwrap_err());
    assert_eq!(replies.take(small).unwrap().value, [0; 100]);
    block_on(async {
        let tasks = client.aio().unwrap().segment("large").open().await.unwrap();
        never_fits(tasks.get(0..40_000).await.unwrap_err());
        tasks.put(0, &[7; 64]).await.unwrap();
    });
}
