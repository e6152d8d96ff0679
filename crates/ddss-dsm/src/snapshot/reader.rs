//! Pages of a snapshot that a reader holds, and the rows that it lacks. It makes no call.

use super::error::SnapshotError;
use super::layout::{ENTRIES, HEADER_BYTES, PAGE_BYTES, Page, PagePlace, Root, Shape, decode_entries};
use ddss::{Batch, Replies, Ticket, Value};
use std::ops::{Bound, Range, RangeBounds};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// Rows that are read together.
const BATCH_ROWS: usize = 32;
/// Generations behind which entries of two generations can be equal by chance.
const TAGS: u64 = 1 << 16;

/// Pages of a snapshot that a reader holds.
#[derive(Debug)]
pub(super) struct Reader<T> {
    /// Frames of the table.
    frames: u64,
    root: Root,
    shape: Shape,
    /// Pages of the map that were read.
    maps: Vec<Option<MapPage>>,
    /// Pages that are held.
    held: Vec<bool>,
    array: Box<[T]>,
    fetched: u64,
}

/// A page of the map.
#[derive(Debug)]
struct MapPage {
    entry: PagePlace,
    /// Last generation of which it is known to be part.
    generation: u64,
    entries: Vec<PagePlace>,
}

/// Rows that a reader asks for.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) batch: Batch,
    pub(super) wanted: Vec<(Wanted, Ticket<Value>)>,
}

/// A page that a reader lacks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    Map(usize),
    Page(usize),
}

impl<T: FromBytes + IntoBytes + Immutable> Reader<T> {
    /// Creates a reader with the root of a table with so many rows.
    pub(super) fn new(row: &[u8], rows: u64) -> Result<Self, SnapshotError> {
        let frames = rows.saturating_sub(1);
        let root = Self::decode(row, frames)?;
        root.compare(size_of::<T>(), None)?;
        let elements = usize::try_from(root.elements).unwrap_or(usize::MAX);
        let shape = Shape::new(elements, size_of::<T>())?;
        let array = <[T]>::new_box_zeroed_with_elems(elements)
            .map_err(|_| SnapshotError::Size { elements, bytes: size_of::<T>() })?;
        let (maps, held) = ((0..shape.maps).map(|_| None).collect(), vec![false; shape.pages]);
        Ok(Self { frames, root, shape, maps, held, array, fetched: 1 })
    }

    fn decode(row: &[u8], frames: u64) -> Result<Root, SnapshotError> {
        let root = Root::decode(row, frames)?;
        root.filter(|root| root.generation > 0).ok_or(SnapshotError::Unpublished)
    }

    pub(super) fn generation(&self) -> u64 {
        self.root.generation
    }

    pub(super) fn len(&self) -> usize {
        self.array.len()
    }

    /// Returns the number of rows that were read.
    pub(super) fn fetched(&self) -> u64 {
        self.fetched
    }

    /// Takes a newer root. Pages of the map whose entries differ are read again, and then pages whose entries differ.
    /// Returns false if it is no newer one.
    pub(super) fn refresh(&mut self, row: &[u8]) -> Result<bool, SnapshotError> {
        self.fetched += 1;
        let root = Self::decode(row, self.frames)?;
        root.compare(size_of::<T>(), Some(self.len()))?;
        if root.generation <= self.root.generation {
            return Ok(false);
        }
        let is_near = root.generation - self.root.generation < TAGS;
        for (map, entry) in self.maps.iter_mut().zip(&root.maps) {
            if let Some(map) = map.as_mut().filter(|map| is_near && map.entry == *entry)
                && map.generation == self.root.generation
            {
                map.generation = root.generation;
            }
        }
        self.root = root;
        Ok(true)
    }

    /// Returns the entries in a page of the map, if it is one of this generation.
    fn entries(&self, map: usize) -> Option<&[PagePlace]> {
        let map = self.maps[map].as_ref().filter(|map| map.generation == self.root.generation);
        map.map(|map| map.entries.as_slice())
    }

