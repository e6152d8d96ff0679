//! Memory of one shard: the areas that hold segments, the segment registry, and the undo log of the current commit.
//!
//! [Files](super::file_segments) hold the same once more for file segments. A scratch line for each operation takes remote
//! headers. (The staging memory of each peer is in `peers/links.rs`.) This file executes the memory part of the
//! engine's actions.

use super::file_segments::Files;
use super::large_undo::{LargeCommit, LargeUndo};
use super::pool_error::PoolError;
use super::segment_folder::{LARGE_UNDO_NAME, UNDO_NAME, check_registry};
use super::undo_log::UndoLog;
use ddss_admin::storage::{Registry, RegistryEntry, Unusable, area_path};
use ddss_core::limits::{BLOCK_BYTES, INLINE_REPLY_BYTES_MAX, LINE_BYTES, OPERATIONS_MAX, PAGE_BYTES};
use ddss_core::{
    Completion, Header, LockToken, NodeId, OWN_AREA, Range, Record, RecordPlace, SegmentId, Storage, Timestamp,
    Version, area_of, offset_of,
};
use ddss_ipc::{MemoryError, SharedMemory};
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

/// All memory of one shard, apart from the clients' arenas.
#[derive(Debug)]
pub(crate) struct NodeMemory {
    folder: PathBuf,
    areas: Vec<Option<Area>>,
    area_bytes: usize,
    pub(crate) registry: Registry,
    undo: UndoLog,
    /// Undo log of large commits, from the first one on.
    large_undo: Option<LargeUndo>,
    files: Option<Files>,
    pub(crate) scratch: SharedMemory,
}

#[derive(Debug)]
struct Area {
    storage: Storage,
    memory: SharedMemory,
}

/// The area of a home's own buffers comes first.
const _: () = assert!(OWN_AREA == 0);

const CHECKED: &str = "the engine keeps segments inside their areas and ranges inside segments";

impl NodeMemory {
    /// Offset in a scratch line of the state word that is read after the bytes.
    const STATE_AFTER: u64 = 48;

    /// Opens the memory in `folder`, or creates it.
    pub(crate) fn open(folder: &Path, node: NodeId, pool_bytes: u64) -> Result<Self, PoolError> {
        let at = |name: &str| folder.join(name);
        let file = |path: PathBuf| move |source| PoolError::File { path, source };
        check_registry(folder)?;
        let registry = Registry::open(&at(Registry::FILE_NAME)).map_err(file(at(Registry::FILE_NAME)))?;
        registry.claim(node).map_err(|unusable| match unusable {
            Unusable::Version(found) => PoolError::other_release(folder, found, String::new()),
            Unusable::Node(node) => PoolError::OtherNode { path: folder.to_owned(), node },
        })?;
        let undo = UndoLog::open(&at(UNDO_NAME)).map_err(file(at(UNDO_NAME)))?;
        let path = at(LARGE_UNDO_NAME);
        let large_undo = path.exists().then(|| LargeUndo::open(&path)).transpose().map_err(file(path.clone()))?;
        let anonymous =
            |name, bytes| SharedMemory::create(name, bytes).map_err(|source| PoolError::Anonymous { bytes, source });
        let scratch = anonymous("ddss-scratch", OPERATIONS_MAX * LINE_BYTES)?;
        let area_bytes = usize::try_from(pool_bytes).unwrap_or(usize::MAX / 2).next_multiple_of(PAGE_BYTES);
        let own = Area { storage: Storage::Memory, memory: anonymous("ddss-own", area_bytes)? };
        let (areas, files) = (vec![Some(own)], None);
        Ok(Self { folder: folder.to_owned(), areas, area_bytes, registry, undo, large_undo, files, scratch })
    }

    /// Enables file segments.
    pub(crate) fn enable_files(&mut self, files: Files) {
        self.files = Some(files);
    }

    /// Syncs all file segments to the disk.
    pub(crate) fn close_files(&self) -> std::io::Result<()> {
        let in_files = self.areas.iter().flatten().filter(|area| area.storage == Storage::File);
        self.files.as_ref().map_or(Ok(()), |files| files.close(in_files.map(|area| &area.memory)))
    }

    /// Returns the registry entries of all segments in memory and in files.
    pub(crate) fn entries(&self) -> Vec<(Storage, RegistryEntry)> {
        let of = |storage| move |entry| (storage, entry);
        let files = self.files.as_ref().and_then(Files::registry);
        let in_files = files.into_iter().flat_map(Registry::entries).map(of(Storage::File));
        self.registry.entries().map(of(Storage::Memory)).chain(in_files).collect()
    }

