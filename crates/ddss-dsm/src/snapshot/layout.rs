//! Rows of a snapshot.
//!
//! ```text
//! row 0       magic, bytes of an element, elements, generation, publisher | entries of the map's pages
//! other rows  page, 0, generation | 4096 bytes
//! entry       frame, generation modulo 2^16
//! ```

use super::error::SnapshotError;

pub(super) const PAGE_BYTES: usize = 4096;
pub(super) const HEADER_BYTES: usize = 16;
/// Bytes of a row.
pub(super) const ROW_BYTES: usize = HEADER_BYTES + PAGE_BYTES;
const ENTRY_BYTES: usize = 6;
/// Entries in a page of the map.
pub(super) const ENTRIES: usize = PAGE_BYTES / ENTRY_BYTES;
const MAGIC: [u8; 4] = *b"SNP1";
const ROOT_BYTES: usize = 32;
/// Pages of a map at most.
const MAPS_MAX: usize = (ROW_BYTES - ROOT_BYTES) / ENTRY_BYTES;
/// Bit of the numbers of pages of the map.
const MAP: u32 = 1 << 31;

const _: () = assert!(MAPS_MAX * ENTRIES < MAP as usize);

/// A page of the array, or of its map.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Page(u32);

impl Page {
    pub(super) fn of_array(number: usize) -> Self {
        Self(number as u32)
    }

    pub(super) fn of_map(number: usize) -> Self {
        Self(MAP | number as u32)
    }
}

/// Place of a page.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct PagePlace {
    pub(super) frame: u32,
    tag: u16,
}

impl PagePlace {
    pub(super) fn new(frame: u32, generation: u64) -> Self {
        Self { frame, tag: generation as u16 }
    }

    /// Returns the row of the frame.
    pub(super) fn row(self) -> u64 {
        1 + u64::from(self.frame)
    }

    /// Returns true if a row has the bytes of a page as a generation sees it.
    pub(super) fn is_of(self, page: Page, row: &[u8], generation: u64) -> bool {
        let Some((header, _)) = row.split_first_chunk::<HEADER_BYTES>() else { return false };
        let written = long(header, 8);
        row.len() >= ROW_BYTES && word(header, 0) == page.0 && written <= generation && self.tag == written as u16
    }
}

/// Returns the header of a frame.
pub(super) fn header(page: Page, generation: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&page.0.to_le_bytes());
    header[8..].copy_from_slice(&generation.to_le_bytes());
    header
}

/// Appends entries to a row.
pub(super) fn encode_entries(entries: &[PagePlace], into: &mut Vec<u8>) {
    for entry in entries {
        into.extend_from_slice(&entry.frame.to_le_bytes());
        into.extend_from_slice(&entry.tag.to_le_bytes());
    }
}

/// Decodes so many entries. `None` if one is outside a table with so many frames.
pub(super) fn decode_entries(bytes: &[u8], count: usize, frames: u64) -> Option<Vec<PagePlace>> {
    let parts = bytes.get(..count * ENTRY_BYTES)?.chunks_exact(ENTRY_BYTES);
    let entry = |part: &[u8]| PagePlace { frame: word(part, 0), tag: u16::from_le_bytes([part[4], part[5]]) };
    parts.map(entry).map(|entry| (u64::from(entry.frame) < frames).then_some(entry)).collect()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// Number of pages of an array, and of its map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) bytes: usize,
    pub(super) pages: usize,
    pub(super) maps: usize,
}

impl Shape {
    pub(super) fn new(elements: usize, element_bytes: usize) -> Result<Self, SnapshotError> {
        let bytes = elements.checked_mul(element_bytes).filter(|bytes| *bytes > 0);
        let shape = bytes.map(|bytes| {
            let pages = bytes.div_ceil(PAGE_BYTES);
            Self { bytes, pages, maps: pages.div_ceil(ENTRIES) }
        });
        let wrong = SnapshotError::Size { elements, bytes: element_bytes };
        shape.filter(|shape| shape.maps <= MAPS_MAX).ok_or(wrong)
    }

    /// Returns the entries in a page of the map.
    pub(super) fn entries_of(self, map: usize) -> usize {
        ENTRIES.min(self.pages - map * ENTRIES)
    }

    /// Returns the bytes of the array in a page.
    pub(super) fn bytes_of(self, page: usize) -> std::ops::Range<usize> {
        page * PAGE_BYTES..self.bytes.min((page + 1) * PAGE_BYTES)
    }
}

