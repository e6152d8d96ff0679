//! Tests of `api/large_values/transfers.rs`.

use crate::testing::{TestNode, block_on};
use crate::{ErrorKind, GetOptions, PutOptions, Segment, Spec};

const BYTES: usize = 5 * Segment::TRANSFER_BYTES_MAX / 2;

fn pattern(seed: u8) -> Vec<u8> {
    (0..BYTES).map(|at| (at / 1000) as u8 ^ seed).collect()
}

fn large_node() -> TestNode {
    TestNode::start_with(|config| config.pool_bytes = 64 << 20)
}

#[test]
fn large_value_is_one_version_for_both_clients() {
    // If this broke, a large put would be visible in parts, or a large get would return two versions.
    let node = large_node();
    let segment = node.client().segment("large").allocate(Spec::new(BYTES as u64 + 8)).unwrap();
    let first = segment.put(4, &pattern(1)).unwrap();
    assert_eq!(first.version.0, 1);
    for client in [node.client(), node.local_read_client()] {
        let value = client.segment("large").open().unwrap().get(4..4 + BYTES as u64).unwrap();
        assert!(value[..] == pattern(1)[..] && value.stamp == first);
    }
    let client = node.client().aio().unwrap();
    block_on(async {
        let segment = client.segment("large").open().await.unwrap();
        let stale = segment.put_if(crate::Version(0), 0, &pattern(2)).await.unwrap_err();
        assert_eq!(stale.kind(), ErrorKind::VersionMismatch);
        let mut calls = 0;
        let (value, mut count) = (pattern(2), |_, _| calls += 1);
        let options = PutOptions::new().progress(&mut count);
        let second = segment.put_with(&[(8, &value)], options).await.unwrap();
        assert_eq!((second.version.0, calls), (2, 3));
        let value = segment.get_with(8.., GetOptions::new().at_version(second.version)).await.unwrap();
        assert!(value[..] == pattern(2)[..]);
        let gone = segment.get_with(8.., GetOptions::new().at_version(first.version)).await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::VersionGone);
        assert!(segment.put(9, &pattern(3)).await.unwrap_err().to_string().contains("2621448"));
    });
    let guard = segment.lock().unwrap();
    assert_eq!(guard.put(0, &pattern(4)).unwrap().version.0, 3);
    guard.unlock().unwrap();
    assert!(segment.get(0..BYTES as u64).unwrap()[..] == pattern(4)[..]);
}

#[test]
fn reader_of_large_values_never_sees_two_versions() {
    // If this broke, a reader would take the beginning of one put and the end of another for a value.
    let node = large_node();
    let segment = node.client().segment("large").allocate(Spec::new(BYTES as u64)).unwrap();
    segment.put(0, &pattern(0)).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = [node.client(), node.local_read_client()]
            .into_iter()
            .map(|client| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let (segment, mut seen) = (client.segment("large").open().unwrap(), 0);
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        match segment.get(..) {
                            Ok(value) => {
                                let seed = value[0];
                                assert_eq!(u64::from(seed), (value.version().0 - 1) % 200);
                                assert!(value[..] == pattern(seed)[..], "version {}", value.version());
                                seen += 1;
                            }
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Contended),
                        }
                    }
                    seen
                })
            })
            .collect();
        for seed in 1..40 {
            segment.put(0, &pattern(seed)).unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
}

#[test]
fn refused_large_put_frees_its_memory() {
    // If this broke, a few refused puts would leave no memory for any other large put.
    let node = large_node();
    let client = node.client();
    let segment = client.segment("large").allocate(Spec::new(BYTES as u64)).unwrap();
    for _ in 0..40 {
        let refused = segment.put_if(crate::Version(9), 0, &pattern(1)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::VersionMismatch);
    }
    segment.put(0, &pattern(2)).unwrap();
    let whole = client.segment("too large").allocate(Spec::new(20 << 20)).unwrap();
    let refused = whole.put(0, &vec![1; 17 << 20]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LimitReached, "a quarter of the pool for one client: {refused}");
    whole.put(0, &vec![1; 16 << 20]).unwrap();
}