    /// Returns the path and size of an area of a storage kind.
    pub(crate) fn area_file(&self, area: usize, storage: Storage) -> (PathBuf, usize) {
        match (storage, &self.files) {
            (Storage::File, Some(files)) => {
                let bytes = usize::try_from(files.bytes()).unwrap_or(usize::MAX / 2);
                (files.area_path(area), bytes.next_multiple_of(PAGE_BYTES))
            }
            _ => (area_path(&self.folder, area), self.area_bytes),
        }
    }

    /// Returns the memory of an area, which is opened or created at the first call. The storage kinds share no area.
    pub(crate) fn open_area(&mut self, area: usize, storage: Storage) -> Result<&SharedMemory, MemoryError> {
        if self.areas.len() <= area {
            self.areas.resize_with(area + 1, || None);
        }
        if self.areas[area].as_ref().is_none_or(|open| open.storage != storage) {
            if storage == Storage::File
                && let Some(files) = &mut self.files
            {
                files.open_registry()?;
            }
            let (path, bytes) = self.area_file(area, storage);
            self.areas[area] = Some(Area { storage, memory: SharedMemory::open_sparse_file(&path, bytes)? });
        }
        Ok(&self.areas[area].as_ref().expect("it was just opened").memory)
    }

    /// Returns an open area.
    pub(crate) fn open_area_at(&self, area: usize) -> Option<(Storage, &SharedMemory)> {
        let area = self.areas.get(area)?.as_ref()?;
        Some((area.storage, &area.memory))
    }

    /// Returns the undo log for a place: it must live as long as the segment, so it has the same storage.
    #[inline]
    fn undo_log_for(&self, place: u64) -> &UndoLog {
        let storage = self.areas[area_of(place)].as_ref().map(|area| area.storage);
        match (storage, &self.files) {
            (Some(Storage::File), Some(files)) => files.undo().expect("it was opened with the area"),
            _ => &self.undo,
        }
    }

    fn registry_for(&mut self, storage: Storage) -> Result<&Registry, MemoryError> {
        match (storage, &mut self.files) {
            (Storage::File, Some(files)) => files.open_registry(),
            _ => Ok(&self.registry),
        }
    }

    /// Rewrites the registry record of a segment.
    pub(crate) fn rewrite(&mut self, record: &Record) {
        match self.registry_for(record.spec.storage) {
            Ok(registry) => registry.rewrite(record),
            Err(error) => {
                tracing::error!(%error, name = record.name.as_str(), "cannot rewrite a segment's registry record")
            }
        }
    }

    /// Removes a segment's record; its id stays used.
    pub(crate) fn remove(&self, segment: SegmentId) {
        let in_files = self.files.as_ref().and_then(Files::registry).filter(|registry| registry.has_record(segment));
        in_files.unwrap_or(&self.registry).remove(segment);
    }

    /// Returns the area memory of a place, and the offset in it.
    #[inline]
    pub(crate) fn area_at(&self, place: u64) -> (&SharedMemory, usize) {
        let area = self.areas.get(area_of(place)).and_then(Option::as_ref).expect(CHECKED);
        (&area.memory, offset_of(place) as usize)
    }

