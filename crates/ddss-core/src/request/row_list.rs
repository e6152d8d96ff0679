//! Rows that one request reads from a table at another node.
//!
//! ```text
//!  first slot            from the second slot on
//! +--------+--------+   +-------+-----------+-------+-------+
//! | row    | row    |   | state | timestamp | bytes | state |   the record of each row, as one read takes it
//! +--------+--------+   +-------+-----------+-------+-------+
//! ```

use crate::Version;
use crate::limits::{ARENA_SLOT_BYTES, ROWS_MAX, TRANSFER_BYTES_MAX};
use crate::model::table::TableLayout;

/// Number of rows, and the bytes of each record: its two words, and the first bytes of the row.
///
/// ```
/// use ddss_core::RowList;
/// let list = RowList::new(3, 100).expect("three rows");
/// assert_eq!((list.rows(), list.record_bytes(), list.record_at(1)), (3, 120, 4096 + 120));
/// assert_eq!(RowList::version_of([6, 77]), Some(ddss_core::Version(3)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowList {
    rows: u16,
    record_bytes: u32,
}

impl RowList {
    /// Bytes of a row's number.
    pub const NUMBER_BYTES: usize = 8;

    /// Makes a list of rows of which `row_bytes` bytes are read, rounded up to whole words. `None` for none, or too many.
    pub const fn new(rows: usize, row_bytes: usize) -> Option<Self> {
        if row_bytes == 0
            || row_bytes > TableLayout::ROW_BYTES_MAX as usize
            || rows == 0
            || rows > Self::rows_max(row_bytes)
        {
            return None;
        }
        Some(Self { rows: rows as u16, record_bytes: Self::record_bytes_of(row_bytes) as u32 })
    }

    const fn record_bytes_of(row_bytes: usize) -> usize {
        TableLayout::RECORD_HEADER_BYTES as usize + row_bytes.next_multiple_of(TableLayout::ROW_UNIT as usize)
    }

    /// Returns the maximum number of rows of which `row_bytes` bytes are read.
    pub const fn rows_max(row_bytes: usize) -> usize {
        let rows = (TRANSFER_BYTES_MAX - ARENA_SLOT_BYTES) / Self::record_bytes_of(row_bytes);
        if rows < ROWS_MAX { rows } else { ROWS_MAX }
    }

    /// Derives the list from an untrusted request: the number of rows, and the bytes of the arena range.
    pub(crate) fn of_request(rows: u64, bytes: u32) -> Option<Self> {
        let rows = usize::try_from(rows).ok().filter(|rows| (1..=ROWS_MAX).contains(rows))?;
        let records = (bytes as usize).checked_sub(ARENA_SLOT_BYTES).filter(|bytes| bytes.is_multiple_of(rows))?;
        let row_bytes = (records / rows).checked_sub(TableLayout::RECORD_HEADER_BYTES as usize)?;
        Self::new(rows, row_bytes).filter(|list| list.bytes() == bytes as usize)
    }

    /// Returns the number of rows.
    pub const fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Returns the bytes of one record, which one read fetches.
    pub const fn record_bytes(&self) -> u32 {
        self.record_bytes
    }

    /// Returns the place of a record in the arena range.
    pub const fn record_at(&self, index: usize) -> usize {
        ARENA_SLOT_BYTES + index * self.record_bytes as usize
    }

    /// Returns the bytes of the arena range.
    pub const fn bytes(&self) -> usize {
        self.record_at(self.rows as usize)
    }

    /// Returns true if each row of a table has so many bytes.
    pub const fn fits(&self, layout: TableLayout) -> bool {
        let (from, to) = layout.bounds(0);
        self.record_bytes as u64 <= TableLayout::RECORD_HEADER_BYTES + to - from
    }

    /// Returns the version of a record by its two words; `None` if a put has not finished.
    pub const fn version_of([state, _]: [u64; 2]) -> Option<Version> {
        if state & 1 == 0 { Some(Version(state >> 1)) } else { None }
    }
}

const _: () = assert!(ROWS_MAX * RowList::NUMBER_BYTES <= ARENA_SLOT_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_hostile_clients_are_refused() {
        // If this broke, a client could let its node write behind its arena range, or read more than a transfer.
        let slot = ARENA_SLOT_BYTES as u32;
        assert_eq!(RowList::of_request(3, slot + 360), RowList::new(3, 100));
        for (rows, bytes) in [
            (0, slot + 360),
            (3, slot + 361),
            (3, slot + 3 * 20),
            (3, slot + 3 * 16),
            (3, slot),
            (3, 360),
            (ROWS_MAX as u64 + 1, slot + 24 * (ROWS_MAX as u32 + 1)),
            (256, u32::MAX),
            (u64::MAX, slot + 24),
            (2, TRANSFER_BYTES_MAX as u32 + 2 * slot),
        ] {
            assert_eq!(RowList::of_request(rows, bytes), None, "{rows} rows in {bytes} bytes");
        }
        for row_bytes in [1, 80, 3000, 4080, 100_000, TableLayout::ROW_BYTES_MAX as usize] {
            let rows = RowList::rows_max(row_bytes);
            let list = RowList::new(rows, row_bytes).unwrap();
            assert!(
                rows <= ROWS_MAX
                    && list.bytes() <= TRANSFER_BYTES_MAX
                    && list.record_bytes() as usize >= row_bytes + 16
            );
            assert_eq!(RowList::of_request(rows as u64, list.bytes() as u32), Some(list));
            assert_eq!((RowList::new(rows + 1, row_bytes), RowList::new(0, row_bytes)), (None, None));
        }
        assert_eq!((RowList::version_of([5, 0]), RowList::version_of([4, 9])), (None, Some(Version(2))));
    }
}
