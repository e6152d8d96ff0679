//! Range table of a vectored get or put.
//!
//! ```text
//!  0        8       12         16
//! +--------+-------+----------+
//! | offset | bytes | reserved |   one of these for each range
//! +--------+-------+----------+
//! ```

use crate::failure::Failure;
use crate::limits::{RANGES_MAX, TRANSFER_BYTES_MAX};
use arrayvec::ArrayVec;

/// One range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Range {
    /// Offset in the segment.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
}

/// One to [`RANGES_MAX`] ranges, together at most [`TRANSFER_BYTES_MAX`] bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ranges(ArrayVec<Range, RANGES_MAX>);

impl Ranges {
    /// Bytes of one range in the table.
    pub const ENTRY_BYTES: usize = 16;
    /// Bytes of the largest table.
    pub const TABLE_BYTES_MAX: usize = Self::ENTRY_BYTES * RANGES_MAX;

    /// Checks number and sum; the segment's home checks the bounds.
    pub fn new(ranges: impl IntoIterator<Item = Range>) -> Result<Self, Failure> {
        let mut held = ArrayVec::new();
        let mut sum = 0u64;
        for range in ranges {
            sum += u64::from(range.bytes);
            held.try_push(range).map_err(|_| Failure::TooLarge)?;
        }
        match sum {
            0 => Err(Failure::Malformed),
            sum if sum > TRANSFER_BYTES_MAX as u64 => Err(Failure::TooLarge),
            _ => Ok(Self(held)),
        }
    }

    /// Returns the bytes of all ranges together.
    pub fn sum(&self) -> u32 {
        self.0.iter().map(|range| range.bytes).sum()
    }

    /// Returns the ranges, in order.
    pub fn as_slice(&self) -> &[Range] {
        &self.0
    }

    /// Encodes the table.
    pub fn encode(&self) -> ArrayVec<u8, { Self::TABLE_BYTES_MAX }> {
        let mut out = ArrayVec::new();
        for range in &self.0 {
            let mut entry = [0; Self::ENTRY_BYTES];
            entry[..8].copy_from_slice(&range.offset.to_le_bytes());
            entry[8..12].copy_from_slice(&range.bytes.to_le_bytes());
            out.try_extend_from_slice(&entry).expect("there are at most so many ranges");
        }
        out
    }

    /// Decodes an untrusted copy of a table.
    pub fn decode(table: &[u8]) -> Result<Self, Failure> {
        let (entries, rest) = table.as_chunks::<{ Self::ENTRY_BYTES }>();
        if !rest.is_empty() {
            return Err(Failure::Malformed);
        }
        Self::new(entries.iter().map(|entry| Range {
            offset: u64::from_le_bytes(std::array::from_fn(|i| entry[i])),
            bytes: u32::from_le_bytes(std::array::from_fn(|i| entry[8 + i])),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_table_round_trips_and_rejects_malformed() {
        // If this broke, a vectored put could write outside its ranges, or more than one transfer allows.
        let range = |offset, bytes| Range { offset, bytes };
        let ranges = Ranges::new([range(u64::MAX, 1), range(7, 0), range(8, 99)]).unwrap();
        assert_eq!(Ranges::decode(&ranges.encode()), Ok(ranges.clone()));
        assert_eq!(ranges.sum(), 100);
        assert_eq!(Ranges::decode(&ranges.encode()[1..]), Err(Failure::Malformed));
        assert_eq!(Ranges::new([]), Err(Failure::Malformed));
        assert_eq!(Ranges::new([range(0, 0)]), Err(Failure::Malformed));
        assert_eq!(Ranges::new([range(0, u32::MAX), range(0, 2)]), Err(Failure::TooLarge));
        assert_eq!(Ranges::new([range(0, 1); RANGES_MAX + 1]), Err(Failure::TooLarge));
    }
}
