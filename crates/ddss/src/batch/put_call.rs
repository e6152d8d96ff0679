//! A put of a batch, with the bytes that it sends.

use crate::error::Error;
use crate::location::SegmentLocation;
use crate::plan::{CallPlan, Outgoing};
use ddss_core::limits::ARENA_SLOT_BYTES;
use ddss_core::{ArenaRange, Operation, Version};

/// A put of one range, or of several as one version.
pub(crate) struct PutCall {
    pub(crate) location: SegmentLocation,
    range: PutRange,
    bytes: Vec<u8>,
    version: Option<Version>,
}

enum PutRange {
    /// Begins at this offset.
    One(u64),
    /// The bytes are those in the arena: the table of so many ranges in the first slot, and the parts behind it.
    Many(u8),
}

impl PutCall {
    pub(super) fn new(
        location: &SegmentLocation,
        parts: &[(u64, &[u8])],
        version: Option<Version>,
    ) -> Result<Self, Error> {
        let ends = parts.iter().map(|&(offset, bytes)| (offset, u128::from(offset) + bytes.len() as u128));
        let location = location.clone();
        if let &[(offset, bytes)] = parts {
            location.check("put", offset, u128::from(offset) + bytes.len() as u128)?;
            return Ok(Self { location, range: PutRange::One(offset), bytes: bytes.to_vec(), version });
        }
        let ranges = location.check_many("put", ends)?;
        let mut bytes = ranges.encode().to_vec();
        bytes.resize(ARENA_SLOT_BYTES, 0);
        parts.iter().for_each(|(_, part)| bytes.extend_from_slice(part));
        Ok(Self { location, range: PutRange::Many(ranges.as_slice().len() as u8), bytes, version })
    }

    pub(super) fn plan(&self) -> CallPlan<'_> {
        let Self { location, range, bytes, version } = self;
        let conditions = location.put_conditions(*version);
        match *range {
            PutRange::One(offset) => location.plan_put(offset, bytes, conditions),
            PutRange::Many(ranges) => {
                let (segment, list) = (location.id, ArenaRange::NOWHERE);
                let operation = Operation::PutMany { segment, list, ranges, conditions };
                location.plan("put", operation).sends(Outgoing::Bytes(bytes))
            }
        }
    }
}
