//! Memory that other processes map as well, and may write at any time.
//!
//! It is never exposed as a `&[u8]`: bytes are copied in and out through raw pointers, words are atomics. A mapping
//! never shrinks: anonymous memory is sealed, so that no other process can turn an access into `SIGBUS`.

#[cfg(not(target_os = "linux"))]
compile_error!("DDSS needs Linux: it uses memfd, futex and epoll; build for a Linux target");

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ddss_core::limits::LINE_BYTES;
use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags};

use super::sigbus::{MappedFile, exit_on_lost_file};

/// Reasons for which memory cannot be shared or accessed.
///
/// ```
/// # use ddss_ipc as ddss;
/// use ddss::MemoryError;
///
/// # let error = ddss::SharedMemory::create("nothing", 0).expect_err("memory has bytes");
/// assert!(matches!(error, MemoryError::Empty));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The range exceeds the memory.
    #[error("{bytes} bytes at offset {offset} do not fit into {within} bytes of shared memory")]
    OutOfBounds {
        /// Offset of the range.
        offset: usize,
        /// Length of the range.
        bytes: usize,
        /// Length of the memory.
        within: usize,
    },
    /// The offset is not a multiple of eight (for a ring: of a cache line).
    #[error("offset {0} of shared memory is not aligned")]
    Misaligned(usize),
    /// The mapping is read-only.
    #[error("shared memory is mapped read-only")]
    ReadOnly,
    /// The memory has zero bytes.
    #[error("shared memory of zero bytes")]
    Empty,
    /// The descriptor has less memory than was announced.
    #[error("descriptor holds {found} bytes, fewer than the announced {wanted}")]
    TooSmall {
        /// Announced length.
        wanted: usize,
        /// Length according to `fstat`.
        found: u64,
    },
    /// The descriptor's memory could shrink while it is mapped.
    #[error("descriptor is not sealed against shrinking")]
    NotSealed,
    /// A system call failed.
    #[error("cannot {tried} shared memory")]
    System {
        /// Operation that failed.
        tried: &'static str,
        /// Error of the kernel.
        #[source]
        source: io::Error,
    },
}

impl MemoryError {
    pub(super) fn system(tried: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        move |errno| Self::System { tried, source: errno.into() }
    }
}

/// Access mode of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Loads only: this type and the processor refuse stores.
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
}

/// Size from which mappings ask for huge pages. The machine decides whether shared memory gets them (`shmem_enabled`).
const HUGE_FROM: usize = 2 << 20;

struct Map {
    /// Registration for `SIGBUS`, if the memory is a named file. The first field, because it ends before the mapping.
    named_file: Option<MappedFile>,
    mapping: MmapRaw,
    access: Access,
    descriptor: OwnedFd,
}

impl Map {
    fn new(descriptor: OwnedFd, bytes: usize, access: Access) -> Result<Self, MemoryError> {
        if bytes == 0 {
            return Err(MemoryError::Empty);
        }
        let mut options = MmapOptions::new();
        options.len(bytes);
        let mapping = match access {
            Access::ReadOnly => options.map_raw_read_only(&descriptor),
            Access::ReadWrite => options.map_raw(&descriptor),
        };
        let mapping = mapping.map_err(|source| MemoryError::System { tried: "map", source })?;
        if bytes >= HUGE_FROM {
            // A kernel without huge pages refuses; small pages work as well.
            let _ = mapping.advise(Advice::HugePage);
        }
        Ok(Self { named_file: None, mapping, access, descriptor })
    }
}

