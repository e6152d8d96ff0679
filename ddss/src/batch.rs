//! Many calls in one submission, over any segments: as many as fit are under way at the same time.

use crate::client::Client;
use crate::error::Error;
use crate::lanes_many::Ended;
use crate::segment::{Segment, bounds};
use crate::value::{Stamp, Value};
use ddss_core::limits::INLINE_REPLY_BYTES_MAX;
use ddss_core::{ArenaRange, Operation, Payload};
use std::ops::RangeBounds;

/// What one call of a [`Batch`] brought.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Answer {
    /// A get's bytes.
    Got(Value),
    /// A put's stamp.
    Put(Stamp),
}

impl Answer {
    /// Version and timestamp.
    pub fn stamp(&self) -> Stamp {
        match self {
            Answer::Got(value) => value.stamp(),
            Answer::Put(stamp) => *stamp,
        }
    }

    /// The bytes of a get; of a put, none.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Answer::Got(value) => value,
            Answer::Put(_) => &[],
        }
    }
}

enum Wish {
    Get { offset: u64, length: usize },
    Put { offset: u64, bytes: Vec<u8> },
}

/// Calls that are made together. Each is a call of its own: they end in any order, and one that fails does nothing to
/// the others. Several ranges of one segment that belong together are better put with [`Segment::put_many`].
///
/// ```no_run
/// use ddss::Client;
/// let client = Client::connect()?;
/// let (left, right) = (client.open("left")?, client.open("right")?);
/// let mut batch = client.batch();
/// batch.get(&left, 0..8)?.get(&right, ..)?.put(&left, 8, b"seen")?;
/// for answer in batch.run()? {
///     println!("{}", answer?.stamp().version);
/// }
/// # Ok::<(), ddss::Error>(())
/// ```
#[must_use = "a batch does nothing until `run`"]
pub struct Batch {
    client: Client,
    calls: Vec<(Segment, Wish)>,
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
pub(crate) struct Step {
    pub(crate) operation: Operation,
    /// Bytes that go out through the arena.
    pub(crate) outgoing: Vec<u8>,
    /// Bytes that come back.
    pub(crate) incoming: usize,
}

impl Batch {
    /// Adds a get.
    pub fn get(&mut self, segment: &Segment, range: impl RangeBounds<u64>) -> Result<&mut Self, Error> {
        let (offset, end) = bounds(range, segment.bytes());
        let length = segment.place().check("get", offset, end)?;
        self.calls.push((segment.clone(), Wish::Get { offset, length }));
        Ok(self)
    }

    /// Adds a put.
    pub fn put(&mut self, segment: &Segment, offset: u64, bytes: &[u8]) -> Result<&mut Self, Error> {
        segment.place().check("put", offset, u128::from(offset) + bytes.len() as u128)?;
        self.calls.push((segment.clone(), Wish::Put { offset, bytes: bytes.to_vec() }));
        Ok(self)
    }

    /// Makes all calls, and waits for the last one; the answers are in the order in which the calls were added. An error
    /// of the whole batch says that there is no daemon, and that nothing happened.
    pub fn run(&mut self) -> Result<Vec<Result<Answer, Error>>, Error> {
        let (client, calls) = (&self.client, std::mem::take(&mut self.calls));
        let mut answers: Vec<Option<Result<Answer, Error>>> = calls.iter().map(|call| near(client, call)).collect();
        let far: Vec<usize> = (0..calls.len()).filter(|&index| answers[index].is_none()).collect();
        let steps = far.iter().map(|&index| step(&calls[index])).collect();
        let ended = client.run_all(steps)?;
        for (index, ended) in far.into_iter().zip(ended) {
            let (segment, wish) = &calls[index];
            answers[index] = Some(answer(client, segment, wish, ended));
        }
        Ok(answers.into_iter().map(|answer| answer.expect("each call was answered")).collect())
    }
}

/// What can be read in place needs no ring.
fn near(client: &Client, (segment, wish): &(Segment, Wish)) -> Option<Result<Answer, Error>> {
    let Wish::Get { offset, length } = *wish else { return None };
    if !client.0.near || !segment.place().is_near() {
        return None;
    }
    let mut bytes = vec![0; length];
    let stamp = segment.place().get_near(offset, &mut bytes)?;
    Some(Ok(Answer::Got(Value::new(bytes, stamp))))
}

fn step((segment, wish): &(Segment, Wish)) -> Step {
    let (place, into) = (segment.place(), ArenaRange::NOWHERE);
    match wish {
        Wish::Get { offset, length } => {
            let (segment, offset, inline) = (place.id, *offset, *length <= INLINE_REPLY_BYTES_MAX);
            let operation = Operation::Get { segment, offset, into, inline, look: place.look(None) };
            Step { operation, outgoing: Vec::new(), incoming: *length }
        }
        Wish::Put { offset, bytes } => {
            let terms = place.terms(None, None);
            let small = Payload::inline(bytes).filter(|_| terms.allow_inline());
            let outgoing = if small.is_some() { Vec::new() } else { bytes.clone() };
            let from = small.unwrap_or(Payload::Arena(into));
            let operation = Operation::Put { segment: place.id, offset: *offset, from, terms };
            Step { operation, outgoing, incoming: 0 }
        }
    }
}

fn answer(client: &Client, segment: &Segment, wish: &Wish, ended: Ended) -> Result<Answer, Error> {
    let action = if matches!(wish, Wish::Get { .. }) { "get" } else { "put" };
    let (completion, bytes) = ended.map_err(|none| client.explain(none, action, segment.name()))?;
    Error::of(completion.outcome, action, segment.name())?;
    let stamp = Stamp::of(&completion);
    Ok(match wish {
        Wish::Get { .. } => Answer::Got(Value::new(bytes, stamp)),
        Wish::Put { .. } => Answer::Put(stamp),
    })
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
            assert!(batch.run().unwrap().into_iter().all(|answer| matches!(answer, Ok(Answer::Put(_)))));
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
