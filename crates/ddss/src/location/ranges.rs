//! Plans of calls with several ranges of one segment.

use crate::error::Error;
use crate::location::SegmentLocation;
use crate::plan::{CallPlan, Decoder, Outgoing, PlannedCall, Reply, list_bytes};
use crate::value::{Stamp, Value};
use ddss_core::limits::{ARENA_SLOT_BYTES, RANGES_MAX};
use ddss_core::{ArenaRange, BadArgument, Failure, Operation, PutConditions, Ranges};

impl SegmentLocation {
    /// Checks the number of ranges, each range and their total size.
    pub(crate) fn check_many(
        &self,
        action: &'static str,
        ranges: impl Iterator<Item = (u64, u128)> + Clone,
    ) -> Result<Ranges, Error> {
        let failed = |failure| Error::failed(action, self.name.to_string(), failure);
        for (offset, end) in ranges.clone() {
            self.check(action, offset, end)?;
        }
        let count = ranges.clone().count();
        if !(1..=RANGES_MAX).contains(&count) {
            let most = format_args!("1 to {RANGES_MAX}: make several calls");
            let failure = if count == 0 { Failure::Malformed } else { Failure::TooLarge };
            return Err(Error::argument(action, &self.name)(BadArgument::new(
                "number of ranges",
                count,
                most,
                failure,
            )));
        }
        // A range that is too long for its field is too long in total.
        let bytes = |(offset, end): (u64, u128)| u32::try_from(end - u128::from(offset)).unwrap_or(u32::MAX);
        let ranges = ranges.map(|range| ddss_core::Range { offset: range.0, bytes: bytes(range) });
        Ranges::new(ranges).map_err(failed)
    }

    /// Plans a get of ranges. The bytes lie one behind the other, after the slot of their table.
    pub(crate) fn plan_get_many<'a>(
        &'a self,
        table: &'a [u8],
        ranges: &Ranges,
        mut take: impl FnMut(&Reply<'_>, usize) + Send,
    ) -> PlannedCall<'a, impl Decoder<Stamp>> {
        self.plan_get_ranges(table, ranges).returns(move |completion, reply| {
            take(reply, ARENA_SLOT_BYTES);
            Stamp::of(completion)
        })
    }

    pub(crate) fn plan_get_ranges<'a>(&'a self, table: &'a [u8], ranges: &Ranges) -> CallPlan<'a> {
        let (list, count, options) = (ArenaRange::NOWHERE, ranges.as_slice().len() as u8, self.read_options(None));
        let operation = Operation::GetMany { segment: self.id, list, ranges: count, options };
        self.plan("get", operation).sends(Outgoing::Bytes(table)).receives(list_bytes(ranges))
    }

    /// Plans a put of ranges.
    pub(crate) fn plan_put_many<'a>(
        &'a self,
        ranges: &'a Ranges,
        parts: &'a [(u64, &'a [u8])],
        conditions: PutConditions,
    ) -> PlannedCall<'a, impl Decoder<Stamp>> {
        let (list, count) = (ArenaRange::NOWHERE, ranges.as_slice().len() as u8);
        let operation = Operation::PutMany { segment: self.id, list, ranges: count, conditions };
        let plan = self.plan("put", operation).sends(Outgoing::Parts(ranges, parts));
        plan.returns(|completion, _| Stamp::of(completion))
    }
}

/// Returns the bounds of parts to read.
pub(crate) fn bounds_of<'a>(parts: &'a [(u64, &mut [u8])]) -> impl Iterator<Item = (u64, u128)> + Clone + use<'a> {
    parts.iter().map(|(offset, into)| (*offset, u128::from(*offset) + into.len() as u128))
}

/// Copies a reply's bytes into the parts.
pub(crate) fn fill(parts: &mut [(u64, &mut [u8])], reply: &Reply<'_>, mut at: usize) {
    for (_, into) in parts {
        reply.read(at, into);
        at += into.len();
    }
}

/// Splits the bytes into one value for each range.
pub(crate) fn split(ranges: &Ranges, bytes: &[u8], stamp: Stamp) -> Vec<Value> {
    let mut left = bytes;
    let part = |range: &ddss_core::Range| {
        let (part, rest) = left.split_at(range.bytes as usize);
        left = rest;
        Value::new(part.to_vec(), stamp)
    };
    ranges.as_slice().iter().map(part).collect()
}
