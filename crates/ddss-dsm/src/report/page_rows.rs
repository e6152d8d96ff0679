//! Rows with the hot pages of a rank, behind those with the regions of its space.

use ddss_dsm_core::limits::{HOT_PAGES_MAX, RANKS_MAX};
use ddss_dsm_core::{HotPage, PageId, Rank, RankSet};
use ddss_group::Row;

/// First bytes of a row, with the release of its format.
const FORMAT: [u8; 4] = *b"DSP1";
const ENTRY_BYTES: usize = 10;
/// Rows for regions.
pub(crate) const REGION_ROWS: u16 = 128;
/// Rows of a space besides those of its ranks.
pub(crate) const ROWS: u16 = REGION_ROWS + 2 * RANKS_MAX as u16;

const _: () = assert!(FORMAT.len() + HOT_PAGES_MAX * ENTRY_BYTES <= size_of::<Row>());

/// A list of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageList(u16);

/// Pages that a rank fetched most often.
pub(crate) const FETCHED: PageList = PageList(0);
/// Pages that several ranks wrote between two barriers.
pub(crate) const SHARED: PageList = PageList(1);

impl PageList {
    /// Returns the number of the row.
    pub(crate) fn row_of(self, rank: u16) -> u16 {
        REGION_ROWS + 2 * rank + self.0
    }
}

pub(crate) fn encode_pages(pages: &[HotPage]) -> Row {
    let mut row = [0; size_of::<Row>()];
    row[..4].copy_from_slice(&FORMAT);
    for (entry, hot) in row[4..].chunks_exact_mut(ENTRY_BYTES).zip(pages) {
        entry[..4].copy_from_slice(&hot.page.0.to_le_bytes());
        entry[4..8].copy_from_slice(&hot.count.to_le_bytes());
        let writers = hot.writers.iter().fold(0_u16, |bits, rank| bits | 1 << rank.index());
        entry[8..].copy_from_slice(&writers.to_le_bytes());
    }
    row
}

/// Decodes a row. A page with the count 0 is none.
pub(crate) fn decode_pages(row: &Row) -> Vec<HotPage> {
    if row[..4] != FORMAT {
        return Vec::new();
    }
    let (entries, _) = row[4..].as_chunks::<ENTRY_BYTES>();
    let page = |entry: &[u8; ENTRY_BYTES]| {
        let [page, count] =
            [0, 4].map(|at| u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]));
        let bits = u16::from_le_bytes([entry[8], entry[9]]);
        let mut writers = RankSet::default();
        for rank in (0..RANKS_MAX).filter(|rank| bits >> rank & 1 == 1).filter_map(Rank::new) {
            writers.insert(rank);
        }
        HotPage { page: PageId(page), count, writers }
    };
    entries.iter().map(page).filter(|hot| hot.count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_round_trip_and_rows_are_those_of_one_rank() {
        // If this broke, `ddss dsm top --pages` would name wrong pages, or one rank would overwrite the row of another.
        let mut writers = RankSet::default();
        for rank in [0, 15].into_iter().filter_map(Rank::new) {
            writers.insert(rank);
        }
        let pages: Vec<_> = (1..=HOT_PAGES_MAX as u32)
            .map(|number| HotPage { page: PageId(number << 20), count: number, writers })
            .collect();
        assert_eq!(decode_pages(&encode_pages(&pages)), pages);
        assert_eq!(decode_pages(&encode_pages(&pages[..1])), pages[..1]);
        assert_eq!(decode_pages(&[7; size_of::<Row>()]), []);
        let mut rows: Vec<_> = (0..16).flat_map(|rank| [FETCHED.row_of(rank), SHARED.row_of(rank)]).collect();
        rows.sort_unstable();
        assert_eq!(rows, (REGION_ROWS..ROWS).collect::<Vec<_>>());
    }
}