/// The root: what the readers of a generation begin with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Root {
    pub(super) element_bytes: u32,
    pub(super) elements: u64,
    /// 0 before the first.
    pub(super) generation: u64,
    /// Number of the publisher: each that opens the snapshot raises it.
    pub(super) publisher: u64,
    pub(super) maps: Vec<PagePlace>,
}

impl Root {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(ROOT_BYTES + self.maps.len() * ENTRY_BYTES);
        row.extend_from_slice(&MAGIC);
        row.extend_from_slice(&self.element_bytes.to_le_bytes());
        // Publishers are few.
        for field in [self.elements, self.generation, self.publisher] {
            row.extend_from_slice(&field.to_le_bytes());
        }
        encode_entries(&self.maps, &mut row);
        row
    }

    /// Decodes row 0 of a table with so many frames. `None` if no publisher has written it.
    pub(super) fn decode(row: &[u8], frames: u64) -> Result<Option<Self>, SnapshotError> {
        if row.len() < ROW_BYTES {
            return Err(SnapshotError::Format);
        }
        if row[..ROOT_BYTES].iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let (element_bytes, elements) = (word(row, 4), long(row, 8));
        let shape = Shape::new(elements.try_into().unwrap_or(usize::MAX), element_bytes as usize);
        let shape = shape.ok().filter(|_| row[..4] == MAGIC).ok_or(SnapshotError::Format)?;
        let (generation, publisher) = (long(row, 16), long(row, 24));
        let maps = if generation == 0 { 0 } else { shape.maps };
        let maps = decode_entries(&row[ROOT_BYTES..], maps, frames).ok_or(SnapshotError::Format)?;
        Ok(Some(Self { element_bytes, elements, generation, publisher, maps }))
    }

    /// Fails if the elements are not those of the caller.
    pub(super) fn compare(&self, element_bytes: usize, elements: Option<usize>) -> Result<(), SnapshotError> {
        let differs = |what, theirs: u64, ours: u64| {
            if theirs == ours { Ok(()) } else { Err(SnapshotError::Mismatch { what, theirs, ours }) }
        };
        differs("bytes an element", self.element_bytes.into(), element_bytes as u64)?;
        elements.map_or(Ok(()), |ours| differs("elements", self.elements, ours as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_round_trips_and_foreign_rows_are_refused() {
        // If this broke, a reader would take other bytes for a snapshot, or read outside its table.
        let maps: Vec<_> = (0..2).map(|map| PagePlace::new(900 + map, 65_537)).collect();
        let root = Root { element_bytes: 8, elements: 400_000, generation: 65_537, publisher: 3, maps };
        let mut row = root.encode();
        row.resize(ROW_BYTES, 0);
        assert_eq!(Root::decode(&row, 902).unwrap(), Some(root));
        assert!(matches!(Root::decode(&row, 901), Err(SnapshotError::Format)), "a frame outside");
        assert!(matches!(Root::decode(&row[..100], 902), Err(SnapshotError::Format)));
        assert_eq!(Root::decode(&[0; ROW_BYTES], 902).unwrap(), None);
        row[0] ^= 1;
        assert!(matches!(Root::decode(&row, 902), Err(SnapshotError::Format)));
        assert!(Shape::new(0, 8).is_err() && Shape::new(usize::MAX, 8).is_err() && Shape::new(1 << 31, 1).is_err());
        assert_eq!(Shape::new(ENTRIES * PAGE_BYTES + 1, 1).unwrap().maps, 2);
    }

    #[test]
    fn frame_is_that_of_one_page_and_generation() {
        // If this broke, a reader would mix two generations, or two pages.
        let (page, entry) = (Page::of_array(7), PagePlace::new(3, 70_000));
        let mut row = header(page, 70_000).to_vec();
        row.resize(ROW_BYTES, 0);
        assert!(entry.is_of(page, &row, 70_000) && entry.is_of(page, &row, 70_001));
        assert!(!entry.is_of(page, &row, 69_999), "written by a newer generation");
        assert!(!entry.is_of(Page::of_array(8), &row, 70_000) && !entry.is_of(Page::of_map(7), &row, 70_000));
        assert!(!PagePlace::new(3, 69_999).is_of(page, &row, 70_000), "the page of another generation");
        assert!(!entry.is_of(page, &row[..100], 70_000));
    }
}
