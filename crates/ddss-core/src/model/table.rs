//! Layout of a table: a segment of many records, each with a version of its own.
//!
//! ```text
//!  segment header (64 bytes), then for each row:
//!  0                8            16
//! +----------------+------------+---------------------------+
//! | version·2 + w  | timestamp  | row_bytes bytes           |   then the next record
//! +----------------+------------+---------------------------+
//! ```
//!
//! Callers address a table as if its rows lay back to back: row `i` begins at offset `i * row_bytes`. A call stays inside
//! one row. The first two words of a record have the meaning that they have in a [`Header`]. The header of the segment
//! identifies all records, and holds the lock of the whole table.

use super::segment::Header;
use crate::model::ranges::Range;

/// Offset of a wait for the change of any row. It lies in no row.
pub const ANY_ROW: u64 = u64::MAX;

/// Layout of a table's records, for a checked row size.
///
/// ```
/// use ddss_core::TableLayout;
/// let layout = TableLayout::new(24).expect("a multiple of eight");
/// assert_eq!((layout.row_of(30, 8), layout.row_of(40, 9)), (Some(1), None));
/// assert_eq!(TableLayout::new(0), None, "a plain segment");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableLayout {
    row_bytes: u64,
}

/// Place of one record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordPlace {
    /// Place of its state word.
    pub header: u64,
    /// Place from which the offsets of a call count: that of row 0, if all rows before this one had no header.
    pub data: u64,
}

impl RecordPlace {
    /// Returns the place of a plain segment's state word and bytes.
    #[must_use]
    pub const fn of_plain_segment(at: u64) -> Self {
        Self { header: at, data: at + Header::DATA_OFFSET }
    }

    /// Returns the place in a segment whose header lies at `at`.
    #[must_use]
    pub const fn of_segment(self, at: u64) -> Self {
        Self { header: at + self.header, data: at + self.data }
    }
}

impl TableLayout {
    /// Bytes in front of each row: state word and timestamp.
    pub const RECORD_HEADER_BYTES: u64 = 16;
    /// Row sizes are multiples of this, so that each state word is aligned.
    pub const ROW_UNIT: u32 = 8;
    /// Maximum bytes of a row: an encoded specification holds the number of units in two bytes.
    pub const ROW_BYTES_MAX: u32 = Self::ROW_UNIT * u16::MAX as u32;

    /// Makes the layout for rows of that size; `None` for a plain segment, or a size that no table has.
    pub const fn new(row_bytes: u32) -> Option<Self> {
        if row_bytes == 0 || row_bytes > Self::ROW_BYTES_MAX || !row_bytes.is_multiple_of(Self::ROW_UNIT) {
            return None;
        }
        Some(Self { row_bytes: row_bytes as u64 })
    }

    /// Returns the row that contains a range, or `None` if no single row does. The caller checks the end of the table.
    #[inline]
    pub const fn row_of(&self, offset: u64, bytes: u32) -> Option<u64> {
        let row = offset / self.row_bytes;
        if offset - row * self.row_bytes + bytes as u64 <= self.row_bytes { Some(row) } else { None }
    }

    /// Returns the row that contains all these ranges.
    pub fn row_of_ranges(&self, ranges: &[Range]) -> Option<u64> {
        let mut rows = ranges.iter().map(|range| self.row_of(range.offset, range.bytes));
        let first = rows.next()??;
        rows.all(|row| row == Some(first)).then_some(first)
    }

    /// Returns the place of a row's record, counted from the segment's header.
    #[inline]
    pub const fn record(&self, row: u64) -> RecordPlace {
        let header = Header::DATA_OFFSET + row * (Self::RECORD_HEADER_BYTES + self.row_bytes);
        RecordPlace { header, data: Header::DATA_OFFSET + (row + 1) * Self::RECORD_HEADER_BYTES }
    }

    /// Returns the row whose record begins there, counted from the segment's header.
    pub const fn row_at(&self, header: u64) -> Option<u64> {
        let stride = Self::RECORD_HEADER_BYTES + self.row_bytes;
        match header.checked_sub(Header::DATA_OFFSET) {
            Some(distance) if distance.is_multiple_of(stride) => Some(distance / stride),
            _ => None,
        }
    }

    /// Returns the offsets of a row's bytes: its first, and the end behind its last.
    pub const fn bounds(&self, row: u64) -> (u64, u64) {
        (row * self.row_bytes, (row + 1) * self.row_bytes)
    }

    /// Returns the number of rows of a table with that many bytes.
    pub const fn rows(&self, bytes: u64) -> u64 {
        bytes / self.row_bytes
    }

    /// Returns the bytes of memory that a table with `bytes` bytes of rows takes, with all headers.
    pub const fn pool_bytes(&self, bytes: u64) -> u64 {
        Header::DATA_OFFSET + bytes + self.rows(bytes) * Self::RECORD_HEADER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_do_not_overlap_and_rows_keep_their_offsets() {
        // If this broke, a put of one row would change another row or its version.
        let layout = TableLayout::new(24).unwrap();
        let mut end = Header::DATA_OFFSET;
        for row in 0..100 {
            let RecordPlace { header, data } = layout.record(row);
            let (first, last) = layout.bounds(row);
            assert_eq!((header, data + first), (end, end + TableLayout::RECORD_HEADER_BYTES));
            assert_eq!(layout.row_at(header), Some(row));
            assert_eq!(layout.row_at(header + 8), None);
            end = data + last;
        }
        assert_eq!(layout.pool_bytes(2400), end);
    }

    #[test]
    fn range_belongs_to_one_row_or_none() {
        // If this broke, one version would cover a part of two rows.
        let layout = TableLayout::new(24).unwrap();
        let range = |offset, bytes| Range { offset, bytes };
        assert_eq!(layout.row_of(0, 24), Some(0));
        assert_eq!(layout.row_of(23, 2), None);
        assert_eq!(layout.row_of(24, 0), Some(1));
        assert_eq!(layout.row_of(u64::MAX, u32::MAX), None);
        assert_eq!(layout.row_of_ranges(&[range(24, 8), range(40, 8)]), Some(1));
        assert_eq!(layout.row_of_ranges(&[range(24, 8), range(48, 8)]), None);
        assert_eq!(layout.row_of_ranges(&[]), None);
        for wrong in [0, 4, 12, TableLayout::ROW_BYTES_MAX + 8] {
            assert_eq!(TableLayout::new(wrong), None);
        }
    }
}