    /// Encodes a completion as a ring entry, with the pool bytes that it carries.
    #[inline(always)]
    pub(crate) fn encode_completion(&self, completion: &Completion, data: Option<(u64, u8)>) -> ddss_core::Entry {
        let mut entry = completion.encode();
        if let Some((at, bytes)) = data {
            let mut inline = [0; INLINE_REPLY_BYTES_MAX];
            let (area, from) = self.area_at(at);
            area.read(from, &mut inline[..usize::from(bytes)]).expect(CHECKED);
            for (word, bytes) in entry[4..].iter_mut().zip(inline.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
        }
        entry
    }

    /// Returns the offset of an operation's scratch line.
    pub(crate) fn scratch_line(index: usize) -> u64 {
        (index * LINE_BYTES) as u64
    }

    /// Returns the offset of the state word that is read last.
    pub(crate) fn scratch_state_after(index: usize) -> u64 {
        Self::scratch_line(index) + Self::STATE_AFTER
    }

    /// Returns the remote header that a get has read, and the state word after it.
    pub(crate) fn scratch_header(&self, index: usize) -> (Header, u64) {
        let line = Self::scratch_line(index) as usize;
        (read_header(&self.scratch, line), load(&self.scratch, line + Self::STATE_AFTER as usize))
    }

    /// Returns the header at a place.
    pub(crate) fn header(&self, at: u64) -> Header {
        let (area, offset) = self.area_at(at);
        read_header(area, offset)
    }

    /// Creates a segment; its memory is zeroed already.
    pub(crate) fn format(&mut self, record: &Record, header: &Header, bytes: u64) -> Result<(), MemoryError> {
        self.reserve(record.at, record.spec.storage, bytes)?;
        self.publish(record, header)
    }

    /// Reserves the pages of a range.
    pub(crate) fn reserve(&mut self, at: u64, storage: Storage, bytes: u64) -> Result<(), MemoryError> {
        let bytes = bytes.next_multiple_of(BLOCK_BYTES as u64);
        let area = self.open_area(area_of(at), storage)?;
        area.reserve(offset_of(at) as usize, usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Publishes a segment with reserved pages: header first, then the record that makes it live.
    pub(crate) fn publish(&mut self, record: &Record, header: &Header) -> Result<(), MemoryError> {
        let (area, at) = self.area_at(record.at);
        store(area, at + Header::TIMESTAMP_OFFSET as usize, header.timestamp, Ordering::Relaxed);
        store(area, at + Header::BYTES_OFFSET as usize, header.bytes, Ordering::Relaxed);
        store(area, at + Header::LOCKED_OFFSET as usize, header.locked, Ordering::Relaxed);
        store(area, at + Header::STATE_OFFSET as usize, header.state, Ordering::Release);
        store(area, at + Header::SEGMENT_OFFSET as usize, header.segment, Ordering::Release);
        self.registry_for(record.spec.storage)?.write(record)
    }

    /// Copies `bytes` bytes of a segment to its new place, from offset `done` on. The new place is used only after its
    /// record is written.
    pub(crate) fn relocate(&mut self, record: &Record, from: u64, done: u64, bytes: u64) -> Result<(), MemoryError> {
        self.reserve(record.at + done, record.spec.storage, bytes)?;
        let ((old, from_at), (new, to_at)) = (self.area_at(from + done), self.area_at(record.at + done));
        SharedMemory::copy(old, from_at, new, to_at, usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Records the version of a replica's bytes.
    pub(crate) fn set_version(&self, at: u64, version: Version, timestamp: Timestamp) {
        let (area, offset) = self.area_at(at);
        store(area, offset + Header::TIMESTAMP_OFFSET as usize, timestamp.0, Ordering::Release);
        store(area, offset + Header::STATE_OFFSET as usize, Header::committed(version), Ordering::Release);
    }

    /// Invalidates the header at a place.
    pub(crate) fn erase(&self, at: u64) {
        let (area, offset) = self.area_at(at);
        store(area, offset + Header::SEGMENT_OFFSET as usize, 0, Ordering::Release);
    }

    /// Zeroes a range and releases its pages.
    pub(crate) fn clear(&self, at: u64, bytes: u64) -> Result<(), MemoryError> {
        let (area, offset) = self.area_at(at);
        area.clear(offset, (bytes as usize).next_multiple_of(BLOCK_BYTES))
    }

    /// Records the exclusive lock holder in the header.
    pub(crate) fn set_lock_holder(&self, at: u64, holder: LockToken) {
        let (area, offset) = self.area_at(at);
        store(area, offset + Header::LOCKED_OFFSET as usize, holder.0, Ordering::Release);
    }

    /// Returns one word of a segment.
    pub(crate) fn load_word(&self, at: u64) -> u64 {
        let (area, offset) = self.area_at(at);
        load(area, offset)
    }

    /// Writes bytes between two steps of the state word, so that a reader that checks it before and after cannot take
    /// a mix for a whole. `ranges` are relative to the segment's first byte. `write` gets the area and the offset of
    /// that byte in it. If the daemon dies in here, the next one can [undo](UndoLog) the commit.
    pub(crate) fn commit(
        &self,
        at: u64,
        (version, timestamp): (Version, Timestamp),
        ranges: &[Range],
        write: impl FnOnce(&SharedMemory, usize),
    ) {
        self.commit_at(RecordPlace::of_plain_segment(at), (version, timestamp), ranges, write);
    }

    /// Does the same for state word, timestamp and data at these places.
    #[inline(always)]
    pub(crate) fn commit_at(
        &self,
        place: RecordPlace,
        (version, timestamp): (Version, Timestamp),
        ranges: &[Range],
        write: impl FnOnce(&SharedMemory, usize),
    ) {
        let (area, offset) = self.area_at(place.header);
        let data = offset_of(place.data) as usize;
        self.undo_log_for(place.header).save(area, place.header, data, version, ranges);
        let before = Version(version.0 - 1);
        store(area, offset + Header::STATE_OFFSET as usize, Header::writing(before), Ordering::Relaxed);
        // pairs with the reader's Acquire of the state word: a reader that sees a new byte sees the odd state.
        fence(Ordering::Release);
        write(area, data);
        store(area, offset + Header::TIMESTAMP_OFFSET as usize, timestamp.0, Ordering::Relaxed);
        store(area, offset + Header::STATE_OFFSET as usize, Header::committed(version), Ordering::Release);
    }

    /// Undoes a commit that the last daemon had begun. Returns false if that is impossible: then the bytes are
    /// undefined.
    pub(crate) fn undo_commit(&self, record: &Record) -> bool {
        let state = self.header(record.at).state;
        let version = Version((state >> 1) + 1);
        let (area, header) = self.area_at(record.at);
        let data = header + Header::DATA_OFFSET as usize;
        let bytes = record.spec.bytes;
        state & 1 == 0
            || self.undo_log_for(record.at).restore(area, record.at, data, version, 0..bytes)
            || self.large_undo_for(record.at).is_some_and(|log| log.restore(area, record.at, version, bytes))
    }

    fn is_in_file(&self, place: u64) -> bool {
        matches!(self.open_area_at(area_of(place)), Some((Storage::File, _)))
    }

    /// Returns the undo log of large commits for a place, if it exists.
    fn large_undo_for(&self, place: u64) -> Option<&LargeUndo> {
        match &self.files {
            Some(files) if self.is_in_file(place) => files.large_undo(),
            _ => self.large_undo.as_ref(),
        }
    }

    /// Opens the undo log of large commits for a place, or creates it.
    fn open_large_undo(&mut self, place: u64) -> Result<(), MemoryError> {
        if self.is_in_file(place)
            && let Some(files) = &mut self.files
        {
            return files.open_large_undo();
        }
        if self.large_undo.is_none() {
            self.large_undo = Some(LargeUndo::open(&self.folder.join(LARGE_UNDO_NAME))?);
        }
        Ok(())
    }

    /// Reserves memory to undo a slice of a large commit to the segment at `place`.
    pub(crate) fn reserve_undo(&mut self, place: u64, done: u64, length: u64) -> Result<(), MemoryError> {
        if done == 0 {
            self.open_large_undo(place)?;
        }
        self.large_undo_for(place).expect(CHECKED).reserve(done, length)
    }

    /// Gives the memory back with which slices of large commits were undone.
    pub(crate) fn clear_undo(&self, done: u64, length: u64) -> Result<(), MemoryError> {
        let in_files = self.files.as_ref().and_then(Files::large_undo);
        self.large_undo.iter().chain(in_files).try_for_each(|log| log.clear(done, length))
    }

    /// Writes a slice of a large commit; the last one publishes the new version.
    pub(crate) fn write_slice(&self, commit: &LargeCommit, done: u64, length: u64) {
        let log = self.large_undo_for(commit.at).expect(CHECKED);
        let ((area, _), source) = (self.area_at(commit.at), self.area_at(commit.from));
        if done == 0 {
            self.undo_log_for(commit.at).forget(commit.at);
            log.begin(area, commit);
        }
        log.replace(area, commit, source, (done, length));
        if done + length == commit.bytes {
            LargeUndo::end(area, commit);
        }
    }

    /// Undoes a commit to a row of a table that the last daemon had begun. Returns true if there was one.
    ///
    /// Only the record that the log names can be unfinished, since one commit ends before the next one begins.
    pub(crate) fn undo_record(&self, record: &Record) -> bool {
        let Some(layout) = record.spec.layout() else { return false };
        let log = self.undo_log_for(record.at);
        let row = log.place().checked_sub(record.at).and_then(|distance| layout.row_at(distance));
        let Some(row) = row.filter(|&row| row < layout.rows(record.spec.bytes)) else { return false };
        let place = layout.record(row).of_segment(record.at);
        let (area, header) = self.area_at(place.header);
        let state = load(area, header + Header::STATE_OFFSET as usize);
        let (first, end) = layout.bounds(row);
        let version = Version((state >> 1) + 1);
        state & 1 != 0 && log.restore(area, place.header, offset_of(place.data) as usize, version, first..end)
    }

    /// Returns the state word and the timestamp of a record.
    pub(crate) fn record_header(&self, at: u64) -> (u64, Timestamp) {
        let (area, offset) = self.area_at(at);
        let word = |at: u64| load(area, offset + at as usize);
        (word(Header::STATE_OFFSET), Timestamp(word(Header::TIMESTAMP_OFFSET)))
    }
}

fn load(memory: &SharedMemory, at: usize) -> u64 {
    memory.load(at, Ordering::Acquire).expect(CHECKED)
}

#[inline]
fn store(memory: &SharedMemory, at: usize, value: u64, ordering: Ordering) {
    memory.store(at, value, ordering).expect(CHECKED);
}

fn read_header(memory: &SharedMemory, line: usize) -> Header {
    let word = |offset: u64| load(memory, line + offset as usize);
    Header {
        state: word(Header::STATE_OFFSET),
        timestamp: word(Header::TIMESTAMP_OFFSET),
        segment: word(Header::SEGMENT_OFFSET),
        bytes: word(Header::BYTES_OFFSET),
        locked: word(Header::LOCKED_OFFSET),
    }
}