/// Memory that other processes share, or a part of it. Clones name the same bytes.
///
/// ```
/// use ddss_ipc::{Access, SharedMemory};
/// use std::sync::atomic::Ordering;
///
/// let ours = SharedMemory::create("example", 4096)?;
/// let theirs = SharedMemory::from_descriptor(ours.descriptor().try_clone_to_owned()?, 4096, Access::ReadOnly)?;
/// ours.write(16, b"seen by both")?;
/// let mut copy = [0; 12];
/// theirs.read(16, &mut copy)?;
/// assert_eq!(&copy, b"seen by both");
///
/// ours.fetch_add(8, 5, Ordering::AcqRel)?;
/// assert_eq!(theirs.load(8, Ordering::Acquire)?, 5);
/// assert!(theirs.store(8, 6, Ordering::Release).is_err(), "it is mapped read-only");
/// assert!(ours.read(usize::MAX, &mut copy).is_err(), "offset and length cannot overflow");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedMemory {
    map: Arc<Map>,
    start: usize,
    bytes: usize,
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SharedMemory").field("start", &self.start).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl SharedMemory {
    /// Creates anonymous memory, zeroed, which no process can shrink or grow. `name` shows up in `/proc/PID/maps`.
    pub fn create(name: &str, bytes: usize) -> Result<Self, MemoryError> {
        if bytes == 0 {
            return Err(MemoryError::Empty);
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = rustix::fs::memfd_create(name, flags).map_err(MemoryError::system("create"))?;
        rustix::fs::ftruncate(&descriptor, bytes as u64).map_err(MemoryError::system("size"))?;
        rustix::fs::fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW)
            .map_err(MemoryError::system("seal"))?;
        Self::map(descriptor, bytes, Access::ReadWrite)
    }

    /// Creates a file (mode 0600) of that many bytes and maps it. In a tmpfs directory it is named shared memory, which
    /// outlives the process. Fails if the file exists.
    pub fn create_file(path: &Path, bytes: usize) -> Result<Self, MemoryError> {
        if bytes == 0 {
            return Err(MemoryError::Empty);
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|source| MemoryError::System { tried: "create the file of", source })?;
        let made = Self::allocate(&file, bytes).and_then(|()| Self::map_file(path, file, bytes));
        if made.is_err() {
            // No process knows of the file yet; incomplete it would block the next attempt.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    fn allocate(file: &File, bytes: usize) -> Result<(), MemoryError> {
        // Allocated now, because a full tmpfs would answer the first access with SIGBUS.
        rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes as u64)
            .map_err(MemoryError::system("allocate"))
    }

    /// Maps a whole file that [`create_file`](Self::create_file) created.
    pub fn open_file(path: &Path) -> Result<Self, MemoryError> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(|source| MemoryError::System { tried: "open the file of", source })?;
        let stat = rustix::fs::fstat(&file).map_err(MemoryError::system("measure"))?;
        let bytes = usize::try_from(stat.st_size).unwrap_or(0);
        Self::map_file(path, file, bytes)
    }

    /// Maps the first `bytes` of another process' memory. Anonymous memory must be sealed against shrinking. A named
    /// file cannot be sealed, so the process that passes it is trusted not to shrink it.
    pub fn from_descriptor(descriptor: OwnedFd, bytes: usize, access: Access) -> Result<Self, MemoryError> {
        let stat = rustix::fs::fstat(&descriptor).map_err(MemoryError::system("measure"))?;
        let found = u64::try_from(stat.st_size).unwrap_or(0);
        if found < bytes as u64 {
            return Err(MemoryError::TooSmall { wanted: bytes, found });
        }
        if stat.st_nlink == 0 {
            let seals = rustix::fs::fcntl_get_seals(&descriptor).map_err(|_| MemoryError::NotSealed)?;
            if !seals.contains(SealFlags::SHRINK) {
                return Err(MemoryError::NotSealed);
            }
        }
        Self::map(descriptor, bytes, access)
    }

    pub(super) fn map(descriptor: OwnedFd, bytes: usize, access: Access) -> Result<Self, MemoryError> {
        let map = Arc::new(Map::new(descriptor, bytes, access)?);
        Ok(Self { map, start: 0, bytes })
    }

    /// Maps a named file and registers it for [`exit_on_lost_file`](Self::exit_on_lost_file).
    pub(super) fn map_file(path: &Path, file: File, bytes: usize) -> Result<Self, MemoryError> {
        let mut map = Map::new(file.into(), bytes, Access::ReadWrite)?;
        map.named_file = MappedFile::register(path, map.mapping.as_ptr() as usize, bytes);
        Ok(Self { map: Arc::new(map), start: 0, bytes })
    }

    /// Makes the loss of a mapped file end this process, with a message on standard error and the exit code `code`. It
    /// covers files that are mapped from now on. Any other `SIGBUS` ends the process as usual.
    pub fn exit_on_lost_file(code: u8) -> io::Result<()> {
        exit_on_lost_file(code)
    }

    /// Forbids further writable mappings, writes through the descriptor, and holes. Existing mappings keep their
    /// access. For memory that other processes may only read.
    pub fn seal_future_writes(&self) -> Result<(), MemoryError> {
        rustix::fs::fcntl_add_seals(&self.map.descriptor, SealFlags::FUTURE_WRITE | SealFlags::SEAL)
            .map_err(MemoryError::system("seal"))
    }

    /// Forbids changes of the seals.
    pub fn seal_seals(&self) -> Result<(), MemoryError> {
        rustix::fs::fcntl_add_seals(&self.map.descriptor, SealFlags::SEAL).map_err(MemoryError::system("seal"))
    }

    /// Returns the length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "memory of zero bytes is never mapped; a slice may be empty")]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns the offset of this part in the descriptor's memory.
    pub fn offset(&self) -> usize {
        self.start
    }

    /// Returns the descriptor to pass to another process.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.map.descriptor.as_fd()
    }

    /// Returns the access mode of the mapping.
    pub fn access(&self) -> Access {
        self.map.access
    }

    /// Returns a part of the memory, with offsets from its own first byte.
    pub fn slice(&self, offset: usize, bytes: usize) -> Result<Self, MemoryError> {
        self.check(offset, bytes)?;
        Ok(Self { map: Arc::clone(&self.map), start: self.start + offset, bytes })
    }

    /// Copies bytes out. Concurrent writes of the other side may be torn in the copy. Ranges of up to one cache line,
    /// with offset and length multiples of eight, are read word by word, each word whole.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), MemoryError> {
        let from = self.check(offset, into.len())?;
        if Self::by_words(offset + self.start, into.len()) {
            for (index, chunk) in into.chunks_exact_mut(8).enumerate() {
                chunk.copy_from_slice(&self.word(offset + index * 8)?.load(Ordering::Relaxed).to_ne_bytes());
            }
            return Ok(());
        }
        // SAFETY: `check` found the range inside the mapping that `self` holds; `into` is exclusive, so the two do not
        // overlap. Other processes may write the source meanwhile: the bytes are plain data of which any value is
        // valid.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies bytes in, word by word under the same condition as [`read`](Self::read).
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), MemoryError> {
        let into = self.check_writable(offset, from.len())?;
        if Self::by_words(offset + self.start, from.len()) {
            for (index, chunk) in from.chunks_exact(8).enumerate() {
                let mut word = [0; 8];
                word.copy_from_slice(chunk);
                self.word(offset + index * 8)?.store(u64::from_ne_bytes(word), Ordering::Relaxed);
            }
            return Ok(());
        }
        // SAFETY: `check_writable` found the range inside a writable mapping that `self` holds; `from` is ours, so the
        // two do not overlap. No reference to the destination exists.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_ptr(), from.len()) };
        Ok(())
    }

    /// Copies between two shared memories, or within one (the ranges may overlap).
    pub fn copy(
        from: &Self,
        from_offset: usize,
        into: &Self,
        into_offset: usize,
        bytes: usize,
    ) -> Result<(), MemoryError> {
        let source = from.check(from_offset, bytes)?;
        let target = into.check_writable(into_offset, bytes)?;
        // SAFETY: both ranges were found inside mappings that `from` and `into` hold, the target's writable; `copy`
        // allows overlap. Any value of the bytes is fine.
        unsafe { std::ptr::copy(source.as_ptr(), target.as_ptr(), bytes) };
        Ok(())
    }

    /// Loads an aligned word.
    #[inline]
    pub fn load(&self, offset: usize, ordering: Ordering) -> Result<u64, MemoryError> {
        Ok(self.word(offset)?.load(ordering))
    }

    /// Stores an aligned word.
    #[inline]
    pub fn store(&self, offset: usize, value: u64, ordering: Ordering) -> Result<(), MemoryError> {
        self.writable_word(offset)?.store(value, ordering);
        Ok(())
    }

    /// Exchanges an aligned word if it holds `current`; returns the old value. A failed exchange loads with Acquire.
    pub fn compare_exchange(
        &self,
        offset: usize,
        current: u64,
        new: u64,
        ordering: Ordering,
    ) -> Result<Result<u64, u64>, MemoryError> {
        Ok(self.writable_word(offset)?.compare_exchange(current, new, ordering, Ordering::Acquire))
    }

    /// Adds to an aligned word; returns the old value.
    pub fn fetch_add(&self, offset: usize, value: u64, ordering: Ordering) -> Result<u64, MemoryError> {
        Ok(self.writable_word(offset)?.fetch_add(value, ordering))
    }

    /// Replaces an aligned word; returns the old value.
    pub fn swap(&self, offset: usize, value: u64, ordering: Ordering) -> Result<u64, MemoryError> {
        Ok(self.writable_word(offset)?.swap(value, ordering))
    }

    /// Returns a handle of an aligned word, for repeated access.
    pub(crate) fn word_at(&self, offset: usize) -> Result<MappedWord, MemoryError> {
        Ok(MappedWord { word: NonNull::from(self.word(offset)?), _memory: self.clone() })
    }

    #[inline]
    fn by_words(address: usize, bytes: usize) -> bool {
        bytes <= LINE_BYTES && (address | bytes).is_multiple_of(8)
    }

    /// Checks that a range lies inside.
    pub(super) fn check_inside(&self, offset: usize, bytes: usize) -> Result<(), MemoryError> {
        self.check(offset, bytes).map(|_| ())
    }

    #[inline]
    pub(super) fn check(&self, offset: usize, bytes: usize) -> Result<NonNull<u8>, MemoryError> {
        if bytes > self.bytes || offset > self.bytes - bytes {
            return Err(MemoryError::OutOfBounds { offset, bytes, within: self.bytes });
        }
        // `start + bytes` of `self` was checked when it was made, `offset` just now, so the sum stays inside the mapping.
        let address = self.map.mapping.as_mut_ptr().wrapping_add(self.start + offset);
        // SAFETY: an address inside a mapping is not zero, because the kernel chose the mapping's place.
        Ok(unsafe { NonNull::new_unchecked(address) })
    }

    #[inline]
    pub(crate) fn check_writable(&self, offset: usize, bytes: usize) -> Result<NonNull<u8>, MemoryError> {
        if self.map.access == Access::ReadOnly {
            return Err(MemoryError::ReadOnly);
        }
        self.check(offset, bytes)
    }

    #[inline]
    fn word(&self, offset: usize) -> Result<&AtomicU64, MemoryError> {
        let word = self.check(offset, size_of::<u64>())?.cast::<AtomicU64>();
        if !word.is_aligned() {
            return Err(MemoryError::Misaligned(offset));
        }
        // SAFETY: inside the mapping that `self` holds, aligned, and an atomic, so that others may write it.
        Ok(unsafe { word.as_ref() })
    }

    #[inline]
    fn writable_word(&self, offset: usize) -> Result<&AtomicU64, MemoryError> {
        if self.map.access == Access::ReadOnly {
            return Err(MemoryError::ReadOnly);
        }
        self.word(offset)
    }
}

