//! Records of the log.
//!
//! ```text
//!  0          4          8          12         16        20
//!  +----------+----------+----------+----------+---------+---------+----
//!  | interval | ranges   | checksum | 0        | first   | pages   | next range
//!  +----------+----------+----------+----------+---------+---------+----
//! ```
//!
//! `ranges` is `0xffff_ffff` in a coarse record, which stands for all pages. A peer reads a record while its owner may
//! write the next interval over it, so the checksum tells a torn record from a complete one.

use crate::limits::{RANGE_BYTES, RECORD_HEADER_BYTES};
use crate::model::{ChangedPages, PageId, PageRange};

/// Value of the field `ranges` in a coarse record.
const COARSE: u32 = u32::MAX;

/// Appends a record.
pub(crate) fn encode_record(interval: u32, pages: &ChangedPages, into: &mut Vec<u8>) {
    let start = into.len();
    let (count, ranges) = match pages {
        ChangedPages::Coarse => (COARSE, &[][..]),
        ChangedPages::Exact(ranges) => (ranges.len() as u32, ranges.as_slice()),
    };
    for field in [interval, count, 0, 0] {
        into.extend_from_slice(&field.to_le_bytes());
    }
    for range in ranges {
        into.extend_from_slice(&range.first.0.to_le_bytes());
        into.extend_from_slice(&range.pages.to_le_bytes());
    }
    let sum = checksum(&into[start..]);
    into[start + 8..start + 12].copy_from_slice(&sum.to_le_bytes());
}

/// Reads the record of an interval from its slot. `None` if the slot holds another interval or is being written.
pub(crate) fn read_record(slot: &[u8], interval: u32, pages: u32) -> Option<ChangedPages> {
    let field =
        |at: usize| slot.get(at..at + 4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    let count = field(4)?;
    let ranges = if count == COARSE { 0 } else { count as usize };
    let end = RANGE_BYTES.checked_mul(ranges)?.checked_add(RECORD_HEADER_BYTES)?;
    let record = slot.get(..end)?;
    if field(0)? != interval || field(8)? != checksum(record) {
        return None;
    }
    if count == COARSE {
        return Some(ChangedPages::Coarse);
    }
    let range = |bytes: &[u8]| {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        PageRange { first: PageId(word(0)), pages: word(4) }
    };
    let ranges: Vec<PageRange> = record[RECORD_HEADER_BYTES..].chunks_exact(RANGE_BYTES).map(range).collect();
    PageRange::are_of_interval(&ranges, pages).then_some(ChangedPages::Exact(ranges))
}

/// Checksum of a record, without the field that holds it (FNV-1a).
fn checksum(record: &[u8]) -> u32 {
    let summed = record[..8].iter().chain(&record[12..]);
    summed.fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a reader would take notices from a record that its owner is overwriting.
    #[test]
    fn torn_and_foreign_records_are_refused() {
        let pages = ChangedPages::Exact(vec![PageRange { first: PageId(3), pages: 2 }, PageRange::one(PageId(9))]);
        let mut slot = Vec::new();
        encode_record(7, &pages, &mut slot);
        assert_eq!(read_record(&slot, 7, 10), Some(pages));
        assert_eq!(read_record(&slot, 6, 10), None, "another interval");
        assert_eq!(read_record(&slot, 7, 9), None, "a page outside the space");
        let mut unsorted = Vec::new();
        let ranges = vec![PageRange { first: PageId(3), pages: 2 }, PageRange::one(PageId(4))];
        encode_record(7, &ChangedPages::Exact(ranges), &mut unsorted);
        assert_eq!(read_record(&unsorted, 7, 10), None, "a page twice");
        for at in (0..slot.len()).filter(|at| !(8..12).contains(at)) {
            let mut torn = slot.clone();
            torn[at] ^= 1;
            assert_eq!(read_record(&torn, 7, 10), None, "byte {at}");
        }
        let mut coarse = Vec::new();
        encode_record(8, &ChangedPages::Coarse, &mut coarse);
        assert_eq!(read_record(&coarse, 8, 10), Some(ChangedPages::Coarse));
    }
}
