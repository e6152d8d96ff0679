//! One call of a batch.

use super::map_call::{MapCall, MapStep};
use super::put_call::PutCall;
use super::reply::BatchReply;
use crate::client::Client;
use crate::error::Error;
use crate::location::{SegmentLocation, checked_name};
use crate::map::bucket::Bucket;
use crate::plan::{CallPlan, Outgoing};
use crate::value::{Atomic, AtomicResult, Stamp, Value};
use ddss_core::{ArenaRange, Completion, Name, OpenedSegment, Operation};

/// One call of a batch, with the bytes that it sends.
pub(crate) enum BatchCall {
    Get { location: SegmentLocation, offset: u64, length: usize },
    Put(PutCall),
    Atomic { location: SegmentLocation, offset: u64, change: Atomic },
    Release { location: SegmentLocation },
    Named { action: &'static str, name: Name, operation: Operation, text: Vec<u8> },
    Map(Box<MapCall>),
}

/// Next step of a call after a completion.
pub(crate) enum Step {
    Done(BatchReply),
    /// The daemon has opened the segment of that name.
    Opened(Name, OpenedSegment),
    /// This call ends it.
    Next(BatchCall),
    /// The home did nothing: the entry of a map may lie in another bucket, or needs room there. The copy is that of its own
    /// bucket.
    Elsewhere(Option<Bucket>),
}

impl BatchCall {
    pub(crate) fn allocate(name: &str, spec: &ddss_core::Spec) -> Result<Self, Error> {
        let (action, checked) = ("allocate", checked_name(name, "allocate")?);
        let text = [&spec.encode()[..], name.as_bytes()].concat();
        let operation = Operation::Allocate { spec_and_name: ArenaRange::NOWHERE };
        Ok(BatchCall::Named { action, name: checked, operation, text })
    }

    pub(crate) fn open(name: &str) -> Result<Self, Error> {
        let (action, checked) = ("open", checked_name(name, "open")?);
        let operation = Operation::Open { name: ArenaRange::NOWHERE };
        Ok(BatchCall::Named { action, name: checked, operation, text: name.as_bytes().to_vec() })
    }

    /// Returns the segment of the call; `None` for a call by name.
    pub(crate) fn location(&self) -> Option<&SegmentLocation> {
        match self {
            BatchCall::Get { location, .. } | BatchCall::Atomic { location, .. } | BatchCall::Release { location } => {
                Some(location)
            }
            BatchCall::Put(call) => Some(&call.location),
            BatchCall::Map(call) => Some(&call.location),
            BatchCall::Named { .. } => None,
        }
    }

    /// Returns the shard that serves the name of the call.
    pub(crate) fn shard_by_name(&self, client: &Client) -> u8 {
        if let BatchCall::Named { name, .. } = self { client.shard_of(name) } else { client.shard() }
    }

    /// Returns the bytes that the call reads.
    pub(crate) fn read_bytes(&self) -> usize {
        match self {
            BatchCall::Get { length, .. } => *length,
            BatchCall::Map(call) => call.shape.layout.value_bytes,
            _ => 0,
        }
    }

    /// Reads in place if a local read is possible; such a call needs no channel.
    pub(crate) fn read_locally(&self) -> Option<BatchReply> {
        let (location, offset, length) = match self {
            BatchCall::Get { location, offset, length } => (location, *offset, *length),
            BatchCall::Map(call) => return call.read_locally(),
            _ => return None,
        };
        if !location.can_read_locally() {
            return None;
        }
        let mut bytes = vec![0; length];
        let stamp = location.read_locally(offset, &mut bytes)?;
        Some(BatchReply::Got(Value::new(bytes, stamp)))
    }

    pub(crate) fn plan(&self) -> CallPlan<'_> {
        match self {
            BatchCall::Get { location, offset, length } => location.plan_get(*offset, *length, None),
            BatchCall::Put(call) => call.plan(),
            BatchCall::Atomic { location, offset, change } => {
                let (segment, token, op) = (location.id, location.token, change.op());
                location.plan(change.action(), Operation::Atomic { segment, offset: *offset, change: op, token })
            }
            BatchCall::Release { location } => location.plan("release", Operation::Release { segment: location.id }),
            BatchCall::Named { action, name, operation, text } => {
                CallPlan::new(action, name.as_str(), *operation).sends(Outgoing::Bytes(text))
            }
            BatchCall::Map(call) => call.plan(),
        }
    }

    /// Returns the next step after a completion of the call, which brought these bytes.
    pub(crate) fn step(&self, completion: &Completion, bytes: Vec<u8>) -> Result<Step, Error> {
        Ok(Step::Done(match self {
            BatchCall::Get { .. } => BatchReply::Got(Value::new(bytes, Stamp::of(completion))),
            BatchCall::Put(_) => BatchReply::Stamp(Stamp::of(completion)),
            BatchCall::Atomic { .. } => BatchReply::Atomic(AtomicResult::of(completion)),
            BatchCall::Release { .. } => BatchReply::Done,
            BatchCall::Named { name, .. } => {
                return Ok(Step::Opened(*name, OpenedSegment::decode(&completion.data)));
            }
            BatchCall::Map(call) => {
                return Ok(match call.step(completion, bytes)? {
                    MapStep::Done(reply) => Step::Done(reply),
                    MapStep::Put(put) => Step::Next(BatchCall::Put(put)),
                    MapStep::Elsewhere(bucket) => Step::Elsewhere(bucket),
                });
            }
        }))
    }
}
