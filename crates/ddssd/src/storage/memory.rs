//! The memory of one node: the areas in which segments live, with a register of them and the undo record of the commit
//! under way; the same once more for segments in [files](super::files); a scratch line for each operation. (What peers write into is theirs one by one: `peers/links.rs`.) This file does what the
//! engine's actions say about bytes.

use super::files::Files;
use super::registry::{Entry, Head, Registry, Unusable};
use super::state_dir::StateDirError;
use super::undo_log::UndoLog;
use ddss_core::engine::{InlineResult, OWN_AREA, area_of, offset_of};
use ddss_core::limits::{AREAS_MAX, BLOCK_BYTES, INLINE_REPLY_BYTES_MAX, LINE_BYTES, OPERATIONS_MAX};
use ddss_core::{
    Completion, Header, LockToken, NodeId, Outcome, Range, Record, RequestId, SegmentId, Storage, Timestamp, Version,
};
use ddss_ipc::{MemoryError, SharedMemory};
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

/// Why a node has no memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A file of shared memory cannot be made.
    #[error("cannot make shared memory at {}: is there room (df), and may this user write there?", path.display())]
    File {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: MemoryError,
    },
    /// Memory without a name cannot be had.
    #[error("cannot make {bytes} bytes of shared memory")]
    Anonymous {
        /// How large.
        bytes: usize,
        /// Why.
        #[source]
        source: MemoryError,
    },
    /// The memory that is there was left by another release.
    #[error(
        "the segments in {} have format {found}{by}, and ddssd {} reads format {}: start the release that wrote them \
         (`ddss export` and `ddss import` carry segments over), or throw them away with --discard",
        path.display(), env!("CARGO_PKG_VERSION"), Registry::VERSION
    )]
    OtherRelease {
        /// Where.
        path: PathBuf,
        /// Their format.
        found: u64,
        /// The release that wrote them, as a part of the sentence, if they name it.
        by: String,
    },
    /// What is there in the place of a register is none.
    #[error(
        "{} is no register of ddssd: give another --memory-dir or --state-dir, or put the register back as it was, or throw \
         the segments away with --discard", path.display()
    )]
    NoRegister {
        /// Which file.
        path: PathBuf,
    },
    /// The memory that is there cannot be taken in.
    #[error("cannot go on with the segments in {}: {what}; or throw them away with --discard", path.display())]
    Broken {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The segments that are there were shared out among another number of planes.
    #[error(
        "the {segments} segments in {} are shared out among {before} progress threads: start with --progress-threads {before}, \
         or release them before the number is changed, or throw them away with --discard", path.display()
    )]
    OtherPlanes {
        /// Where.
        path: PathBuf,
        /// How many there were.
        before: u8,
        /// How many segments there are.
        segments: usize,
    },
    /// Segments in files may be a mix of several puts.
    #[error(
        "the machine ended before the daemon that kept segments in {} had: their bytes may be those of several puts. \
         --unclean-files keep goes on with them all the same, --unclean-files drop throws them away", path.display()
    )]
    Unclean {
        /// Where.
        path: PathBuf,
    },
    /// The folder of segments in files cannot be used.
    #[error(transparent)]
    Folder(StateDirError),
    /// The memory that is there is of another node.
    #[error(
        "the memory in {} is of {node}: give this daemon that number, or another --memory-dir, or throw the segments away \
         with --discard", path.display()
    )]
    OtherNode {
        /// Where.
        path: PathBuf,
        /// Whose.
        node: NodeId,
    },
}

impl PoolError {
    pub(crate) fn other_release(folder: &Path, found: u64, release: String) -> Self {
        let by = if release.is_empty() { release } else { format!(", written by ddssd {release}") };
        Self::OtherRelease { path: folder.to_owned(), found, by }
    }
}

/// All memory of one node that is not a client's.
#[derive(Debug)]
pub(crate) struct NodeMemory {
    folder: PathBuf,
    areas: Vec<Option<Area>>,
    area_bytes: usize,
    pub(crate) register: Registry,
    undo: UndoLog,
    files: Option<Files>,
    pub(crate) scratch: SharedMemory,
}

#[derive(Debug)]
struct Area {
    storage: Storage,
    memory: SharedMemory,
}

/// What an engine's action says was checked by the engine before.
const _: () = assert!(OWN_AREA == 0);

const CHECKED: &str = "the engine keeps segments inside their areas and ranges inside segments";

impl NodeMemory {
    pub(crate) const REGISTER_NAME: &str = "register";
    pub(crate) const UNDO_NAME: &str = "undo";
    /// Where in a scratch line the state word goes that is read after the bytes.
    const STATE_AFTER: u64 = 48;