    /// Returns the rows that have to be read before a range can be used: first those of the map. `None` if all are held. `get` adds
    /// the get of a row to a batch.
    pub(super) fn next_step(
        &self,
        range: &Range<usize>,
        mut get: impl FnMut(&mut Batch, u64) -> Result<Ticket<Value>, ddss::Error>,
    ) -> Result<Option<Step>, SnapshotError> {
        if range.is_empty() {
            return Ok(None);
        }
        let bytes = range.start * size_of::<T>()..range.end * size_of::<T>();
        let (first, end) = (bytes.start / PAGE_BYTES, bytes.end.div_ceil(PAGE_BYTES));
        let maps = first / ENTRIES..end.div_ceil(ENTRIES);
        let missing =
            maps.filter(|map| self.entries(*map).is_none()).map(|map| (Wanted::Map(map), self.root.maps[map]));
        let mut rows: Vec<(Wanted, PagePlace)> = missing.take(BATCH_ROWS).collect();
        if rows.is_empty() {
            let entry = |page: usize| Some((Wanted::Page(page), self.entries(page / ENTRIES)?[page % ENTRIES]));
            rows.extend((first..end).filter(|page| !self.held[*page]).filter_map(entry).take(BATCH_ROWS));
        }
        let (mut batch, mut wanted) = (Batch::new(), Vec::with_capacity(rows.len()));
        for (what, entry) in rows {
            wanted.push((what, get(&mut batch, entry.row())?));
        }
        Ok((!wanted.is_empty()).then_some(Step { batch, wanted }))
    }

    /// Takes the rows of a step.
    pub(super) fn apply(
        &mut self,
        wanted: Vec<(Wanted, Ticket<Value>)>,
        mut replies: Replies,
    ) -> Result<(), SnapshotError> {
        for (what, ticket) in wanted {
            let row = replies.take(ticket)?;
            self.fetched += 1;
            match what {
                Wanted::Map(map) => self.take_map(map, &row)?,
                Wanted::Page(page) => self.take_page(page, &row)?,
            }
        }
        Ok(())
    }

    fn take_map(&mut self, map: usize, row: &[u8]) -> Result<(), SnapshotError> {
        let (entry, generation) = (self.root.maps[map], self.root.generation);
        if !entry.is_of(Page::of_map(map), row, generation) {
            return Err(SnapshotError::Superseded);
        }
        let count = self.shape.entries_of(map);
        let entries = decode_entries(&row[HEADER_BYTES..], count, self.frames).ok_or(SnapshotError::Format)?;
        let held = &mut self.held[map * ENTRIES..map * ENTRIES + count];
        match &self.maps[map] {
            // Entries that are older could be equal by chance.
            Some(known) if generation - known.generation < TAGS => {
                let differs = known.entries.iter().zip(&entries).map(|(known, entry)| known != entry);
                held.iter_mut().zip(differs).for_each(|(held, differs)| *held &= !differs);
            }
            _ => held.fill(false),
        }
        self.maps[map] = Some(MapPage { entry, generation, entries });
        Ok(())
    }

    fn take_page(&mut self, page: usize, row: &[u8]) -> Result<(), SnapshotError> {
        let entry = self.entries(page / ENTRIES).map(|entries| entries[page % ENTRIES]);
        if !entry.is_some_and(|entry| entry.is_of(Page::of_array(page), row, self.root.generation)) {
            return Err(SnapshotError::Superseded);
        }
        let bytes = self.shape.bytes_of(page);
        let content = &row[HEADER_BYTES..HEADER_BYTES + bytes.len()];
        self.array.as_mut_bytes()[bytes].copy_from_slice(content);
        self.held[page] = true;
        Ok(())
    }

    /// Returns elements, all of whose pages are held.
    pub(super) fn elements(&self, range: Range<usize>) -> &[T] {
        &self.array[range]
    }

    /// Returns the elements of a range.
    pub(super) fn range(&self, range: impl RangeBounds<usize>) -> Result<Range<usize>, SnapshotError> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.len(),
        };
        let len = self.len();
        if start > end || end > len { Err(SnapshotError::OutOfRange { start, end, len }) } else { Ok(start..end) }
    }
}
