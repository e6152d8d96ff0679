//! Undo log of large commits: one at a time in a storage kind, written slice after slice.
//!
//! ```text
//!   0     8         16       24      32      40            4096
//!  +-----+---------+--------+-------+-------+-------------+-------------------------
//!  | at  | version | offset | bytes | saved | reserved    | old bytes
//!  +-----+---------+--------+-------+-------+-------------+-------------------------
//! ```
//!
//! The record is written before the state word of the segment at `at` turns odd, and is valid only while that word is
//! odd. `saved` bytes from `offset` on are in the log; only those may have been replaced. The memory is reserved before
//! the commit, so that no commit fails in the middle, and given back some time after it: the next commit needs no fresh pages.

use ddss_core::limits::{PAGE_BYTES, VALUE_BYTES_MAX};
use ddss_core::{Header, Version, offset_of};
use ddss_ipc::{MemoryError, SharedMemory};
use std::path::Path;
use std::sync::atomic::{Ordering, fence};

const CHECKED: &str = "a large commit is no larger than a value";

/// A large commit, as the daemon executes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LargeCommit {
    /// Place of the segment's header.
    pub(crate) at: u64,
    /// Offset of the first byte in the segment.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Place of the new bytes.
    pub(crate) from: u64,
    pub(crate) version: Version,
    pub(crate) timestamp: u64,
}

/// Undo log of the large commits of one shard to one storage kind.
#[derive(Debug)]
pub(crate) struct LargeUndo {
    memory: SharedMemory,
}

impl LargeUndo {
    const AT: usize = 0;
    const VERSION_AT: usize = 8;
    const OFFSET_AT: usize = 16;
    const BYTES_AT: usize = 24;
    const SAVED_AT: usize = 32;
    const DATA_AT: usize = PAGE_BYTES;

    /// Opens the log at `path`, or creates it; it takes memory only for a commit.
    pub(crate) fn open(path: &Path) -> Result<Self, MemoryError> {
        let memory = SharedMemory::open_sparse_file(path, Self::DATA_AT + VALUE_BYTES_MAX)?;
        memory.reserve(0, Self::DATA_AT)?;
        Ok(Self { memory })
    }

    /// Reserves memory for `length` old bytes, `done` bytes behind the first one.
    pub(crate) fn reserve(&self, done: u64, length: u64) -> Result<(), MemoryError> {
        self.memory.reserve(Self::DATA_AT + done as usize, (length as usize).next_multiple_of(PAGE_BYTES))
    }

    /// Gives the memory of `length` old bytes back.
    pub(crate) fn clear(&self, done: u64, length: u64) -> Result<(), MemoryError> {
        self.memory.clear(Self::DATA_AT + done as usize, (length as usize).next_multiple_of(PAGE_BYTES))
    }

    fn set(&self, at: usize, value: u64, ordering: Ordering) {
        self.memory.store(at, value, ordering).expect(CHECKED);
    }

    fn word(&self, at: usize) -> u64 {
        self.memory.load(at, Ordering::Acquire).expect(CHECKED)
    }

    /// Writes the record of a commit that begins, then the odd state word.
    pub(crate) fn begin(&self, area: &SharedMemory, commit: &LargeCommit) {
        self.set(Self::SAVED_AT, 0, Ordering::Relaxed);
        self.set(Self::AT, commit.at, Ordering::Relaxed);
        self.set(Self::VERSION_AT, commit.version.0, Ordering::Relaxed);
        self.set(Self::OFFSET_AT, commit.offset, Ordering::Relaxed);
        self.set(Self::BYTES_AT, commit.bytes, Ordering::Relaxed);
        // A daemon that finds the odd state word after a crash finds this record.
        fence(Ordering::Release);
        let state = offset_of(commit.at) + Header::STATE_OFFSET;
        let writing = Header::writing(Version(commit.version.0 - 1));
        area.store(state as usize, writing, Ordering::Release).expect(CHECKED);
        // pairs with the reader's Acquire of the state word: a reader that sees a new byte sees the odd state.
        fence(Ordering::Release);
    }

