//! One call of a batch, and its result.

use crate::error::Error;
use crate::location::SegmentLocation;
use crate::plan::ranges::split;
use crate::plan::{CallPlan, Outgoing};
use crate::value::{AtomicResult, Stamp, Value};
use ddss_core::limits::ARENA_SLOT_BYTES;
use ddss_core::{ArenaRange, AtomicOp, Completion, Operation, Ranges, Version};

/// Result of one call of a [`Batch`](crate::Batch).
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
/// let segment = client.segment("answers").allocate(64)?;
/// let answers = client.batch().put(&segment, 0, b"here")?.run()?;
/// for answer in answers {
///     match answer? {
///         ddss::BatchReply::Got(value) => println!("{} bytes", value.len()),
///         ddss::BatchReply::Put(stamp) => assert_eq!(stamp.version.0, 1),
///         other => println!("{}", other.stamp().version),
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BatchReply {
    /// Bytes that a get returned.
    Got(Value),
    /// Bytes of several ranges that a get returned, in the order of the ranges.
    GotMany(Vec<Value>),
    /// Stamp that a put returned.
    Put(Stamp),
    /// Result of an atomic operation.
    Atomic(AtomicResult),
}

impl BatchReply {
    /// Returns the version and the timestamp.
    pub fn stamp(&self) -> Stamp {
        match self {
            BatchReply::Got(value) => value.stamp,
            BatchReply::GotMany(values) => values[0].stamp,
            BatchReply::Put(stamp) => *stamp,
            BatchReply::Atomic(result) => result.stamp,
        }
    }

    /// Returns the bytes of a get of one range; empty for other calls.
    pub fn bytes(&self) -> &[u8] {
        match self {
            BatchReply::Got(value) => value,
            _ => &[],
        }
    }
}

/// One call of a batch.
pub(crate) enum BatchCall {
    Get {
        offset: u64,
        length: usize,
    },
    GetMany {
        ranges: Box<Ranges>,
        table: Vec<u8>,
    },
    Put {
        offset: u64,
        bytes: Vec<u8>,
        version: Option<Version>,
    },
    /// The bytes are those in the arena: the table of ranges in the first slot, and the parts behind it.
    PutMany {
        ranges: u8,
        bytes: Vec<u8>,
        version: Option<Version>,
    },
    Atomic {
        action: &'static str,
        offset: u64,
        change: AtomicOp,
    },
}

impl BatchCall {
    pub(crate) fn put_many(
        location: &SegmentLocation,
        parts: &[(u64, &[u8])],
        version: Option<Version>,
    ) -> Result<Self, Error> {
        let ends = parts.iter().map(|&(offset, bytes)| (offset, u128::from(offset) + bytes.len() as u128));
        let ranges = location.check_many("put", ends)?;
        let mut bytes = ranges.encode().to_vec();
        bytes.resize(ARENA_SLOT_BYTES, 0);
        parts.iter().for_each(|(_, part)| bytes.extend_from_slice(part));
        Ok(BatchCall::PutMany { ranges: ranges.as_slice().len() as u8, bytes, version })
    }

    pub(crate) fn atomic(
        location: &SegmentLocation,
        action: &'static str,
        offset: u64,
        change: AtomicOp,
    ) -> Result<Self, Error> {
        location.check(action, offset, u128::from(offset) + 8)?;
        Ok(BatchCall::Atomic { action, offset, change })
    }

    /// Reads in place if a local read is possible; such a call needs no channel.
    pub(crate) fn read_locally(&self, location: &SegmentLocation) -> Option<BatchReply> {
        let BatchCall::Get { offset, length } = *self else { return None };
        if !location.can_read_locally() {
            return None;
        }
        let mut bytes = vec![0; length];
        let stamp = location.read_locally(offset, &mut bytes)?;
        Some(BatchReply::Got(Value::new(bytes, stamp)))
    }

    pub(crate) fn plan<'a>(&'a self, location: &'a SegmentLocation) -> CallPlan<'a> {
        let segment = location.id;
        match self {
            BatchCall::Get { offset, length } => location.plan_get(*offset, *length, None),
            BatchCall::GetMany { ranges, table } => location.plan_get_ranges(table, ranges),
            BatchCall::Put { offset, bytes, version } => {
                location.plan_put(*offset, bytes, location.put_conditions(*version))
            }
            BatchCall::PutMany { ranges, bytes, version } => {
                let (list, conditions) = (ArenaRange::NOWHERE, location.put_conditions(*version));
                let operation = Operation::PutMany { segment, list, ranges: *ranges, conditions };
                location.plan("put", operation).sends(Outgoing::Bytes(bytes))
            }
            BatchCall::Atomic { action, offset, change } => {
                let operation = Operation::Atomic { segment, offset: *offset, change: *change, token: location.token };
                location.plan(action, operation)
            }
        }
    }

    pub(crate) fn reply(&self, completion: &Completion, bytes: Vec<u8>) -> BatchReply {
        let stamp = Stamp::of(completion);
        match self {
            BatchCall::Get { .. } => BatchReply::Got(Value::new(bytes, stamp)),
            BatchCall::GetMany { ranges, .. } => BatchReply::GotMany(split(ranges, &bytes[ARENA_SLOT_BYTES..], stamp)),
            BatchCall::Put { .. } | BatchCall::PutMany { .. } => BatchReply::Put(stamp),
            BatchCall::Atomic { .. } => BatchReply::Atomic(AtomicResult::of(completion)),
        }
    }
}