    /// Opens the memory that is in `folder`, or makes it.
    pub(crate) fn open(folder: &Path, node: NodeId, pool_bytes: u64) -> Result<Self, PoolError> {
        let at = |name: &str| folder.join(name);
        let file = |path: PathBuf| move |source| PoolError::File { path, source };
        Self::check_register(folder)?;
        let register = Registry::open(&at(Self::REGISTER_NAME)).map_err(file(at(Self::REGISTER_NAME)))?;
        register.claim(node).map_err(|unusable| match unusable {
            Unusable::Version(found) => PoolError::other_release(folder, found, String::new()),
            Unusable::Node(node) => PoolError::OtherNode { path: folder.to_owned(), node },
        })?;
        let undo = UndoLog::open(&at(Self::UNDO_NAME)).map_err(file(at(Self::UNDO_NAME)))?;
        let anonymous =
            |name, bytes| SharedMemory::create(name, bytes).map_err(|source| PoolError::Anonymous { bytes, source });
        let scratch = anonymous("ddss-scratch", OPERATIONS_MAX * LINE_BYTES)?;
        let area_bytes = usize::try_from(pool_bytes).unwrap_or(usize::MAX / 2).next_multiple_of(BLOCK_BYTES);
        let own = Area { storage: Storage::Memory, memory: anonymous("ddss-own", area_bytes)? };
        let (areas, files) = (vec![Some(own)], None);
        Ok(Self { folder: folder.to_owned(), areas, area_bytes, register, undo, files, scratch })
    }

    /// Refuses a register of another format, and what is left of one, before anything is made or opened in the folder.
    pub(crate) fn check_register(folder: &Path) -> Result<(), PoolError> {
        let path = folder.join(Self::REGISTER_NAME);
        let has_areas = || (0..AREAS_MAX).any(|area| Self::area_path(folder, area).exists());
        let is_cut_short = match Registry::head(&path) {
            Ok(Head::Other { version, release }) => return Err(PoolError::other_release(folder, version, release)),
            Ok(Head::Foreign) => return Err(PoolError::NoRegister { path }),
            Ok(Head::Part) => true,
            Ok(Head::Ours | Head::Unclaimed) => Registry::is_cut_short(&path, has_areas()),
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => false,
            Err(source) => {
                let source = MemoryError::System { tried: "read the file of", source };
                return Err(PoolError::File { path, source });
            }
        };
        if is_cut_short {
            let what = "its register was cut short: put that file back as it was".to_owned();
            return Err(PoolError::Broken { path: folder.to_owned(), what });
        }
        Ok(())
    }

    /// Segments may be in files as well.
    pub(crate) fn set_file_bytes(&mut self, files: Files) {
        self.files = Some(files);
    }

    /// Whatever is in files is on the disk when this returns.
    pub(crate) fn close_files(&self) -> std::io::Result<()> {
        let in_files = self.areas.iter().flatten().filter(|area| area.storage == Storage::File);
        self.files.as_ref().map_or(Ok(()), |files| files.close(in_files.map(|area| &area.memory)))
    }

    /// What is written down of all segments, wherever they are kept.
    pub(crate) fn entries(&self) -> Vec<(Storage, Entry)> {
        let of = |storage| move |entry| (storage, entry);
        let files = self.files.as_ref().and_then(Files::known);
        let in_files = files.into_iter().flat_map(Registry::entries).map(of(Storage::File));
        self.register.entries().map(of(Storage::Memory)).chain(in_files).collect()
    }

    /// Throws the segments away, and everything that has a name. Who has them mapped sees that they are gone; their
    /// memory goes with the last mapping.
    pub(crate) fn discard(folder: &Path) {
        if let Ok(register) = Registry::open_existing(&folder.join(Self::REGISTER_NAME)) {
            for entry in register.entries() {
                let Entry::Live(record) = entry else { continue };
                let path = Self::area_path(folder, area_of(record.at));
                let Ok(area) = SharedMemory::open_file(&path) else { continue };
                // A place that makes no sense is nobody's header.
                let line = (offset_of(record.at) + Header::SEGMENT_OFFSET) as usize;
                let _ = area.store(line, 0, Ordering::Release);
            }
        }
        // Somebody else may have tidied up.
        for name in [Self::REGISTER_NAME, Self::UNDO_NAME] {
            let _ = std::fs::remove_file(folder.join(name));
        }
        for area in 0..AREAS_MAX {
            let _ = std::fs::remove_file(Self::area_path(folder, area));
        }
    }

    /// Where an area is.
    pub(crate) fn area_path(folder: &Path, area: usize) -> PathBuf {
        folder.join(format!("area-{area}"))
    }

