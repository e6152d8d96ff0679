//! Batches: what they need of the handles of each form, and their run.

use super::lock::LockGuard;
use super::segment::Segment;
use super::tables::map_handle::ByteMap;
use super::tables::row::Row;
use super::{Client, only_blocking, twin};
#[only_blocking]
use crate::batch::Ticket;
use crate::batch::batch::BatchedCall;
#[only_blocking]
use crate::batch::call::BatchCall;
use crate::batch::call::Step;
use crate::batch::reply::BatchReply;
use crate::batch::target::TargetPlace;
use crate::batch::{Batch, Replies, Target};
use crate::deadline::Deadline;
use crate::encoding::Seal;
use crate::error::Error;
use crate::map::bucket::Bucket;
use ddss_core::{Name, OpenedSegment, SegmentId};
use std::collections::BTreeMap;

#[twin]
impl Target for Segment {
    fn place(&self, _: Seal) -> TargetPlace<'_> {
        TargetPlace { client: self.client().blocking(), location: self.location(), row: None }
    }
}

#[twin]
impl<T: ?Sized> Target for Row<'_, T> {
    fn place(&self, _: Seal) -> TargetPlace<'_> {
        let segment = self.segment();
        TargetPlace { client: segment.client().blocking(), location: segment.location(), row: Some(self.row()) }
    }
}

#[twin]
impl<H: Target> Target for LockGuard<H> {
    fn place(&self, seal: Seal) -> TargetPlace<'_> {
        (**self).place(seal)
    }
}

#[only_blocking]
impl Batch {
    /// Adds the allocation of a segment: [`Named::allocate`](crate::Named::allocate). In a cluster each allocation waits for
    /// a majority of the nodes; many of one batch wait together. A specification that names an owner is refused.
    pub fn allocate(&mut self, name: &str, spec: impl Into<crate::spec::Spec>) -> Result<Ticket<Segment>, Error> {
        let spec = spec.into().wire_of_own().map_err(Error::argument("allocate", name))?;
        Ok(self.add(None, BatchCall::allocate(name, &spec)?, Segment::of_reply))
    }

    /// Adds the opening of a segment: [`Named::open`](crate::Named::open).
    pub fn open(&mut self, name: &str) -> Result<Ticket<Segment>, Error> {
        Ok(self.add(None, BatchCall::open(name)?, Segment::of_reply))
    }
}

#[only_blocking]
impl Segment {
    fn of_reply(reply: BatchReply) -> Result<Self, Error> {
        let BatchReply::Opened(client, location) = reply else { reply.is_of_another_call() };
        Ok(Self::at(client, location))
    }
}

#[twin]
impl Client {
    /// Runs the calls of a batch and waits for the last one. [`Replies`] has the outcome of each.
    ///
    /// An error of the whole batch means that there is no daemon and that no call had an effect.
    pub async fn run(&self, batch: Batch) -> Result<Replies, Error> {
        match self.run_by(self.time(), batch).await {
            (_, Some(error)) => Err(error),
            (replies, None) => Ok(replies),
        }
    }

    /// Runs the calls of a batch by then. The error is that of the whole batch: each call has one as well.
    pub(crate) async fn run_by(&self, time: Deadline, mut batch: Batch) -> (Replies, Option<Error>) {
        let (time, calls) = (time.started(), &mut batch.calls);
        let mut replies: Vec<_> = calls.iter().map(|call| call.unsent(self.blocking())).collect();
        let mut sent: Vec<usize> = (0..calls.len()).filter(|&index| replies[index].is_none()).collect();
        if let (true, Some(location)) = (sent.is_empty(), calls.first().and_then(|call| call.call.location())) {
            let bytes = calls.iter().map(|call| call.call.read_bytes()).sum();
            Segment::at(self.clone(), location.clone()).spend_budget(calls.len(), bytes).await;
        }
        let (mut elsewhere, mut failed, mut is_first) = (Vec::new(), None, true);
        while !sent.is_empty() {
            let plan = |&index: &usize| (calls[index].shard(self.blocking()), calls[index].call.plan());
            let plans = sent.iter().map(plan).collect();
            let (results, error) = self.run_group(time, plans).await;
            // Some calls may have been answered: their replies stand, whatever happened to others, and steps that follow
            // the first one have errors of their own.
            failed = failed.or(error.filter(|_| is_first && replies.iter().all(Option::is_none)));
            is_first = false;
            let mut next = Vec::new();
            for (index, result) in sent.into_iter().zip(results) {
                let step = |(completion, bytes)| calls[index].call.step(&completion, bytes);
                match result.and_then(step) {
                    Ok(Step::Done(reply)) => replies[index] = Some(Ok(reply)),
                    Ok(Step::Next(call)) => {
                        calls[index].call = call;
                        next.push(index);
                    }
                    Ok(Step::Opened(name, opened)) => replies[index] = Some(self.opened(time, &name, opened).await),
                    Ok(Step::Elsewhere(bucket)) => elsewhere.push((index, bucket)),
                    Err(error) => replies[index] = Some(Err(error)),
                }
            }
            sent = next;
        }
        self.end_map_calls(time, calls, elsewhere, &mut replies).await;
        (batch.replies(replies), failed)
    }

    /// Maps the area of a segment that a call has opened, by the end of the batch.
    async fn opened(&self, time: Deadline, name: &Name, opened: OpenedSegment) -> Result<BatchReply, Error> {
        let segment = self.at_shard_of(name)?.into_segment(time, name.as_str(), opened).await;
        Ok(BatchReply::Opened(segment.client().blocking().clone(), segment.location().clone()))
    }

    /// Ends calls on maps that need more than the bucket of their key. Gets of one map search together.
    async fn end_map_calls(
        &self,
        time: Deadline,
        calls: &[BatchedCall],
        elsewhere: Vec<(usize, Option<Bucket>)>,
        replies: &mut [Option<Result<BatchReply, Error>>],
    ) {
        let (mut gets, mut rest): (BTreeMap<SegmentId, Vec<_>>, _) = (BTreeMap::new(), Vec::new());
        for (index, bucket) in elsewhere {
            let Some(call) = calls[index].map_call() else { continue };
            match bucket {
                Some(bucket) => gets.entry(call.location.id).or_default().push((index, call, bucket)),
                None => rest.push((index, call)),
            }
        }
        let map = |index: usize, call| {
            let client = self.at_shard(calls[index].shard(self.blocking()))?;
            Ok::<_, Error>(ByteMap::of_call(client, call))
        };
        for gets in gets.into_values() {
            let keys: Vec<_> = gets.iter().map(|(_, call, bucket)| (*call, bucket)).collect();
            let found = match map(gets[0].0, gets[0].1) {
                Ok(map) => map.search(time, &keys).await,
                Err(_) => Vec::new(),
            };
            let mut found = found.into_iter();
            for (index, call, _) in &gets {
                match found.next().flatten() {
                    Some(entry) => replies[*index] = Some(Ok(call.found(entry))),
                    None => rest.push((*index, *call)),
                }
            }
        }
        for (index, call) in rest {
            replies[index] = Some(match map(index, call) {
                Ok(map) => map.end_call(time, call).await,
                Err(error) => Err(error),
            });
        }
    }
}
