//! Many calls over any segments in one submission; as many as fit are in flight at the same time.

use super::super::segment::Segment;
use super::{Client, twin};
use crate::error::Error;
use crate::plan::batch_call::{BatchCall, BatchReply};
use ddss_core::{AtomicOp, BadArgument, Failure, Version};
use std::ops::{Range, RangeBounds};

/// A set of calls that the client submits together.
///
/// Each is a call of its own: the calls end in any order, and a failure does not affect the others. For several ranges
/// of one segment that belong together, use [`put_many`](Self::put_many).
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
/// # let _left = client.segment("left").allocate(64)?;
/// # let _right = client.segment("right").allocate(64)?;
/// let (left, right) = (client.segment("left").open()?, client.segment("right").open()?);
/// let mut batch = client.batch();
/// batch.get(&left, 0..8)?.get(&right, ..)?.put(&left, 8, b"seen")?.fetch_add(&right, 0, 1)?;
/// for answer in batch.run()? {
///     println!("{}", answer?.stamp().version);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[twin]
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

#[twin]
impl Client {
    /// Creates an empty batch.
    pub fn batch(&self) -> Batch {
        Batch { client: self.clone(), calls: Vec::new() }
    }
}

#[twin]
impl Batch {
    /// Adds a get.
    pub fn get(&mut self, segment: &Segment, range: impl RangeBounds<u64>) -> Result<&mut Self, Error> {
        let (offset, length) = segment.location().place_in_transfer(range)?;
        self.add(segment, BatchCall::Get { offset, length })
    }

    /// Adds a get of several ranges, all of one version: [`Segment::get_many`].
    pub fn get_many(&mut self, segment: &Segment, ranges: &[Range<u64>]) -> Result<&mut Self, Error> {
        let ends = ranges.iter().map(|range| (range.start, u128::from(range.end)));
        let ranges = segment.location().check_many("get", ends)?;
        self.add(segment, BatchCall::GetMany { table: ranges.encode().to_vec(), ranges: Box::new(ranges) })
    }

    /// Adds a put.
    pub fn put(&mut self, segment: &Segment, offset: u64, bytes: &[u8]) -> Result<&mut Self, Error> {
        segment.location().check("put", offset, u128::from(offset) + bytes.len() as u128)?;
        self.add(segment, BatchCall::Put { offset, bytes: bytes.to_vec(), version: None })
    }

    /// Adds a put that is made if the segment still has that version: [`Segment::put_if`].
    pub fn put_if(
        &mut self,
        segment: &Segment,
        version: Version,
        offset: u64,
        bytes: &[u8],
    ) -> Result<&mut Self, Error> {
        segment.location().check("put", offset, u128::from(offset) + bytes.len() as u128)?;
        self.add(segment, BatchCall::Put { offset, bytes: bytes.to_vec(), version: Some(version) })
    }

    /// Adds a put of several ranges as one version: [`Segment::put_many`].
    pub fn put_many(&mut self, segment: &Segment, parts: &[(u64, &[u8])]) -> Result<&mut Self, Error> {
        let call = BatchCall::put_many(segment.location(), parts, None)?;
        self.add(segment, call)
    }

    /// Adds a put of several ranges that is made if the segment still has that version: [`Segment::put_with`].
    pub fn put_many_if(
        &mut self,
        segment: &Segment,
        version: Version,
        parts: &[(u64, &[u8])],
    ) -> Result<&mut Self, Error> {
        let call = BatchCall::put_many(segment.location(), parts, Some(version))?;
        self.add(segment, call)
    }

    /// Adds an addition to a word: [`Word::fetch_add`](crate::Word::fetch_add).
    pub fn fetch_add(&mut self, segment: &Segment, offset: u64, add: u64) -> Result<&mut Self, Error> {
        let call = BatchCall::atomic(segment.location(), "add to", offset, AtomicOp::Add(add))?;
        self.add(segment, call)
    }

    /// Adds a replacement of a word: [`Word::swap`](crate::Word::swap).
    pub fn swap(&mut self, segment: &Segment, offset: u64, new: u64) -> Result<&mut Self, Error> {
        let call = BatchCall::atomic(segment.location(), "swap a word of", offset, AtomicOp::Swap(new))?;
        self.add(segment, call)
    }

    /// Adds a conditional replacement of a word: [`Word::compare_and_swap`](crate::Word::compare_and_swap).
    pub fn compare_swap(
        &mut self,
        segment: &Segment,
        offset: u64,
        expected: u64,
        new: u64,
    ) -> Result<&mut Self, Error> {
        let change = AtomicOp::CompareSwap { expected, new };
        let call = BatchCall::atomic(segment.location(), "compare and swap a word of", offset, change)?;
        self.add(segment, call)
    }

    /// Adds the raising of a word: [`Word::fetch_max`](crate::Word::fetch_max).
    pub fn fetch_max(&mut self, segment: &Segment, offset: u64, value: u64) -> Result<&mut Self, Error> {
        let call = BatchCall::atomic(segment.location(), "raise a word of", offset, AtomicOp::Max(value))?;
        self.add(segment, call)
    }

    /// Adds a subtraction from a word: [`Word::checked_sub`](crate::Word::checked_sub).
    pub fn checked_sub(&mut self, segment: &Segment, offset: u64, sub: u64) -> Result<&mut Self, Error> {
        let call = BatchCall::atomic(segment.location(), "subtract from", offset, AtomicOp::CheckedSub(sub))?;
        self.add(segment, call)
    }

    fn add(&mut self, segment: &Segment, call: BatchCall) -> Result<&mut Self, Error> {
        if segment.location().token.is_some() && !self.client.is_same(segment.client()) {
            let refused = BadArgument::new(
                "segment",
                "locked by another client",
                "of the client of the batch, or without its lock",
                Failure::Unsupported,
            );
            return Err(Error::bad_argument("add to a batch", segment.name(), refused));
        }
        self.calls.push((segment.clone(), call));
        Ok(self)
    }

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
                segment.spend_budget(calls.len(), replies.iter().flatten().map(read).sum()).await;
            }
            return Ok(replies.into_iter().flatten().collect());
        }
        let plan = |&index: &usize| {
            let (segment, call) = &calls[index];
            (segment.client().shard(), call.plan(segment.location()))
        };
        let plans = remote.iter().map(plan).collect();
        let (results, error) = self.client.run_group(self.client.time(), plans).await;
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
