//! Batches: what they need of the handles of each form, and their run.

use super::lock::LockGuard;
use super::segment::Segment;
use super::tables::row::Row;
use super::{Client, only_blocking, twin};
use crate::batch::{Batch, Replies, Target, TargetPlace};
#[only_blocking]
use crate::batch::{BatchReply, Ticket};
use crate::encoding::Seal;
use crate::error::Error;

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
        Ok(self.add(None, crate::plan::batch_call::BatchCall::allocate(name, &spec)?, Segment::of_reply))
    }

    /// Adds the opening of a segment: [`Named::open`](crate::Named::open).
    pub fn open(&mut self, name: &str) -> Result<Ticket<Segment>, Error> {
        Ok(self.add(None, crate::plan::batch_call::BatchCall::open(name)?, Segment::of_reply))
    }
}

#[only_blocking]
impl Segment {
    fn of_reply(reply: BatchReply) -> Option<Self> {
        let BatchReply::Opened(name, client, opened) = reply else { return None };
        Some(client.into_segment(&name, opened))
    }
}

#[twin]
impl Client {
    /// Runs the calls of a batch and waits for the last one. [`Replies`] has the outcome of each.
    ///
    /// An error of the whole batch means that there is no daemon and that no call had an effect.
    pub async fn run(&self, batch: Batch) -> Result<Replies, Error> {
        let calls = &batch.calls;
        let mut replies: Vec<_> = calls.iter().map(|call| call.unsent(self.blocking())).collect();
        let sent: Vec<usize> = (0..calls.len()).filter(|&index| replies[index].is_none()).collect();
        if sent.is_empty() {
            if let Some(location) = calls.first().and_then(|call| call.call.location()) {
                let bytes = calls.iter().map(|call| call.call.read_bytes()).sum();
                Segment::at(self.clone(), location.clone()).spend_budget(calls.len(), bytes).await;
            }
            return Ok(batch.replies(replies));
        }
        let plan = |&index: &usize| (calls[index].shard(self.blocking()), calls[index].call.plan());
        let plans = sent.iter().map(plan).collect();
        let (results, error) = self.run_group(self.time(), plans).await;
        if let Some(error) = error.filter(|_| replies.iter().all(Option::is_none)) {
            return Err(error);
        }
        // Some calls may have been answered by a local read: their replies stand, whatever happened to others.
        for (index, result) in sent.into_iter().zip(results) {
            let reply = |(completion, bytes)| calls[index].reply(self.blocking(), &completion, bytes);
            replies[index] = Some(result.and_then(reply));
        }
        Ok(batch.replies(replies))
    }
}