/// Handle of one aligned word of shared memory.
pub(crate) struct MappedWord {
    word: NonNull<AtomicU64>,
    _memory: SharedMemory,
}

// SAFETY: the pointer stays valid as long as `_memory` holds the mapping, from any thread.
unsafe impl Send for MappedWord {}
// SAFETY: as above, and the word is an atomic.
unsafe impl Sync for MappedWord {}

impl Deref for MappedWord {
    type Target = AtomicU64;

    #[inline(always)]
    fn deref(&self) -> &AtomicU64 {
        // SAFETY: `word_at` found it inside the mapping and aligned, and `_memory` holds the mapping.
        unsafe { self.word.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_out_of_bounds_is_rejected() {
        // If this failed, a length from a request would let a client read the daemon's memory.
        let memory = SharedMemory::create("bounds", 8192).unwrap().slice(4096, 100).unwrap();
        let mut buffer = [0; 64];
        for offset in [37, 100, 101, 8192, usize::MAX - 63, usize::MAX - 62, usize::MAX] {
            assert!(memory.read(offset, &mut buffer).is_err(), "read at {offset}");
            assert!(memory.write(offset, &buffer).is_err(), "write at {offset}");
            assert!(SharedMemory::copy(&memory, offset, &memory, 0, 64).is_err(), "copy from {offset}");
            assert!(SharedMemory::copy(&memory, 0, &memory, offset, 64).is_err(), "copy to {offset}");
            assert!(memory.slice(offset, 64).is_err(), "slice at {offset}");
        }
        memory.read(36, &mut buffer).unwrap();
        assert!(memory.load(4, Ordering::Relaxed).is_err(), "not aligned");
        assert!(memory.load(96, Ordering::Relaxed).is_err(), "half of the word is outside");
        assert!(memory.slice(100, 0).is_ok());
    }

    #[test]
    fn sealed_memory_cannot_be_resized_or_unsealed() {
        // If this failed, a client could kill the daemon with SIGBUS by one ftruncate.
        let memory = SharedMemory::create("sealed", 8192).unwrap();
        memory.seal_seals().unwrap();
        for bytes in [0, 4096, 16384] {
            assert!(rustix::fs::ftruncate(memory.descriptor(), bytes).is_err());
        }
        assert!(rustix::fs::fcntl_add_seals(memory.descriptor(), SealFlags::WRITE).is_err());
    }

    #[test]
    fn unsealed_memory_is_not_mapped() {
        // If this failed, a process that passes a descriptor could kill the receiver later by shrinking it.
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = rustix::fs::memfd_create("loose", flags).unwrap();
        rustix::fs::ftruncate(&descriptor, 4096).unwrap();
        let copy = descriptor.try_clone().unwrap();
        assert!(matches!(SharedMemory::from_descriptor(copy, 4096, Access::ReadWrite), Err(MemoryError::NotSealed)));
        rustix::fs::fcntl_add_seals(&descriptor, SealFlags::SHRINK).unwrap();
        assert!(matches!(
            SharedMemory::from_descriptor(descriptor.try_clone().unwrap(), 8192, Access::ReadWrite),
            Err(MemoryError::TooSmall { wanted: 8192, found: 4096 })
        ));
        SharedMemory::from_descriptor(descriptor, 4096, Access::ReadWrite).unwrap();
    }

    #[test]
    fn read_only_memory_stays_read_only() {
        // If this failed, one client could tamper with the page that every client reads.
        let memory = SharedMemory::create("service_page", 4096).unwrap();
        memory.seal_future_writes().unwrap();
        memory.store(0, 1, Ordering::Release).unwrap();
        let copy = || memory.descriptor().try_clone_to_owned().unwrap();
        assert!(SharedMemory::from_descriptor(copy(), 4096, Access::ReadWrite).is_err());
        let view = SharedMemory::from_descriptor(copy(), 4096, Access::ReadOnly).unwrap();
        assert_eq!(view.load(0, Ordering::Acquire).unwrap(), 1);
        assert!(matches!(view.write(0, &[1]), Err(MemoryError::ReadOnly)));
        assert!(matches!(view.ring_at(0), Err(MemoryError::ReadOnly)));
        assert!(rustix::io::pwrite(copy(), &[7], 0).is_err());
    }

    #[test]
    fn file_keeps_its_bytes_across_mappings() {
        // If this failed, a restarted daemon would lose every segment.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool");
        SharedMemory::create_file(&path, 4096).unwrap().write(100, b"still here").unwrap();
        assert!(SharedMemory::create_file(&path, 4096).is_err(), "an existing file is not overwritten");
        let memory = SharedMemory::open_file(&path).unwrap();
        let mut copy = [0; 10];
        memory.read(100, &mut copy).unwrap();
        assert_eq!((memory.len(), &copy), (4096, b"still here"));
    }
}
