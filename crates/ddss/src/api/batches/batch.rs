//! Many calls over any segments in one submission; as many as fit are in flight at the same time.

use crate::api::batches::batch_call::{BatchCall, BatchReply};
use crate::async_client::{AsyncBatch, AsyncClient, AsyncSegment};
use crate::calls::calls;
use crate::client::Client;
use crate::error::Error;
use crate::segment::Segment;
use ddss_core::{AtomicOp, Version};
use std::ops::{Range, RangeBounds};

/// A set of calls that the client submits together.
///
/// Each is a call of its own: the calls end in any order, and a failure does not affect the others. For several ranges
/// of one segment that belong together, use [`put_many`](Self::put_many).
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// # let _left = client.allocate("left", ddss::Spec::new(64))?;
/// # let _right = client.allocate("right", ddss::Spec::new(64))?;
/// let (left, right) = (client.open("left")?, client.open("right")?);
/// let mut batch = client.batch();
/// batch.get(&left, 0..8)?.get(&right, ..)?.put(&left, 8, b"seen")?.fetch_add(&right, 0, 1)?;
/// for answer in batch.run()? {
///     println!("{}", answer?.stamp().version);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a batch does nothing until `run`"]
pub struct Batch {
    client: Client,
    calls: Vec<(Segment, BatchCall)>,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Batch").field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}

calls! {
    impl Client, AsyncClient {
        /// Creates an empty batch.
        pub fn batch(&self) -> Batch | AsyncBatch {
            self.new_batch()
        }
    }
}

impl Client {
    fn new_batch(&self) -> Batch {
        Batch { client: self.clone(), calls: Vec::new() }
    }
}

calls! {
    impl Batch, AsyncBatch {
        /// Adds a get.
        pub fn get(&mut self, segment: &Segment, range: impl RangeBounds<u64>)
            | (&mut self, segment: &AsyncSegment, range: impl RangeBounds<u64>) -> Result<&mut Self, Error>
        {
            let (offset, length) = segment.location().place_in_transfer(range)?;
            self.add(segment, BatchCall::Get { offset, length })
        }

        /// Adds a get of several ranges, all of one version: [`Segment::get_many`].
        pub fn get_many(&mut self, segment: &Segment, ranges: &[Range<u64>])
            | (&mut self, segment: &AsyncSegment, ranges: &[Range<u64>]) -> Result<&mut Self, Error>
        {
            let ends = ranges.iter().map(|range| (range.start, u128::from(range.end)));
            let ranges = segment.location().check_many("get", ends)?;
            self.add(segment, BatchCall::GetMany { table: ranges.encode().to_vec(), ranges: Box::new(ranges) })
        }

        /// Adds a put.
        pub fn put(&mut self, segment: &Segment, offset: u64, bytes: &[u8])
            | (&mut self, segment: &AsyncSegment, offset: u64, bytes: &[u8]) -> Result<&mut Self, Error>
        {
            segment.location().check("put", offset, u128::from(offset) + bytes.len() as u128)?;
            self.add(segment, BatchCall::Put { offset, bytes: bytes.to_vec(), version: None })
        }

        /// Adds a put that is made if the segment still has that version: [`Segment::put_if`].
        pub fn put_if(&mut self, segment: &Segment, version: Version, offset: u64, bytes: &[u8])
            | (&mut self, segment: &AsyncSegment, version: Version, offset: u64, bytes: &[u8])
            -> Result<&mut Self, Error>
        {
            segment.location().check("put", offset, u128::from(offset) + bytes.len() as u128)?;
            self.add(segment, BatchCall::Put { offset, bytes: bytes.to_vec(), version: Some(version) })
        }

        /// Adds a put of several ranges as one version: [`Segment::put_many`].
        pub fn put_many(&mut self, segment: &Segment, parts: &[(u64, &[u8])])
            | (&mut self, segment: &AsyncSegment, parts: &[(u64, &[u8])]) -> Result<&mut Self, Error>
        {
            let call = BatchCall::put_many(segment.location(), parts, None)?;
            self.add(segment, call)
        }

        /// Adds a put of several ranges that is made if the segment still has that version: [`Segment::put_many_if`].
        pub fn put_many_if(&mut self, segment: &Segment, version: Version, parts: &[(u64, &[u8])])
            | (&mut self, segment: &AsyncSegment, version: Version, parts: &[(u64, &[u8])])
            -> Result<&mut Self, Error>
        {
            let call = BatchCall::put_many(segment.location(), parts, Some(version))?;
            self.add(segment, call)
        }

        /// Adds an addition to a word: [`Segment::fetch_add`].
        pub fn fetch_add(&mut self, segment: &Segment, offset: u64, add: u64)
            | (&mut self, segment: &AsyncSegment, offset: u64, add: u64) -> Result<&mut Self, Error>
        {
            let call = BatchCall::atomic(segment.location(), "add to", offset, AtomicOp::Add(add))?;
            self.add(segment, call)
        }

        /// Adds a replacement of a word: [`Segment::swap`].
        pub fn swap(&mut self, segment: &Segment, offset: u64, new: u64)
            | (&mut self, segment: &AsyncSegment, offset: u64, new: u64) -> Result<&mut Self, Error>
        {
            let call = BatchCall::atomic(segment.location(), "swap a word of", offset, AtomicOp::Swap(new))?;
            self.add(segment, call)
        }

        /// Adds a conditional replacement of a word: [`Segment::compare_swap`].
        pub fn compare_swap(&mut self, segment: &Segment, offset: u64, expected: u64, new: u64)
            | (&mut self, segment: &AsyncSegment, offset: u64, expected: u64, new: u64) -> Result<&mut Self, Error>
        {
            let change = AtomicOp::CompareSwap { expected, new };
            let call = BatchCall::atomic(segment.location(), "compare and swap a word of", offset, change)?;
            self.add(segment, call)
        }

        /// Adds the raising of a word: [`Segment::fetch_max`].
        pub fn fetch_max(&mut self, segment: &Segment, offset: u64, value: u64)
            | (&mut self, segment: &AsyncSegment, offset: u64, value: u64) -> Result<&mut Self, Error>
        {
            let call = BatchCall::atomic(segment.location(), "raise a word of", offset, AtomicOp::Max(value))?;
            self.add(segment, call)
        }

        /// Adds a subtraction from a word: [`Segment::checked_sub`].
        pub fn checked_sub(&mut self, segment: &Segment, offset: u64, sub: u64)
            | (&mut self, segment: &AsyncSegment, offset: u64, sub: u64) -> Result<&mut Self, Error>
        {
            let call = BatchCall::atomic(segment.location(), "subtract from", offset, AtomicOp::CheckedSub(sub))?;
            self.add(segment, call)
        }

        fn add(&mut self, segment: &Segment, call: BatchCall) | (&mut self, segment: &AsyncSegment, call: BatchCall)
            -> Result<&mut Self, Error>
        {
            self.calls.push((segment.clone(), call));
            Ok(self)
        }
    }
}

calls! {
    impl Batch, AsyncBatch {
        /// Runs all calls and waits for the last one. Replies are in the order in which the calls were added.
        ///
        /// An error of the whole batch means that there is no daemon and that no call had an effect.
        pub async fn run(&mut self) -> Result<Vec<Result<BatchReply, Error>>, Error> {
            let calls = std::mem::take(&mut self.calls);
            let mut replies: Vec<Option<Result<BatchReply, Error>>> =
                calls.iter().map(|(segment, call)| call.read_locally(segment.location()).map(Ok)).collect();
            let remote: Vec<usize> = (0..calls.len()).filter(|&index| replies[index].is_none()).collect();
            if remote.is_empty() {
                if let Some((segment, _)) = calls.first() {
                    let read = |reply: &Result<BatchReply, Error>| reply.as_ref().map_or(0, |reply| reply.bytes().len());
                    wait!(segment.spend_budget(calls.len(), replies.iter().flatten().map(read).sum()));
                }
                return Ok(replies.into_iter().flatten().collect());
            }
            let plan = |&index: &usize| {
                let (segment, call) = &calls[index];
                (segment.client().shard(), call.plan(segment.location()))
            };
            let plans = remote.iter().map(plan).collect();
            let (results, error) = wait!(self.client.run_group(self.client.time(), plans));
            if let Some(error) = error.filter(|_| replies.iter().all(Option::is_none)) {
                return Err(error);
            }
            // Some calls may have been answered by a local read: their replies stand, whatever happened to others.
            for (index, result) in remote.into_iter().zip(results) {
                replies[index] = Some(result.map(|(completion, bytes)| calls[index].1.reply(&completion, bytes)));
            }
            Ok(replies.into_iter().map(|reply| reply.expect("each call was answered")).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestNode;
    use crate::{Failure, Spec};

    #[test]
    fn batch_larger_than_ring_returns_each_reply() {
        // If this broke, a batch would mix up replies, hang when the ring is full, or leak arena memory.
        let node = TestNode::start();
        let client = node.client();
        let segments: Vec<_> =
            (0..4).map(|index| client.allocate(&format!("s{index}"), Spec::new(100_000)).unwrap()).collect();
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
        let large = client.allocate("large", Spec::new(1 << 20)).unwrap();
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
        let [one, other] = ["one", "other"].map(|name| client.allocate(name, Spec::new(10_000)).unwrap());
        one.put(0, &5u64.to_le_bytes()).unwrap();
        let mut batch = client.batch();
        batch.put_many(&other, &[(0, &[1; 3000]), (5000, &[2; 3000])]).unwrap();
        batch.fetch_add(&one, 0, 2).unwrap().checked_sub(&one, 8, 1).unwrap().fetch_max(&one, 16, 9).unwrap();
        batch
            .swap(&one, 24, 4)
            .unwrap()
            .compare_swap(&one, 32, 1, 2)
            .unwrap()
            .put_if(&one, Version(1), 40, b"x")
            .unwrap();
        let replies = batch.run().unwrap();
        assert!(matches!(replies[0], Ok(BatchReply::Put(stamp)) if stamp.version == Version(1)));
        let before = |reply: &Result<BatchReply, Error>| match reply {
            Ok(BatchReply::Atomic(result)) => result.before,
            other => panic!("{other:?}"),
        };
        assert_eq!(replies[1..6].iter().map(before).collect::<Vec<_>>(), [5, 0, 0, 0, 0]);
        assert_eq!(replies[6].as_ref().unwrap_err().failure(), Some(Failure::VersionMismatch));
        let version = one.get(0..8).unwrap().version();
        batch.get_many(&other, &[0..2, 4999..5002]).unwrap().put_if(&one, version, 40, b"y").unwrap();
        batch.put_many_if(&other, Version(0), &[(0, b"stale")]).unwrap().get(&one, 0..33).unwrap();
        let replies = batch.run().unwrap();
        let Ok(BatchReply::GotMany(values)) = &replies[0] else { panic!("{:?}", replies[0]) };
        assert_eq!((&values[0][..], &values[1][..]), (&[1, 1][..], &[0, 2, 2][..]));
        assert_eq!(replies[1].as_ref().unwrap().stamp().version.0, version.0 + 1);
        assert_eq!(replies[2].as_ref().unwrap_err().failure(), Some(Failure::VersionMismatch));
        let words = one.get(0..40).unwrap();
        let word = |index: usize| u64::from_le_bytes(std::array::from_fn(|byte| words[8 * index + byte]));
        assert_eq!([0, 1, 2, 3, 4].map(word), [7, 0, 9, 4, 0]);
        // A call that is out of range is refused before the batch runs, and the others stay.
        assert!(batch.fetch_add(&one, 9_993, 1).is_err() && batch.put_many(&one, &[(9_999, b"ab")]).is_err());
        assert!(batch.run().unwrap().is_empty());
    }
}
