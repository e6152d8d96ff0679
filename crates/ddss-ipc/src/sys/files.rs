//! Shared memory in files: it has a name, outlives the process that made it, and its pages come and go.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags};

use super::memory::{MemoryError, SharedMemory};

impl SharedMemory {
    /// Opens a file of shared memory, or makes it (mode 0600), and maps `bytes` of it, or all that there is if that is
    /// more. It takes no pages before they are [reserved](Self::reserve).
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

    /// Sees that the pages of a range are there: a store into them cannot fail any more for want of memory.
    pub fn reserve(&self, offset: usize, bytes: usize) -> Result<(), MemoryError> {
        self.check_inside(offset, bytes)?;
        let at = (self.offset() + offset) as u64;
        rustix::fs::fallocate(self.descriptor(), FallocateFlags::empty(), at, bytes as u64)
            .map_err(MemoryError::system("reserve"))
    }

    /// Makes a range zeroes and gives its pages back.
    pub fn clear(&self, offset: usize, bytes: usize) -> Result<(), MemoryError> {
        self.check_inside(offset, bytes)?;
        let at = (self.offset() + offset) as u64;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(self.descriptor(), flags, at, bytes as u64).map_err(MemoryError::system("clear"))
    }

    /// A descriptor of the file at `path` that one can only read through.
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
    fn what_is_cleared_is_zeroes_and_costs_nothing() {
        // If this broke, a released segment would keep its pages, or show its bytes to the next one.
        let path = std::env::temp_dir().join(format!("ddss-sparse-{}", std::process::id()));
        let memory = SharedMemory::open_sparse_file(&path, 1 << 24).unwrap();
        let blocks = || fstat(memory.descriptor()).unwrap().st_blocks;
        assert_eq!(blocks(), 0);
        memory.reserve(4096, 8192).unwrap();
        assert!(blocks() >= 16);
        memory.write(5000, b"secret").unwrap();
        drop(SharedMemory::open_sparse_file(&path, 1 << 20).unwrap());
        let again = SharedMemory::open_sparse_file(&path, 1 << 20).unwrap();
        assert_eq!(again.len(), 1 << 24, "it never shrinks under somebody who has it mapped");
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
