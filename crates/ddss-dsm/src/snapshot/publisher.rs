//! Publisher of a snapshot.

use super::blocking::Snapshot;
use super::error::SnapshotError;
use super::layout::{
    ENTRIES, HEADER_BYTES, Page, PagePlace, ROW_BYTES, Root, Shape, decode_entries, encode_entries, header,
};
use ddss::{Batch, Client, Error, ErrorKind, PutOptions, Spec, Table, Version};
use std::collections::{BTreeSet, VecDeque};
use std::marker::PhantomData;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Rows that are written together.
const BATCH_ROWS: usize = 32;

/// Options of [`Publisher::open`] for a snapshot that does not exist.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct PublisherOptions {
    spare_pages: Option<u32>,
    copies: u8,
}

impl Default for PublisherOptions {
    fn default() -> Self {
        Self { spare_pages: None, copies: 1 }
    }
}

impl PublisherOptions {
    /// Creates options: as many spare pages as the array has, one copy.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the pages that may change from one generation to the next. More let readers use a generation for longer.
    pub fn spare_pages(mut self, pages: u32) -> Self {
        self.spare_pages = Some(pages);
        self
    }

    /// Sets the copies: with two, the snapshot outlives its node.
    pub fn copies(mut self, copies: u8) -> Self {
        self.copies = copies;
        self
    }
}

/// Publisher of a snapshot, which readers [open](super::Snapshot::open) by name.
///
/// ```no_run
/// use ddss_dsm::snapshot::{Publisher, PublisherOptions};
/// let client = ddss::Client::connect()?;
/// let mut index = vec![0_u64; 1 << 20];
/// let mut publisher = Publisher::open(&client, "index", index.len(), PublisherOptions::new())?;
/// index[7] = 42;
/// println!("generation {}", publisher.publish(&index)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Publisher<T> {
    client: Client,
    table: Table,
    shape: Shape,
    root: Root,
    /// Version of the row of the root. `None` if it may be another publisher's.
    root_version: Option<Version>,
    /// Places of the pages of the last generation.
    entries: Vec<PagePlace>,
    /// Bytes of the last generation.
    published: Vec<u8>,
    /// Versions of the rows of the frames. `None` if unknown.
    versions: Vec<Option<Version>>,
    /// Frames of no page of the last generation, those that were freed first in front.
    free: VecDeque<u32>,
    _elements: PhantomData<fn(T)>,
}

impl<T: FromBytes + IntoBytes + Immutable> Publisher<T> {
    /// Opens a snapshot of so many elements, and makes it if it does not exist. An earlier publisher fails from now on.
    ///
    /// # Errors
    /// The snapshot has other elements, there is no room for it, or the error of a call.
    pub fn open(
        client: &Client,
        name: &str,
        elements: usize,
        options: PublisherOptions,
    ) -> Result<Self, SnapshotError> {
        let shape = Shape::new(elements, size_of::<T>())?;
        let used = (shape.pages + shape.maps) as u64;
        let spare = options.spare_pages.map_or(used, |pages| u64::from(pages) + shape.maps as u64);
        let table =
            open_table(client, name, Spec::new(1 + used + spare).row_len(ROW_BYTES as u32).copies(options.copies))?;
        let row = table.row(0).get()?;
        let frames = table.len().saturating_sub(1);
        let found = Root::decode(&row, frames)?;
        let mut root = found.unwrap_or(Root {
            element_bytes: size_of::<T>() as u32,
            elements: elements as u64,
            generation: 0,
            publisher: 0,
            maps: Vec::new(),
        });
        root.compare(size_of::<T>(), Some(elements))?;
        root.publisher += 1;
        let stamp = table.row(0).put_if(row.version(), &root.encode()).map_err(replaced)?;
        let mut publisher = Self {
            client: client.clone(),
            table,
            shape,
            root_version: Some(stamp.version),
            entries: vec![PagePlace::default(); shape.pages],
            published: vec![0; shape.bytes],
            versions: vec![None; usize::try_from(frames).unwrap_or(usize::MAX)],
            free: VecDeque::new(),
            root,
            _elements: PhantomData,
        };
        if publisher.root.generation > 0 {
            publisher.read_last(name)?;
        }
        let used: BTreeSet<u32> = publisher.used().collect();
        publisher.free = (0..publisher.versions.len() as u32).filter(|frame| !used.contains(frame)).collect();
        Ok(publisher)
    }

