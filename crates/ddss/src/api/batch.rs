//! Many calls over any segments in one submission; as many as fit are in flight at the same time.

use crate::api::batch_call::{BatchCall, BatchReply};
use crate::async_client::{AsyncBatch, AsyncClient, AsyncSegment};
use crate::call::channels::NoCompletion;
use crate::call::pipeline::{FinishedCall, Pipeline, run_together};
use crate::call::priority::Priority;
use crate::calls::calls;
use crate::client::Client;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::plan::CallPlan;
use crate::segment::Segment;
use crate::session::Session;
use std::ops::RangeBounds;

/// A set of calls that the client submits together.
///
/// Each is a call of its own: the calls end in any order, and a failure does not affect the others. For several ranges
/// of one segment that belong together, use [`Segment::put_many`].
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// # let _left = client.allocate("left", ddss::Spec::new(64))?;
/// # let _right = client.allocate("right", ddss::Spec::new(64))?;
/// let (left, right) = (client.open("left")?, client.open("right")?);
/// let mut batch = client.batch();
/// batch.get(&left, 0..8)?.get(&right, ..)?.put(&left, 8, b"seen")?;
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
            self.calls.push((segment.clone(), BatchCall::Get { offset, length }));
            Ok(self)
        }

        /// Adds a put.
        pub fn put(&mut self, segment: &Segment, offset: u64, bytes: &[u8])
            | (&mut self, segment: &AsyncSegment, offset: u64, bytes: &[u8]) -> Result<&mut Self, Error>
        {
            segment.location().check("put", offset, u128::from(offset) + bytes.len() as u128)?;
            self.calls.push((segment.clone(), BatchCall::Put { offset, bytes: bytes.to_vec() }));
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
            wait!(self.run_calls(&calls))
        }
    }
}

impl Batch {
    fn run_calls(&self, calls: &[(Segment, BatchCall)]) -> Result<Vec<Result<BatchReply, Error>>, Error> {
        let client = &self.client;
        let read_locally = |(segment, call): &(Segment, BatchCall)| call.read_locally(segment.location()).map(Ok);
        let mut replies: Vec<Option<Result<BatchReply, Error>>> = calls.iter().map(read_locally).collect();
        let remote: Vec<usize> = (0..calls.len()).filter(|&index| replies[index].is_none()).collect();
        let mut parts = by_shard(client, calls, remote)?;
        match run_parts(&mut parts, client.time()) {
            Err(error) if replies.iter().all(Option::is_none) => return Err(error),
            // Some calls were answered by a local read: return those replies.
            ended => drop(ended),
        }
        for ShardBatch { client, calls: indices, plans, results, .. } in parts {
            for ((index, plan), ended) in indices.into_iter().zip(plans).zip(results) {
                let reply = |(completion, bytes)| calls[index].1.reply(&completion, bytes);
                replies[index] = Some(client.conclude(ended, plan.action, plan.target).map(reply));
            }
        }
        Ok(replies.into_iter().map(|reply| reply.expect("each call was answered")).collect())
    }
}

/// The calls of a batch that go to one shard.
struct ShardBatch<'a> {
    client: Client,
    /// Indices of the calls within the batch.
    calls: Vec<usize>,
    plans: Vec<CallPlan<'a>>,
    results: Vec<FinishedCall>,
    /// Indices of the calls that still have to run.
    pending: Vec<usize>,
}

impl<'a> ShardBatch<'a> {
    fn new(client: Client, all: &'a [(Segment, BatchCall)], calls: Vec<usize>) -> Self {
        let plans: Vec<_> = calls.iter().map(|&index| all[index].1.plan(all[index].0.location())).collect();
        let results = plans.iter().map(|_| Err(NoCompletion::Gone)).collect();
        Self { client, pending: (0..calls.len()).collect(), calls, plans, results }
    }

    /// Records the results of the pending calls, and selects those to run again on the next daemon if one comes in
    /// time. These are the calls that a daemon in shutdown did not begin, and the calls without side effects whose
    /// daemon is gone.
    fn note(&mut self, session: &Session, ended: Vec<FinishedCall>) {
        let ended: Vec<(usize, FinishedCall)> = self.pending.drain(..).zip(ended).collect();
        for (index, ended) in ended {
            let again = match ended {
                Err(NoCompletion::ShuttingDown) => {
                    session.attachment.set_draining();
                    true
                }
                Err(NoCompletion::Gone) => self.plans[index].is_harmless,
                _ => false,
            };
            self.results[index] = ended;
            self.pending.extend(again.then_some(index));
        }
    }
}

/// Groups the calls by shard, each group with the client of its shard.
fn by_shard<'a>(
    client: &Client,
    calls: &'a [(Segment, BatchCall)],
    remote: Vec<usize>,
) -> Result<Vec<ShardBatch<'a>>, Error> {
    if client.shard_count() == 1 {
        return Ok(vec![ShardBatch::new(client.clone(), calls, remote)]);
    }
    let mut parts = Vec::new();
    for shard in 0..client.shard_count() {
        let theirs: Vec<usize> =
            remote.iter().copied().filter(|&index| calls[index].0.client().shard() == shard).collect();
        if !theirs.is_empty() {
            parts.push(ShardBatch::new(client.at_shard(shard)?, calls, theirs));
        }
    }
    Ok(parts)
}

/// Runs the calls of all shards at the same time. An error means that no call had an effect.
fn run_parts(parts: &mut [ShardBatch<'_>], mut time: Deadline) -> Result<(), Error> {
    let mut begun = false;
    loop {
        // No request goes out before all shards are reachable.
        let mut reached = Vec::new();
        for part in parts.iter_mut().filter(|part| !part.pending.is_empty()) {
            let harmless = part.pending.iter().all(|&index| part.plans[index].is_harmless);
            match part.client.0.session(&mut time, harmless) {
                Ok(session) => reached.push((part, session)),
                Err(error) if !begun => return Err(error),
                // No daemon came in time: the recorded results stand.
                Err(_) => part.pending.clear(),
            }
        }
        if reached.is_empty() {
            return Ok(());
        }
        begun = true;
        let mut times = vec![Deadline::until(time.deadline()); reached.len()];
        let mut running: Vec<Result<Pipeline<'_>, NoCompletion>> = (reached.iter().zip(&mut times))
            .map(|((part, session), time)| {
                let call = session.channels.call(Priority::Call, time)?;
                Ok(Pipeline::new(call, part.pending.iter().map(|&index| &part.plans[index]).collect()))
            })
            .collect();
        run_together(&mut running.iter_mut().flatten().collect::<Vec<_>>());
        let all = |(running, (part, _)): (Result<Pipeline<'_>, _>, &(&mut ShardBatch<'_>, _))| match running {
            Ok(many) => many.results(),
            Err(none) => part.pending.iter().map(|_| Err(none)).collect(),
        };
        let results: Vec<Vec<FinishedCall>> = running.into_iter().zip(&reached).map(all).collect();
        for ((part, session), ended) in reached.into_iter().zip(results) {
            part.note(&session, ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spec;
    use crate::testing::TestNode;

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
}
