//! Many calls in one submission, over any segments: as many as fit are under way at the same time.

use crate::call::channels::NoCompletion;
use crate::call::pipeline::{FinishedCall, Pipeline, run_together};
use crate::call::priority::Priority;
use crate::client::Client;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::segment::{Segment, SegmentLocation, bounds};
use crate::session::Session;
use crate::value::{Stamp, Value};
use ddss_core::limits::INLINE_REPLY_BYTES_MAX;
use ddss_core::{ArenaRange, Completion, Operation, Payload};
use std::ops::RangeBounds;

/// What one call of a [`Batch`] brought.
///
/// ```
/// # let node = ddssd::Ephemeral::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// let segment = client.allocate("answers", ddss::Spec::new(64))?;
/// let answers = client.batch().put(&segment, 0, b"here")?.run()?;
/// for answer in answers {
///     match answer? {
///         ddss::Answer::Got(value) => println!("{} bytes", value.len()),
///         ddss::Answer::Put(stamp) => assert_eq!(stamp.version.0, 1),
///         other => println!("{}", other.stamp().version),
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BatchReply {
    /// A get's bytes.
    Got(Value),
    /// A put's stamp.
    Put(Stamp),
}

impl BatchReply {
    /// Version and timestamp.
    pub fn stamp(&self) -> Stamp {
        match self {
            BatchReply::Got(value) => value.stamp(),
            BatchReply::Put(stamp) => *stamp,
        }
    }

    /// The bytes of a get; of a put, none.
    pub fn bytes(&self) -> &[u8] {
        match self {
            BatchReply::Got(value) => value,
            BatchReply::Put(_) => &[],
        }
    }
}

/// One call of a batch.
pub(crate) enum BatchCall {
    Get { offset: u64, length: usize },
    Put { offset: u64, bytes: Vec<u8> },
}

/// Calls that are made together. Each is a call of its own: they end in any order, and one that fails does nothing to
/// the others. Several ranges of one segment that belong together are better put with [`Segment::put_many`].
///
/// ```
/// # let node = ddssd::Ephemeral::start()?;
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

impl Client {
    /// Begins a batch.
    pub fn batch(&self) -> Batch {
        Batch { client: self.clone(), calls: Vec::new() }
    }
}

/// How one call of a batch stands.
pub(crate) struct CallProgress {
    pub(crate) operation: Operation,
    /// Bytes that go out through the arena.
    pub(crate) outgoing: Vec<u8>,
    /// Bytes that come back.
    pub(crate) incoming: usize,
}

impl Batch {
    /// Adds a get.
    pub fn get(&mut self, segment: &Segment, range: impl RangeBounds<u64>) -> Result<&mut Self, Error> {
        self.calls.push((segment.clone(), BatchCall::get(segment.place(), range)?));
        Ok(self)
    }

    /// Adds a put.
    pub fn put(&mut self, segment: &Segment, offset: u64, bytes: &[u8]) -> Result<&mut Self, Error> {
        self.calls.push((segment.clone(), BatchCall::put(segment.place(), offset, bytes)?));
        Ok(self)
    }

    /// Makes all calls, and waits for the last one; the answers are in the order in which the calls were added. An error
    /// of the whole batch says that there is no daemon, and that nothing happened.
    pub fn run(&mut self) -> Result<Vec<Result<BatchReply, Error>>, Error> {
        let (client, calls) = (&self.client, std::mem::take(&mut self.calls));
        let near = |(segment, wish): &(Segment, BatchCall)| wish.near(segment.place()).map(Ok);
        let mut answers: Vec<Option<Result<BatchReply, Error>>> = calls.iter().map(near).collect();
        let far: Vec<usize> = (0..calls.len()).filter(|&index| answers[index].is_none()).collect();
        let mut parts = by_plane(client, &calls, far)?;
        match run_parts(&mut parts, client.time()) {
            Err(error) if answers.iter().all(Option::is_none) => return Err(error),
            // What was read in place is told.
            ended => drop(ended),
        }
        for ShardBatch { client, calls: indices, ends, .. } in parts {
            for (index, ended) in indices.into_iter().zip(ends) {
                let (segment, wish) = &calls[index];
                answers[index] = Some(answer(&client, segment, wish, ended));
            }
        }
        Ok(answers.into_iter().map(|answer| answer.expect("each call was answered")).collect())
    }
}

