//! The memory of one node: the pool in which segments live, the staging memory that peers write into, and a scratch
//! line for each operation under way. This file does what the engine's actions say about bytes.

use ddss_core::limits::{LINE_BYTES, OPERATIONS_MAX, STAGING_BYTES};
use ddss_core::{Header, LockToken, Timestamp, Version};
use ddss_ipc::{MemoryError, SharedMemory};
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

/// Why a node has no memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The pool's file cannot be made.
    #[error("cannot make a pool of {bytes} bytes at {}: is there room (df), and may this user write there?", path.display())]
    File {
        /// Where.
        path: PathBuf,
        /// How large.
        bytes: u64,
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
}

/// All memory of one node that is not a client's.
#[derive(Debug)]
pub(crate) struct NodeMemory {
    pub(crate) pool: SharedMemory,
    pub(crate) staging: Option<SharedMemory>,
    pub(crate) scratch: SharedMemory,
}

/// What an engine's action says was checked by the engine before.
const CHECKED: &str = "the engine keeps segments inside the pool and ranges inside segments";

impl NodeMemory {
    const POOL_NAME: &str = "pool";
    /// Where in a scratch line the state word goes that is read after the bytes.
    const STATE_AFTER: u64 = 48;

    /// Makes the memory; `peers` is how many nodes may stage.
    pub(crate) fn make(folder: &Path, pool_bytes: u64, peers: usize) -> Result<Self, PoolError> {
        let path = folder.join(Self::POOL_NAME);
        let bytes = usize::try_from(pool_bytes).unwrap_or(usize::MAX);
        // The folder is locked, so a pool that is there was left by a daemon that died.
        let _ = std::fs::remove_file(&path);
        let pool = SharedMemory::create_file(&path, bytes);
        let pool = pool.map_err(|source| PoolError::File { path, bytes: pool_bytes, source })?;
        let anonymous =
            |name, bytes| SharedMemory::create(name, bytes).map_err(|source| PoolError::Anonymous { bytes, source });
        let staging = if peers > 0 { Some(anonymous("ddss-staging", peers * STAGING_BYTES)?) } else { None };
        let scratch = anonymous("ddss-scratch", OPERATIONS_MAX * LINE_BYTES)?;
        Ok(Self { pool, staging, scratch })
    }

    /// Takes the pool's name away; its memory goes with the last mapping.
    pub(crate) fn remove(folder: &Path) {
        // Somebody else may have tidied up; the next start would remove it as well.
        let _ = std::fs::remove_file(folder.join(Self::POOL_NAME));
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
        let line = Self::scratch_line(index);
        let word = |at: u64| self.scratch.load((line + at) as usize, Ordering::Acquire).expect(CHECKED);
        let header = Header {
            state: word(Header::STATE_OFFSET),
            timestamp: word(Header::TIMESTAMP_OFFSET),
            segment: word(Header::SEGMENT_OFFSET),
            bytes: word(Header::BYTES_OFFSET),
            locked: word(Header::LOCKED_OFFSET),
        };
        (header, word(Self::STATE_AFTER))
    }

    fn set(&self, at: u64, value: u64, ordering: Ordering) {
        self.pool.store(at as usize, value, ordering).expect(CHECKED);
    }

    /// A fresh segment: zeroes, then its header, the state word last.
    pub(crate) fn format(&self, at: u64, header: &Header) {
        self.set(at + Header::STATE_OFFSET, Header::writing(Version(0)), Ordering::Relaxed);
        fence(Ordering::Release);
        self.pool.zero((at + Header::DATA_OFFSET) as usize, header.bytes as usize).expect(CHECKED);
        self.set(at + Header::TIMESTAMP_OFFSET, header.timestamp, Ordering::Relaxed);
        self.set(at + Header::SEGMENT_OFFSET, header.segment, Ordering::Relaxed);
        self.set(at + Header::BYTES_OFFSET, header.bytes, Ordering::Relaxed);
        self.set(at + Header::LOCKED_OFFSET, header.locked, Ordering::Relaxed);
        self.set(at + Header::STATE_OFFSET, header.state, Ordering::Release);
    }

    /// Nobody lives there any more.
    pub(crate) fn erase(&self, at: u64) {
        self.set(at + Header::SEGMENT_OFFSET, 0, Ordering::Release);
    }

    /// Who holds the lock alone.
    pub(crate) fn mark(&self, at: u64, holder: LockToken) {
        self.set(at + Header::LOCKED_OFFSET, holder.0, Ordering::Release);
    }

    /// One word of the pool.
    pub(crate) fn word(&self, at: u64) -> u64 {
        self.pool.load(at as usize, Ordering::Acquire).expect(CHECKED)
    }

    /// Writes bytes between two steps of the state word, so that who reads it before and after cannot take a mix for
    /// a whole.
    pub(crate) fn commit(&self, at: u64, version: Version, timestamp: Timestamp, write: impl FnOnce(&SharedMemory)) {
        let before = Version(version.0 - 1);
        self.set(at + Header::STATE_OFFSET, Header::writing(before), Ordering::Relaxed);
        // pairs with the reader's Acquire of the state word: who sees a new byte sees the odd state.
        fence(Ordering::Release);
        write(&self.pool);
        self.set(at + Header::TIMESTAMP_OFFSET, timestamp.0, Ordering::Relaxed);
        self.set(at + Header::STATE_OFFSET, Header::committed(version), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::{NodeId, Proof, SegmentId};

    #[test]
    fn a_reader_in_the_middle_of_a_commit_cannot_call_it_whole() {
        // If this broke, a one-sided get could return a mix of two puts.
        let folder = std::env::temp_dir().join(format!("ddssd-memory-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let memory = NodeMemory::make(&folder, 1 << 20, 0).unwrap();
        let segment = SegmentId::new(NodeId(1), 2, 3);
        let header = Header { state: 0, timestamp: 1, segment: segment.to_bits(), bytes: 64, locked: 0 };
        memory.format(4096, &header);
        let state = || memory.pool.load(4096, Ordering::Acquire).unwrap();
        let seen = |state| Header { state, ..header }.prove(segment, state);
        assert_eq!(seen(state()), Proof::Whole(Version(0), Timestamp(1)));
        memory.commit(4096, Version(1), Timestamp(2), |pool| {
            pool.write(4096 + 64, b"half").unwrap();
            assert_eq!(seen(state()), Proof::Torn);
        });
        assert_eq!(seen(state()), Proof::Whole(Version(1), Timestamp(1)));
        memory.erase(4096);
        assert_eq!(memory.pool.load(4096 + 16, Ordering::Acquire).unwrap(), 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