    /// Returns the frames of the last generation.
    fn used(&self) -> impl Iterator<Item = u32> {
        let pages = if self.root.generation == 0 { &[][..] } else { &self.entries };
        pages.iter().chain(&self.root.maps).map(|entry| entry.frame)
    }

    /// Reads the generation that an earlier publisher has left.
    fn read_last(&mut self, name: &str) -> Result<(), SnapshotError> {
        for (map, entry) in self.root.maps.iter().enumerate() {
            let row = self.table.row(entry.row()).get()?;
            if !entry.is_of(Page::of_map(map), &row, self.root.generation) {
                return Err(SnapshotError::Replaced);
            }
            let (count, frames) = (self.shape.entries_of(map), self.versions.len() as u64);
            let entries = decode_entries(&row[HEADER_BYTES..], count, frames).ok_or(SnapshotError::Format)?;
            self.entries[map * ENTRIES..map * ENTRIES + count].copy_from_slice(&entries);
        }
        let mut last = Snapshot::<T>::open(&self.client, name)?;
        if last.generation() != self.root.generation {
            return Err(SnapshotError::Replaced);
        }
        self.published.copy_from_slice(last.read(..)?.as_bytes());
        Ok(())
    }

    /// Returns the generation that was published last: 0 before the first.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.root.generation
    }

    /// Publishes an array: readers see all of its changes at their next refresh, or none. Returns its generation, which is the last
    /// one if nothing has changed.
    ///
    /// # Errors
    /// It has other elements, too many pages have changed, there is another publisher, or the error of a call. Readers see the last
    /// generation then.
    pub fn publish(&mut self, array: &[T]) -> Result<u64, SnapshotError> {
        let (bytes, theirs, ours) = (array.as_bytes(), self.root.elements, array.len() as u64);
        if bytes.len() != self.shape.bytes {
            return Err(SnapshotError::Mismatch { what: "elements", theirs, ours });
        }
        let is_first = self.root.generation == 0;
        let differs = |page: &usize| {
            let range = self.shape.bytes_of(*page);
            is_first || self.published[range.clone()] != bytes[range]
        };
        let changed: Vec<usize> = (0..self.shape.pages).filter(differs).collect();
        if changed.is_empty() {
            return Ok(self.root.generation);
        }
        let maps: BTreeSet<usize> = changed.iter().map(|page| page / ENTRIES).collect();
        let needed = changed.len() + maps.len();
        if needed > self.free.len() {
            return Err(SnapshotError::NoRoom { needed, free: self.free.len() });
        }
        let frames: Vec<u32> = self.free.drain(..needed).collect();
        let written = self.write_generation(bytes, &changed, &maps, &frames);
        match written {
            Ok((root, entries)) => {
                let replaced = changed.iter().map(|page| self.entries[*page].frame);
                let replaced = replaced.chain(maps.iter().filter_map(|map| Some(self.root.maps.get(*map)?.frame)));
                // The first generation replaces nothing.
                let replaced: Vec<u32> = if is_first { Vec::new() } else { replaced.collect() };
                self.free.extend(replaced);
                (self.root, self.entries) = (root, entries);
                for range in changed.into_iter().map(|page| self.shape.bytes_of(page)) {
                    self.published[range.clone()].copy_from_slice(&bytes[range]);
                }
                Ok(self.root.generation)
            }
            Err(error) => {
                frames.into_iter().rev().for_each(|frame| self.free.push_front(frame));
                Err(error)
            }
        }
    }

    /// Writes the pages, the map and the root of the next generation. Returns the root and the places of all pages.
    fn write_generation(
        &mut self,
        bytes: &[u8],
        changed: &[usize],
        maps: &BTreeSet<usize>,
        frames: &[u32],
    ) -> Result<(Root, Vec<PagePlace>), SnapshotError> {
        let root_version = self.root_version.ok_or(SnapshotError::Replaced)?;
        // The versions come first: behind them, another publisher's root shows that frames may be its own.
        self.read_versions(frames)?;
        if self.table.row(0).get()?.version() != root_version {
            self.root_version = None;
            return Err(SnapshotError::Replaced);
        }
        let (mut root, mut entries) = (self.root.clone(), self.entries.clone());
        root.generation += 1;
        let (generation, shape) = (root.generation, self.shape);
        let (page_frames, map_frames) = frames.split_at(changed.len());
        for (page, frame) in changed.iter().zip(page_frames) {
            entries[*page] = PagePlace::new(*frame, generation);
        }
        root.maps.resize(shape.maps, PagePlace::default());
        for (map, frame) in maps.iter().zip(map_frames) {
            root.maps[*map] = PagePlace::new(*frame, generation);
        }
        let pages: Vec<_> = changed.iter().map(|page| (Page::of_array(*page), *page)).zip(page_frames).collect();
        for part in pages.chunks(BATCH_ROWS) {
            self.write_frames(part.iter().map(|((page, number), frame)| {
                (**frame, [&header(*page, generation)[..], &bytes[shape.bytes_of(*number)]].concat())
            }))?;
        }
        let of_map = |map: &usize| {
            let mut row = header(Page::of_map(*map), generation).to_vec();
            encode_entries(&entries[map * ENTRIES..map * ENTRIES + shape.entries_of(*map)], &mut row);
            row
        };
        self.write_frames(maps.iter().zip(map_frames).map(|(map, frame)| (*frame, of_map(map))))?;
        match self.table.row(0).put_if(root_version, &root.encode()) {
            Ok(stamp) => self.root_version = Some(stamp.version),
            Err(error) => {
                if error.is_indeterminate() || error.kind() == ErrorKind::VersionMismatch {
                    self.root_version = None;
                }
                return Err(replaced(error));
            }
        }
        Ok((root, entries))
    }

    /// Reads the versions of frames whose version is unknown.
    fn read_versions(&mut self, frames: &[u32]) -> Result<(), SnapshotError> {
        let unknown: Vec<u32> =
            frames.iter().copied().filter(|frame| self.versions[*frame as usize].is_none()).collect();
        for part in unknown.chunks(BATCH_ROWS) {
            let mut batch = Batch::new();
            let get = |frame: &u32| batch.get(self.table.row(1 + u64::from(*frame)), 0..8);
            let tickets = part.iter().map(get).collect::<Result<Vec<_>, Error>>()?;
            let mut replies = self.client.run(batch)?;
            for (frame, ticket) in part.iter().zip(tickets) {
                self.versions[*frame as usize] = Some(replies.take(ticket)?.version());
            }
        }
        Ok(())
    }

    /// Writes frames, each if its row still has the version that this publisher knows.
    fn write_frames(&mut self, rows: impl Iterator<Item = (u32, Vec<u8>)>) -> Result<(), SnapshotError> {
        let (mut batch, mut tickets) = (Batch::new(), Vec::new());
        for (frame, row) in rows {
            // Unknown unless the reply says otherwise.
            let version = self.versions[frame as usize].take().ok_or(SnapshotError::Replaced)?;
            let target = self.table.row(1 + u64::from(frame));
            tickets.push((frame, batch.put_with(target, &[(0, &row)], PutOptions::new().if_version(version))?));
        }
        let mut replies = self.client.run(batch)?;
        let mut result = Ok(());
        for (frame, ticket) in tickets {
            match replies.take(ticket) {
                Ok(stamp) => self.versions[frame as usize] = Some(stamp.version),
                Err(error) => result = result.and(Err(replaced(error))),
            }
        }
        result
    }
}

/// Opens the table of a snapshot, or makes it.
fn open_table(client: &Client, name: &str, spec: Spec) -> Result<Table, SnapshotError> {
    let table = match client.table::<[u8]>(name).open() {
        Err(error) if error.kind() == ErrorKind::NotFound => match client.table::<[u8]>(name).allocate(spec) {
            // Another publisher was first.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => client.table::<[u8]>(name).open()?,
            other => other?,
        },
        other => other?,
    };
    // A frame has its number in 32 bits.
    let is_one = table.row_len() == ROW_BYTES as u64 && table.len() > 1 && table.len() <= u64::from(u32::MAX);
    if is_one { Ok(table) } else { Err(SnapshotError::Format) }
}

/// Returns the error of a put on condition of a version.
fn replaced(error: Error) -> SnapshotError {
    if error.kind() == ErrorKind::VersionMismatch { SnapshotError::Replaced } else { error.into() }
}