/// The calls of a batch that go to one plane.
struct ShardBatch {
    client: Client,
    /// Which of the batch's.
    calls: Vec<usize>,
    steps: Vec<CallProgress>,
    ends: Vec<FinishedCall>,
    /// Those that are to be made yet.
    left: Vec<usize>,
}

impl ShardBatch {
    fn new(client: Client, all: &[(Segment, BatchCall)], calls: Vec<usize>) -> Self {
        let steps: Vec<CallProgress> = calls.iter().map(|&index| all[index].1.step(all[index].0.place())).collect();
        let ends = steps.iter().map(|_| Err(NoCompletion::Gone)).collect();
        Self { client, left: (0..calls.len()).collect(), calls, steps, ends }
    }

    /// Notes how those that were left have ended, and which of them are for the next daemon, if one comes in time: those
    /// that were not begun since the daemon goes down, and those that leave nothing behind whose daemon is gone.
    fn note(&mut self, attached: &Session, ended: Vec<FinishedCall>) {
        let ended: Vec<(usize, FinishedCall)> = self.left.drain(..).zip(ended).collect();
        for (index, ended) in ended {
            let again = match ended {
                Err(NoCompletion::GoingDown) => {
                    attached.attachment.set_draining();
                    true
                }
                Err(NoCompletion::Gone) => self.steps[index].operation.is_harmless(),
                _ => false,
            };
            self.ends[index] = ended;
            self.left.extend(again.then_some(index));
        }
    }
}

/// The calls that go to each plane, with the client there.
fn by_plane(client: &Client, calls: &[(Segment, BatchCall)], far: Vec<usize>) -> Result<Vec<ShardBatch>, Error> {
    if client.planes() == 1 {
        return Ok(vec![ShardBatch::new(client.clone(), calls, far)]);
    }
    let mut parts = Vec::new();
    for plane in 0..client.planes() {
        let theirs: Vec<usize> =
            far.iter().copied().filter(|&index| calls[index].0.client().plane() == plane).collect();
        if !theirs.is_empty() {
            parts.push(ShardBatch::new(client.at_plane(plane)?, calls, theirs));
        }
    }
    Ok(parts)
}

/// Makes the calls of all planes at the same time. An error says that nothing happened.
fn run_parts(parts: &mut [ShardBatch], mut time: Deadline) -> Result<(), Error> {
    let mut begun = false;
    loop {
        // Nothing is asked of anybody before all planes are reached.
        let mut reached = Vec::new();
        for part in parts.iter_mut().filter(|part| !part.left.is_empty()) {
            let harmless = part.left.iter().all(|&index| part.steps[index].operation.is_harmless());
            match part.client.0.attached(&mut time, harmless) {
                Ok(attached) => reached.push((part, attached)),
                Err(error) if !begun => return Err(error),
                // Nobody has come in time: they have ended as they have.
                Err(_) => part.left.clear(),
            }
        }
        if reached.is_empty() {
            return Ok(());
        }
        begun = true;
        let mut times = vec![Deadline::until(time.deadline()); reached.len()];
        let mut running: Vec<Result<Pipeline<'_>, NoCompletion>> = (reached.iter().zip(&mut times))
            .map(|((part, attached), time)| {
                let call = attached.lanes.call(Priority::Call, time)?;
                Ok(Pipeline::new(call, part.left.iter().map(|&index| &part.steps[index]).collect()))
            })
            .collect();
        run_together(&mut running.iter_mut().flatten().collect::<Vec<_>>());
        let all = |(running, (part, _)): (Result<Pipeline<'_>, _>, &(&mut ShardBatch, _))| match running {
            Ok(many) => many.ends(),
            Err(none) => part.left.iter().map(|_| Err(none)).collect(),
        };
        let ends: Vec<Vec<FinishedCall>> = running.into_iter().zip(&reached).map(all).collect();
        for ((part, attached), ended) in reached.into_iter().zip(ends) {
            part.note(&attached, ended);
        }
    }
}

