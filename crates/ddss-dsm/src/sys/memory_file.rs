//! A file in memory with a mapping of this process.

use memmap2::MmapRaw;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A sealed file in memory, and a mapping of it. The fabric has a mapping of its own, which it writes only while its owner
/// polls it; the owner is also the only thread that uses this mapping, except for the views of open pages.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    file: OwnedFd,
    map: Arc<MmapRaw>,
}

impl MemoryFile {
    /// Creates a file of so many zero bytes, of which only those that are written take memory.
    pub(crate) fn create(name: &str, bytes: u64) -> io::Result<Self> {
        let file = memfd_create(name, MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC)?;
        ftruncate(&file, bytes)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let map = Arc::new(MmapRaw::map_raw(&file)?);
        Ok(Self { file, map })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the mapping, for views of a part of it.
    pub(super) fn map(&self) -> Arc<MmapRaw> {
        self.map.clone()
    }

    /// Copies bytes out of the file.
    ///
    /// # Panics
    /// The range is outside the file.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        let from = self.range(offset, into.len());
        // SAFETY: the range is inside the mapping, which lives as long as `self`, and `into` is no part of it. The file is
        // sealed, so that the mapping stays whole. No one writes it now: peers' writes are placed by the thread that runs here.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes into the file.
    ///
    /// # Panics
    /// The range is outside the file.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let to = self.range(offset, bytes.len());
        // SAFETY: as for `read`; `&mut self` excludes other uses of this mapping.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Copies bytes from one place of the file to another. The two do not overlap.
    ///
    /// # Panics
    /// A range is outside the file, or they overlap.
    pub(crate) fn copy(&mut self, from: u64, to: u64, bytes: usize) {
        assert!(from.abs_diff(to) >= bytes as u64, "the ranges do not overlap");
        let (from, to) = (self.range(from, bytes), self.range(to, bytes));
        // SAFETY: as for `write`; both ranges are inside the mapping and do not overlap.
        unsafe { ptr::copy_nonoverlapping(from, to, bytes) }
    }

    /// Replaces a word if it is 0, and returns the value before. Peers' swaps are executed by the thread that runs here.
    ///
    /// # Panics
    /// The word is outside the file, or not aligned.
    pub(crate) fn claim(&mut self, offset: u64, word: u64) -> u64 {
        assert!(offset.is_multiple_of(8), "a word is aligned");
        let at = self.range(offset, 8).cast::<AtomicU64>();
        // SAFETY: eight bytes inside the mapping, aligned since the mapping is; atomics of the fabric are the same operations.
        let at = unsafe { &*at };
        match at.compare_exchange(0, word.to_le(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(before) | Err(before) => u64::from_le(before),
        }
    }

    fn range(&self, offset: u64, bytes: usize) -> *mut u8 {
        let end = offset.checked_add(bytes as u64);
        assert!(end.is_some_and(|end| end <= self.map.len() as u64), "bytes {offset} + {bytes} are in the file");
        self.map.as_mut_ptr().wrapping_add(offset as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_outside_are_refused_and_a_word_is_claimed_once() {
        // If this broke, a message of a peer could make this process read or write past its memory.
        let mut file = MemoryFile::create("test", 4096).unwrap();
        file.write(4090, b"sixsix");
        let mut read = [0; 6];
        file.read(4090, &mut read);
        assert_eq!(&read, b"sixsix");
        file.copy(4090, 0, 6);
        file.read(0, &mut read);
        assert_eq!(&read, b"sixsix");
        assert_eq!(file.claim(16, 7), 0);
        assert_eq!(file.claim(16, 8), 7);
        for (offset, bytes) in [(4091, 6), (4097, 0), (u64::MAX, 2)] {
            let outside = std::panic::catch_unwind(|| {
                MemoryFile::create("test", 4096).unwrap().read(offset, &mut vec![0; bytes]);
            });
            assert!(outside.is_err(), "{offset} + {bytes}");
        }
    }
}
