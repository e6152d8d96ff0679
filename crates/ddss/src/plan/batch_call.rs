//! One call of a batch.

use crate::client::Client;
use crate::error::Error;
use crate::location::{SegmentLocation, checked_name};
use crate::plan::{CallPlan, Outgoing};
use crate::value::{Atomic, Value};
use ddss_core::limits::ARENA_SLOT_BYTES;
use ddss_core::{ArenaRange, Name, Operation, Version};

/// One call of a batch, with the bytes that it sends.
pub(crate) enum BatchCall {
    Get {
        location: SegmentLocation,
        offset: u64,
        length: usize,
    },
    Put {
        location: SegmentLocation,
        offset: u64,
        bytes: Vec<u8>,
        version: Option<Version>,
    },
    /// The bytes are those in the arena: the table of ranges in the first slot, and the parts behind it.
    PutMany {
        location: SegmentLocation,
        ranges: u8,
        bytes: Vec<u8>,
        version: Option<Version>,
    },
    Atomic {
        location: SegmentLocation,
        offset: u64,
        change: Atomic,
    },
    Release {
        location: SegmentLocation,
    },
    Named {
        action: &'static str,
        name: Name,
        operation: Operation,
        text: Vec<u8>,
    },
}

impl BatchCall {
    pub(crate) fn put(
        location: &SegmentLocation,
        parts: &[(u64, &[u8])],
        version: Option<Version>,
    ) -> Result<Self, Error> {
        let ends = parts.iter().map(|&(offset, bytes)| (offset, u128::from(offset) + bytes.len() as u128));
        let location = location.clone();
        if let &[(offset, bytes)] = parts {
            location.check("put", offset, u128::from(offset) + bytes.len() as u128)?;
            return Ok(BatchCall::Put { location, offset, bytes: bytes.to_vec(), version });
        }
        let ranges = location.check_many("put", ends)?;
        let mut bytes = ranges.encode().to_vec();
        bytes.resize(ARENA_SLOT_BYTES, 0);
        parts.iter().for_each(|(_, part)| bytes.extend_from_slice(part));
        Ok(BatchCall::PutMany { location, ranges: ranges.as_slice().len() as u8, bytes, version })
    }

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
            BatchCall::Get { location, .. }
            | BatchCall::Put { location, .. }
            | BatchCall::PutMany { location, .. }
            | BatchCall::Atomic { location, .. }
            | BatchCall::Release { location } => Some(location),
            BatchCall::Named { .. } => None,
        }
    }

    /// Returns the shard that serves the name of the call.
    pub(crate) fn shard_by_name(&self, client: &Client) -> u8 {
        if let BatchCall::Named { name, .. } = self { client.shard_of(name) } else { client.shard() }
    }

    /// Returns the bytes that the call reads.
    pub(crate) fn read_bytes(&self) -> usize {
        if let BatchCall::Get { length, .. } = *self { length } else { 0 }
    }

    /// Reads in place if a local read is possible; such a call needs no channel.
    pub(crate) fn read_locally(&self) -> Option<Value> {
        let BatchCall::Get { location, offset, length } = self else { return None };
        if !location.can_read_locally() {
            return None;
        }
        let mut bytes = vec![0; *length];
        let stamp = location.read_locally(*offset, &mut bytes)?;
        Some(Value::new(bytes, stamp))
    }

    pub(crate) fn plan(&self) -> CallPlan<'_> {
        match self {
            BatchCall::Get { location, offset, length } => location.plan_get(*offset, *length, None),
            BatchCall::Put { location, offset, bytes, version } => {
                location.plan_put(*offset, bytes, location.put_conditions(*version))
            }
            BatchCall::PutMany { location, ranges, bytes, version } => {
                let (list, conditions) = (ArenaRange::NOWHERE, location.put_conditions(*version));
                let operation = Operation::PutMany { segment: location.id, list, ranges: *ranges, conditions };
                location.plan("put", operation).sends(Outgoing::Bytes(bytes))
            }
            BatchCall::Atomic { location, offset, change } => {
                let (segment, token, op) = (location.id, location.token, change.op());
                location.plan(change.action(), Operation::Atomic { segment, offset: *offset, change: op, token })
            }
            BatchCall::Release { location } => location.plan("release", Operation::Release { segment: location.id }),
            BatchCall::Named { action, name, operation, text } => {
                CallPlan::new(action, name.as_str(), *operation).sends(Outgoing::Bytes(text))
            }
        }
    }
}
