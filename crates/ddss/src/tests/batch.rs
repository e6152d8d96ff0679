//! Tests of `api/batches/batch.rs`.

use crate::testing::TestNode;
use crate::*;
use crate::{ErrorKind, Spec};

#[test]
fn batch_larger_than_ring_returns_each_reply() {
    // If this broke, a batch would mix up replies, hang when the ring is full, or leak arena memory.
    let node = TestNode::start();
    let client = node.client();
    let segments: Vec<_> =
        (0..4).map(|index| client.segment(&format!("s{index}")).allocate(Spec::new(100_000)).unwrap()).collect();
    for round in 0..3u8 {
        let mut batch = client.batch();
        for index in 0..300usize {
            let bytes = vec![index as u8 ^ round; if index % 3 == 0 { 8 } else { 300 }];
            batch.put(&segments[index % 4], index as u64 * 300, &bytes).unwrap();
        }
        assert!(batch.run().unwrap().into_iter().all(|reply| matches!(reply, Ok(BatchReply::Put(_)))));
        for index in 0..300usize {
            batch.get(&segments[index % 4], index as u64 * 300..index as u64 * 300 + 8).unwrap();
        }
        for (index, reply) in batch.run().unwrap().into_iter().enumerate() {
            assert_eq!(reply.unwrap().bytes(), [index as u8 ^ round; 8]);
        }
    }
    // Large calls take turns in the arena.
    let large = client.segment("large").allocate(Spec::new(1 << 20)).unwrap();
    let mut batch = client.batch();
    for _ in 0..12 {
        batch.get(&large, ..).unwrap();
    }
    assert!(batch.run().unwrap().into_iter().all(|reply| reply.unwrap().bytes().len() == 1 << 20));
    // A failed call does not affect the others.
    segments[0].clone().release().unwrap();
    batch.get(&segments[0], 0..8).unwrap().get(&segments[1], 0..8).unwrap();
    let replies = batch.run().unwrap();
    assert!(replies[0].is_err() && replies[1].is_ok());
    assert!(batch.run().unwrap().is_empty());
}

#[test]
fn batch_covers_every_operation_on_bytes() {
    // If this broke, a program would have to make some of its calls one by one, or take one reply for another.
    let node = TestNode::start_with(|config| config.progress_threads = 2);
    let client = node.client();
    let [one, other] = ["one", "other"].map(|name| client.segment(name).allocate(Spec::new(10_000)).unwrap());
    one.put(0, &5u64.to_le_bytes()).unwrap();
    let mut batch = client.batch();
    batch.put_many(&other, &[(0, &[1; 3000]), (5000, &[2; 3000])]).unwrap();
    batch.fetch_add(&one, 0, 2).unwrap().checked_sub(&one, 8, 1).unwrap().fetch_max(&one, 16, 9).unwrap();
    batch.swap(&one, 24, 4).unwrap().compare_swap(&one, 32, 1, 2).unwrap().put_if(&one, Version(1), 40, b"x").unwrap();
    let replies = batch.run().unwrap();
    assert!(matches!(replies[0], Ok(BatchReply::Put(stamp)) if stamp.version == Version(1)));
    let before = |reply: &Result<BatchReply, Error>| match reply {
        Ok(BatchReply::Atomic(result)) => result.before,
        other => panic!("{other:?}"),
    };
    assert_eq!(replies[1..6].iter().map(before).collect::<Vec<_>>(), [5, 0, 0, 0, 0]);
    assert_eq!(replies[6].as_ref().unwrap_err().kind(), ErrorKind::VersionMismatch);
    let version = one.get(0..8).unwrap().version();
    batch.get_many(&other, &[0..2, 4999..5002]).unwrap().put_if(&one, version, 40, b"y").unwrap();
    batch.put_many_if(&other, Version(0), &[(0, b"stale")]).unwrap().get(&one, 0..33).unwrap();
    let replies = batch.run().unwrap();
    let Ok(BatchReply::GotMany(values)) = &replies[0] else { panic!("{:?}", replies[0]) };
    assert_eq!((&values[0][..], &values[1][..]), (&[1, 1][..], &[0, 2, 2][..]));
    assert_eq!(replies[1].as_ref().unwrap().stamp().version.0, version.0 + 1);
    assert_eq!(replies[2].as_ref().unwrap_err().kind(), ErrorKind::VersionMismatch);
    let words = one.get(0..40).unwrap();
    let word = |index: usize| u64::from_le_bytes(std::array::from_fn(|byte| words[8 * index + byte]));
    assert_eq!([0, 1, 2, 3, 4].map(word), [7, 0, 9, 4, 0]);
    // A call that is out of range is refused before the batch runs, and the others stay.
    assert!(batch.fetch_add(&one, 9_993, 1).is_err() && batch.put_many(&one, &[(9_999, b"ab")]).is_err());
    assert!(batch.run().unwrap().is_empty());
}