    /// Where an area of a kind is, and how long.
    pub(crate) fn place_of(&self, area: usize, storage: Storage) -> (PathBuf, usize) {
        match (storage, &self.files) {
            (Storage::File, Some(files)) => {
                let bytes = usize::try_from(files.bytes()).unwrap_or(usize::MAX / 2);
                (files.area_path(area), bytes.next_multiple_of(BLOCK_BYTES))
            }
            _ => (Self::area_path(&self.folder, area), self.area_bytes),
        }
    }

    /// The memory of an area, opened or made if it is not yet. What one kind of storage has is never the other's.
    pub(crate) fn open_area(&mut self, area: usize, storage: Storage) -> Result<&SharedMemory, MemoryError> {
        if self.areas.len() <= area {
            self.areas.resize_with(area + 1, || None);
        }
        if self.areas[area].as_ref().is_none_or(|open| open.storage != storage) {
            if storage == Storage::File
                && let Some(files) = &mut self.files
            {
                files.register()?;
            }
            let (path, bytes) = self.place_of(area, storage);
            self.areas[area] = Some(Area { storage, memory: SharedMemory::open_sparse_file(&path, bytes)? });
        }
        Ok(&self.areas[area].as_ref().expect("it was just opened").memory)
    }

    /// The same of one that is there.
    pub(crate) fn known_area(&self, area: usize) -> Option<(Storage, &SharedMemory)> {
        let area = self.areas.get(area)?.as_ref()?;
        Some((area.storage, &area.memory))
    }

    /// What the commit under way to a place replaces is kept beside the segment: it has to live as long.
    #[inline]
    fn undo_of(&self, place: u64) -> &UndoLog {
        let storage = self.areas[area_of(place)].as_ref().map(|area| area.storage);
        match (storage, &self.files) {
            (Some(Storage::File), Some(files)) => files.undo().expect("it was opened with the area"),
            _ => &self.undo,
        }
    }

    fn register_for(&mut self, storage: Storage) -> Result<&Registry, MemoryError> {
        match (storage, &mut self.files) {
            (Storage::File, Some(files)) => files.register(),
            _ => Ok(&self.register),
        }
    }

    /// Writes again what is written down of a segment.
    pub(crate) fn rewrite(&mut self, record: &Record) {
        match self.register_for(record.spec.storage) {
            Ok(register) => register.rewrite(record),
            Err(error) => tracing::error!(%error, name = record.name.as_str(), "cannot write a segment down again"),
        }
    }

    /// Strikes a segment; its id stays.
    pub(crate) fn strike(&self, segment: SegmentId) {
        let in_files = self.files.as_ref().and_then(Files::known).filter(|register| register.holds(segment));
        in_files.unwrap_or(&self.register).strike(segment);
    }

    /// The memory of a place, and the offset of that place in it.
    #[inline]
    pub(crate) fn at(&self, place: u64) -> (&SharedMemory, usize) {
        let area = self.areas.get(area_of(place)).and_then(Option::as_ref).expect(CHECKED);
        (&area.memory, offset_of(place) as usize)
    }