fn answer(client: &Client, segment: &Segment, wish: &BatchCall, ended: FinishedCall) -> Result<BatchReply, Error> {
    let (completion, bytes) = ended.map_err(|none| client.explain(none, wish.action(), segment.name()))?;
    Error::of(completion.outcome, wish.action(), segment.name())?;
    Ok(wish.answer(&completion, bytes))
}

impl BatchCall {
    pub(crate) fn get(place: &SegmentLocation, range: impl RangeBounds<u64>) -> Result<Self, Error> {
        let (offset, end) = bounds(range, place.bytes);
        Ok(BatchCall::Get { offset, length: place.check("get", offset, end)? })
    }

    pub(crate) fn put(place: &SegmentLocation, offset: u64, bytes: &[u8]) -> Result<Self, Error> {
        place.check("put", offset, u128::from(offset) + bytes.len() as u128)?;
        Ok(BatchCall::Put { offset, bytes: bytes.to_vec() })
    }

    /// Returns true if it leaves nothing behind.
    pub(crate) fn is_harmless(&self) -> bool {
        matches!(self, BatchCall::Get { .. })
    }

    pub(crate) fn action(&self) -> &'static str {
        if matches!(self, BatchCall::Get { .. }) { "get" } else { "put" }
    }

    /// What can be read in place needs no ring.
    pub(crate) fn near(&self, place: &SegmentLocation) -> Option<BatchReply> {
        let BatchCall::Get { offset, length } = *self else { return None };
        if !place.is_near() {
            return None;
        }
        let mut bytes = vec![0; length];
        let stamp = place.get_near(offset, &mut bytes)?;
        Some(BatchReply::Got(Value::new(bytes, stamp)))
    }

    pub(crate) fn step(&self, place: &SegmentLocation) -> CallProgress {
        let into = ArenaRange::NOWHERE;
        match self {
            BatchCall::Get { offset, length } => {
                let (segment, offset, inline) = (place.id, *offset, *length <= INLINE_REPLY_BYTES_MAX);
                let operation = Operation::Get { segment, offset, into, inline, look: place.look(None) };
                CallProgress { operation, outgoing: Vec::new(), incoming: *length }
            }
            BatchCall::Put { offset, bytes } => {
                let terms = place.terms(None, None);
                let small = Payload::inline(bytes).filter(|_| terms.allow_inline());
                let outgoing = if small.is_some() { Vec::new() } else { bytes.clone() };
                let from = small.unwrap_or(Payload::Arena(into));
                let operation = Operation::Put { segment: place.id, offset: *offset, from, terms };
                CallProgress { operation, outgoing, incoming: 0 }
            }
        }
    }

    pub(crate) fn answer(&self, completion: &Completion, bytes: Vec<u8>) -> BatchReply {
        let stamp = Stamp::of(completion);
        match self {
            BatchCall::Get { .. } => BatchReply::Got(Value::new(bytes, stamp)),
            BatchCall::Put { .. } => BatchReply::Put(stamp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spec;
    use crate::testing::TestNode;

    #[test]
    fn more_calls_than_a_ring_holds_all_end_with_their_own_answer() {
        // If this broke, a batch would mix up answers, hang when the ring is full, or lose arena memory.
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
            assert!(batch.run().unwrap().into_iter().all(|answer| matches!(answer, Ok(BatchReply::Put(_)))));
            for index in 0..300usize {
                batch.get(&segments[index % 4], index as u64 * 300..index as u64 * 300 + 8).unwrap();
            }
            for (index, answer) in batch.run().unwrap().into_iter().enumerate() {
                assert_eq!(answer.unwrap().bytes(), [index as u8 ^ round; 8]);
            }
        }
        // Large ones take turns in the arena.
        let large = client.allocate("large", Spec::new(1 << 20)).unwrap();
        let mut batch = client.batch();
        for _ in 0..12 {
            batch.get(&large, ..).unwrap();
        }
        assert!(batch.run().unwrap().into_iter().all(|answer| answer.unwrap().bytes().len() == 1 << 20));
        // One that fails does nothing to the others.
        segments[0].clone().release().unwrap();
        batch.get(&segments[0], 0..8).unwrap().get(&segments[1], 0..8).unwrap();
        let answers = batch.run().unwrap();
        assert!(answers[0].is_err() && answers[1].is_ok());
        assert!(batch.run().unwrap().is_empty());
    }
}
