//! Undo log of the current commit. A daemon that dies in the middle of a commit leaves an odd state word in a header;
//! the next daemon restores the old bytes, as if the put had never been.
//!
//! ```text
//!   0     8         16          24       32             64
//!  +-----+---------+-----------+--------+--------------+---------------------------
//!  | at  | version | timestamp | ranges | reserved     | offset, length, bytes; ..
//!  +-----+---------+-----------+--------+--------------+---------------------------
//! ```
//!
//! One record is enough: only the progress thread commits, one put at a time. The record is written before the state
//! word turns odd, and is valid only while that word is odd.

use ddss_core::limits::{LINE_BYTES, PAGE_BYTES, RANGES_MAX, TRANSFER_BYTES_MAX};
use ddss_core::{Header, Range, Version, offset_of};
use ddss_ipc::{MemoryError, SharedMemory};
use std::path::Path;
use std::sync::atomic::{Ordering, fence};

const CHECKED: &str = "a commit is no larger than a transfer";

/// Undo log of one shard.
#[derive(Debug)]
pub(crate) struct UndoLog {
    memory: SharedMemory,
}

impl UndoLog {
    const AT: usize = 0;
    const VERSION_AT: usize = 8;
    const TIMESTAMP_AT: usize = 16;
    const RANGES_AT: usize = 24;
    const BYTES_AT: usize = LINE_BYTES;
    const RANGE_WORDS: usize = 16;
    /// Each range starts at a word boundary.
    const BYTES: usize =
        (Self::BYTES_AT + TRANSFER_BYTES_MAX + RANGES_MAX * (Self::RANGE_WORDS + 8)).next_multiple_of(PAGE_BYTES);

    /// Opens the log at `path`, or creates it.
    pub(crate) fn open(path: &Path) -> Result<Self, MemoryError> {
        let memory = SharedMemory::open_sparse_file(path, Self::BYTES)?;
        memory.reserve(0, Self::BYTES)?;
        Ok(Self { memory })
    }

    /// Returns the memory of the log.
    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    fn set(&self, at: usize, value: u64) {
        self.memory.store(at, value, Ordering::Relaxed).expect(CHECKED);
    }

    fn word(&self, at: usize) -> u64 {
        self.memory.load(at, Ordering::Acquire).expect(CHECKED)
    }

    /// Saves the bytes that `version` of the segment or record at `at` is about to replace; the ranges count from
    /// `data` in the area.
    pub(crate) fn save(&self, area: &SharedMemory, at: u64, data: usize, version: Version, ranges: &[Range]) {
        let header = offset_of(at) as usize;
        let timestamp = area.load(header + Header::TIMESTAMP_OFFSET as usize, Ordering::Relaxed).expect(CHECKED);
        self.set(Self::AT, at);
        self.set(Self::VERSION_AT, version.0);
        self.set(Self::TIMESTAMP_AT, timestamp);
        self.set(Self::RANGES_AT, ranges.len() as u64);
        let mut to = Self::BYTES_AT;
        for &Range { offset, bytes: length } in ranges {
            let from = data + offset as usize;
            self.set(to, offset);
            self.set(to + 8, length.into());
            SharedMemory::copy(area, from, &self.memory, to + Self::RANGE_WORDS, length as usize).expect(CHECKED);
            to += Self::RANGE_WORDS + (length as usize).next_multiple_of(8);
        }
        // Any reader of the odd state word, also after a crash, sees this record.
        fence(Ordering::Release);
    }

    /// Invalidates the record of an ended commit at that place, since a large commit begins there.
    pub(crate) fn forget(&self, at: u64) {
        if self.place() == at {
            self.set(Self::AT, u64::MAX);
            fence(Ordering::Release);
        }
    }

    /// Returns the place of the header of the last commit.
    pub(crate) fn place(&self) -> u64 {
        self.word(Self::AT)
    }

    /// Restores the bytes that the put of `version` to the segment or record at `at` had begun to replace. Its bytes have
    /// the offsets `within`, counted from `data` in the area. Returns false if the log holds another commit.
    pub(crate) fn restore(
        &self,
        area: &SharedMemory,
        at: u64,
        data: usize,
        version: Version,
        within: std::ops::Range<u64>,
    ) -> bool {
        if (self.word(Self::AT), self.word(Self::VERSION_AT)) != (at, version.0) {
            return false;
        }
        let header = offset_of(at) as usize;
        let ranges = usize::try_from(self.word(Self::RANGES_AT)).unwrap_or(usize::MAX);
        let mut from = Self::BYTES_AT;
        for _ in 0..ranges.min(RANGES_MAX) {
            let (Ok(offset), Ok(length)) =
                (self.memory.load(from, Ordering::Relaxed), self.memory.load(from + 8, Ordering::Relaxed))
            else {
                return false;
            };
            if offset < within.start || offset.checked_add(length).is_none_or(|end| end > within.end) {
                return false;
            }
            let (to, length) = (data + offset as usize, length as usize);
            if SharedMemory::copy(&self.memory, from + Self::RANGE_WORDS, area, to, length).is_err() {
                return false;
            }
            from += Self::RANGE_WORDS + length.next_multiple_of(8);
        }
        let timestamp = self.word(Self::TIMESTAMP_AT);
        let stored = area.store(header + Header::TIMESTAMP_OFFSET as usize, timestamp, Ordering::Relaxed);
        fence(Ordering::Release);
        let before = Header::committed(Version(version.0 - 1));
        stored.is_ok() && area.store(header + Header::STATE_OFFSET as usize, before, Ordering::Release).is_ok()
    }
}