    /// Replaces `length` bytes, `done` bytes behind the first one, after their old content is in the log.
    pub(crate) fn replace(
        &self,
        area: &SharedMemory,
        commit: &LargeCommit,
        (source, source_at): (&SharedMemory, usize),
        (done, length): (u64, u64),
    ) {
        let to = (offset_of(commit.at) + Header::DATA_OFFSET + commit.offset + done) as usize;
        let (skip, length) = (done as usize, length as usize);
        SharedMemory::copy(area, to, &self.memory, Self::DATA_AT + skip, length).expect(CHECKED);
        // A daemon that finds a new byte after a crash finds the old one in the log.
        self.set(Self::SAVED_AT, (skip + length) as u64, Ordering::Release);
        fence(Ordering::Release);
        SharedMemory::copy(source, source_at + skip, area, to, length).expect(CHECKED);
    }

    /// Publishes the new version.
    pub(crate) fn end(area: &SharedMemory, commit: &LargeCommit) {
        let header = offset_of(commit.at) as usize;
        let word = |offset: u64| header + offset as usize;
        area.store(word(Header::TIMESTAMP_OFFSET), commit.timestamp, Ordering::Relaxed).expect(CHECKED);
        let state = Header::committed(commit.version);
        area.store(word(Header::STATE_OFFSET), state, Ordering::Release).expect(CHECKED);
    }

    /// Restores the bytes that the unfinished commit of `version` to the segment at `at` has replaced. Returns false if
    /// the log holds another commit, or a place outside of the segment of `size` bytes.
    pub(crate) fn restore(&self, area: &SharedMemory, at: u64, version: Version, size: u64) -> bool {
        if (self.word(Self::AT), self.word(Self::VERSION_AT)) != (at, version.0) {
            return false;
        }
        let (offset, bytes, saved) = (self.word(Self::OFFSET_AT), self.word(Self::BYTES_AT), self.word(Self::SAVED_AT));
        let is_inside = saved <= bytes && bytes <= VALUE_BYTES_MAX as u64;
        if !is_inside || offset.checked_add(bytes).is_none_or(|end| end > size) {
            return false;
        }
        let header = offset_of(at);
        let to = (header + Header::DATA_OFFSET + offset) as usize;
        if SharedMemory::copy(&self.memory, Self::DATA_AT, area, to, saved as usize).is_err() {
            return false;
        }
        fence(Ordering::Release);
        let before = Header::committed(Version(version.0 - 1));
        area.store((header + Header::STATE_OFFSET) as usize, before, Ordering::Release).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 300_000;

    fn commit(version: u64) -> LargeCommit {
        let (offset, bytes) = (1000, 200_000);
        LargeCommit { at: 1 << 48, offset, bytes, from: 0, version: Version(version), timestamp: 100 + version }
    }

    #[test]
    fn large_commit_that_ends_at_any_slice_is_undone() {
        // If this broke, a daemon that dies in the middle of a large put would leave a mix of two values.
        let path = std::env::temp_dir().join(format!("ddssd-large-undo-{}", std::process::id()));
        let area = SharedMemory::create("area", SIZE + Header::DATA_OFFSET as usize).unwrap();
        let new = SharedMemory::create("new", SIZE).unwrap();
        let (old, mut bytes) = (vec![3; SIZE], vec![0; SIZE]);
        new.write(0, &vec![7; SIZE]).unwrap();
        area.write(Header::DATA_OFFSET as usize, &old).unwrap();
        for slices in 0..=4 {
            let (log, commit) = (LargeUndo::open(&path).unwrap(), commit(1));
            log.reserve(0, commit.bytes).unwrap();
            log.begin(&area, &commit);
            for slice in 0..slices {
                log.replace(&area, &commit, (&new, 0), (slice * 50_000, 50_000));
            }
            drop(log);
            let log = LargeUndo::open(&path).unwrap();
            assert!(!log.restore(&area, commit.at + 4096, commit.version, SIZE as u64), "another segment");
            assert!(!log.restore(&area, commit.at, Version(2), SIZE as u64), "another version");
            assert!(!log.restore(&area, commit.at, commit.version, 1000), "a smaller segment");
            assert!(log.restore(&area, commit.at, commit.version, SIZE as u64));
            area.read(Header::DATA_OFFSET as usize, &mut bytes).unwrap();
            let state = area.load(Header::STATE_OFFSET as usize, Ordering::Relaxed).unwrap();
            assert!(bytes == old && state == Header::committed(Version(0)), "after {slices} slices");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
