//! Shared memory in named files, which outlive the process and whose pages are allocated and freed on demand.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags};

use super::memory::{MemoryError, SharedMemory};

impl SharedMemory {
    /// Opens or creates (mode 0600) a file of shared memory and maps `bytes` of it, or the whole file if that is
    /// longer. No pages are allocated before they are [reserved](Self::reserve).
    pub fn open_sparse_file(path: &Path, bytes: usize) -> Result<Self, MemoryError> {
        if bytes == 0 {
            return Err(MemoryError::Empty);
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.map_err(|source| MemoryError::System { tried: "open the file of", source })?;
        let found = file.metadata().map_err(|source| MemoryError::System { tried: "measure", source })?.len();
        let wanted = found.max(bytes as u64);
        if wanted > found {
            rustix::fs::ftruncate(&file, wanted).map_err(MemoryError::system("size"))?;
        }
        Self::map_file(path, file, wanted as usize)
    }

    /// Allocates the pages of a range, so that a store cannot fail for want of memory.
    pub fn reserve(&self, offset: usize, bytes: usize) -> Result<(), MemoryError> {
        self.check_inside(offset, bytes)?;
        let at = (self.offset() + offset) as u64;
        rustix::fs::fallocate(self.descriptor(), FallocateFlags::empty(), at, bytes as u64)
            .map_err(MemoryError::system("reserve"))
    }

    /// Zeroes a range and frees its pages.
    pub fn clear(&self, offset: usize, bytes: usize) -> Result<(), MemoryError> {
        self.check_inside(offset, bytes)?;
        let at = (self.offset() + offset) as u64;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(self.descriptor(), flags, at, bytes as u64).map_err(MemoryError::system("clear"))
    }

    /// Opens a read-only descriptor of the file at `path`.
    pub fn open_to_read(path: &Path) -> Result<OwnedFd, MemoryError> {
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
            .map_err(MemoryError::system("open the file of"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Access;
    use rustix::fs::fstat;

    #[test]
    fn cleared_range_is_zero_and_unallocated() {
        // If this failed, a released segment would keep its pages, or show its bytes to the next one.
        let path = std::env::temp_dir().join(format!("ddss-sparse-{}", std::process::id()));
        let memory = SharedMemory::open_sparse_file(&path, 1 << 24).unwrap();
        let blocks = || fstat(memory.descriptor()).unwrap().st_blocks;
        assert_eq!(blocks(), 0);
        memory.reserve(4096, 8192).unwrap();
        assert!(blocks() >= 16);
        memory.write(5000, b"secret").unwrap();
        drop(SharedMemory::open_sparse_file(&path, 1 << 20).unwrap());
        let again = SharedMemory::open_sparse_file(&path, 1 << 20).unwrap();
        assert_eq!(again.len(), 1 << 24, "an open file never shrinks");
        memory.clear(4096, 8192).unwrap();
        let mut bytes = [1; 6];
        again.read(5000, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 6]);
        assert!(memory.reserve(1 << 24, 1).is_err());
        let eyes = SharedMemory::open_to_read(&path).unwrap();
        assert!(SharedMemory::from_descriptor(eyes, 4096, Access::ReadWrite).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