    /// A completion as a ring entry, with the bytes of the pool that it carries.
    #[inline(always)]
    pub(crate) fn encoded(&self, completion: &Completion, data: Option<(u64, u8)>) -> ddss_core::Entry {
        let mut entry = completion.encode();
        if let Some((at, bytes)) = data {
            let mut carried = [0; INLINE_REPLY_BYTES_MAX];
            let (area, from) = self.at(at);
            area.read(from, &mut carried[..usize::from(bytes)]).expect(CHECKED);
            for (word, bytes) in entry[4..].iter_mut().zip(carried.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
        }
        entry
    }

    /// The answer to a small get, with its bytes.
    #[inline(always)]
    pub(crate) fn seen(&self, request: u64, seen: &InlineResult) -> ddss_core::Entry {
        let &InlineResult { at, bytes, version, timestamp } = seen;
        let request = RequestId(request);
        let done = Completion { version, timestamp, inline: true, ..Completion::bare(request, Outcome::Done) };
        self.encoded(&done, Some((at, bytes)))
    }

    /// Where the scratch line of an operation begins.
    pub(crate) fn scratch_line(index: usize) -> u64 {
        (index * LINE_BYTES) as u64
    }

    /// Where the state word that is read last goes.
    pub(crate) fn scratch_state_after(index: usize) -> u64 {
        Self::scratch_line(index) + Self::STATE_AFTER
    }

    /// What a fetch read of a remote header, and the state word after it.
    pub(crate) fn fetched(&self, index: usize) -> (Header, u64) {
        let line = Self::scratch_line(index) as usize;
        (read_header(&self.scratch, line), load(&self.scratch, line + Self::STATE_AFTER as usize))
    }

    /// What the header at that place says.
    pub(crate) fn header(&self, at: u64) -> Header {
        let (area, offset) = self.at(at);
        read_header(area, offset)
    }

    /// A fresh segment: its memory holds zeroes already.
    pub(crate) fn format(&mut self, record: &Record, header: &Header, bytes: u64) -> Result<(), MemoryError> {
        self.reserve(record.at, record.spec.storage, bytes)?;
        self.write_down(record, header)
    }

    /// Sees that the pages of a range are there.
    pub(crate) fn reserve(&mut self, at: u64, storage: Storage, bytes: u64) -> Result<(), MemoryError> {
        let bytes = bytes.next_multiple_of(BLOCK_BYTES as u64);
        let area = self.open_area(area_of(at), storage)?;
        area.reserve(offset_of(at) as usize, usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// A segment whose pages are there: header first, then the record that makes it live.
    pub(crate) fn write_down(&mut self, record: &Record, header: &Header) -> Result<(), MemoryError> {
        let (area, at) = self.at(record.at);
        store(area, at + Header::TIMESTAMP_OFFSET as usize, header.timestamp, Ordering::Relaxed);
        store(area, at + Header::BYTES_OFFSET as usize, header.bytes, Ordering::Relaxed);
        store(area, at + Header::LOCKED_OFFSET as usize, header.locked, Ordering::Relaxed);
        store(area, at + Header::STATE_OFFSET as usize, header.state, Ordering::Release);
        store(area, at + Header::SEGMENT_OFFSET as usize, header.segment, Ordering::Release);
        self.register_for(record.spec.storage)?.write(record)
    }

    /// Brings a part of a segment to its other place: so many bytes, from `done` on. Nobody finds it there before its record
    /// says so.
    pub(crate) fn relocate(&mut self, record: &Record, from: u64, done: u64, bytes: u64) -> Result<(), MemoryError> {
        self.reserve(record.at + done, record.spec.storage, bytes)?;
        let ((old, from_at), (new, to_at)) = (self.at(from + done), self.at(record.at + done));
        SharedMemory::copy(old, from_at, new, to_at, usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Which version the bytes of a copy are.
    pub(crate) fn stamp(&self, at: u64, version: Version, timestamp: Timestamp) {
        let (area, offset) = self.at(at);
        store(area, offset + Header::TIMESTAMP_OFFSET as usize, timestamp.0, Ordering::Release);
        store(area, offset + Header::STATE_OFFSET as usize, Header::committed(version), Ordering::Release);
    }

    /// Nobody lives there any more.
    pub(crate) fn erase(&self, at: u64) {
        let (area, offset) = self.at(at);
        store(area, offset + Header::SEGMENT_OFFSET as usize, 0, Ordering::Release);
    }

    /// Makes a range zeroes and gives its pages back.
    pub(crate) fn clear(&self, at: u64, bytes: u64) -> Result<(), MemoryError> {
        let (area, offset) = self.at(at);
        area.clear(offset, (bytes as usize).next_multiple_of(BLOCK_BYTES))
    }

    /// Who holds the lock alone.
    pub(crate) fn mark(&self, at: u64, holder: LockToken) {
        let (area, offset) = self.at(at);
        store(area, offset + Header::LOCKED_OFFSET as usize, holder.0, Ordering::Release);
    }

    /// One word of a segment.
    pub(crate) fn word(&self, at: u64) -> u64 {
        let (area, offset) = self.at(at);
        load(area, offset)
    }

    /// Writes bytes between two steps of the state word, so that who reads it before and after cannot take a mix for
    /// a whole; `ranges` says which, counted from the segment's first byte. `write` gets the area and the segment's
    /// first byte in it. A daemon that dies in here leaves what the next one can [undo](UndoLog).
    pub(crate) fn commit(
        &self,
        at: u64,
        (version, timestamp): (Version, Timestamp),
        ranges: &[Range],
        write: impl FnOnce(&SharedMemory, usize),
    ) {
        let (area, offset) = self.at(at);
        self.undo_of(at).keep(area, at, version, ranges);
        let before = Version(version.0 - 1);
        store(area, offset + Header::STATE_OFFSET as usize, Header::writing(before), Ordering::Relaxed);
        // pairs with the reader's Acquire of the state word: who sees a new byte sees the odd state.
        fence(Ordering::Release);
        write(area, offset + Header::DATA_OFFSET as usize);
        store(area, offset + Header::TIMESTAMP_OFFSET as usize, timestamp.0, Ordering::Relaxed);
        store(area, offset + Header::STATE_OFFSET as usize, Header::committed(version), Ordering::Release);
    }

    /// Ends what the last daemon had begun to commit to that segment as if it had never begun. False if that cannot be
    /// done: then the bytes are nobody's.
    pub(crate) fn undo(&self, record: &Record) -> bool {
        let state = self.header(record.at).state;
        let version = Version((state >> 1) + 1);
        state & 1 == 0 || self.undo_of(record.at).put_back(self.at(record.at).0, record.at, version, record.spec.bytes)
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
