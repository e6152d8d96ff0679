//! A log of one worker's calls in a file that survives the worker. Each record is complete before the counter includes
//! it.

use ddss_ipc::{MemoryError, SharedMemory};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Kind of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Get,
    Put,
    Add,
    /// A compare and swap that succeeded.
    Swap,
    /// A failed compare and swap: it saw another word.
    Look,
    /// An insert of a key into a map.
    Insert,
    Remove,
    Find,
}

impl Kind {
    const ALL: [Kind; 8] =
        [Kind::Get, Kind::Put, Kind::Add, Kind::Swap, Kind::Look, Kind::Insert, Kind::Remove, Kind::Find];

    /// Returns true for calls that change nothing.
    pub(crate) fn is_harmless(self) -> bool {
        matches!(self, Kind::Get | Kind::Look)
    }
}

/// Outcome of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Done,
    Failed,
    Unknown,
    /// The call has only begun: a record of its end follows, unless its worker is killed.
    Begun,
}

/// One call. Times are nanoseconds of the machine's monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) end: End,
    pub(crate) segment: usize,
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
    /// Version that was made or seen, or the key of a map.
    pub(crate) version: u64,
    /// Mark of a put, an insert or a get, or the word before an add or a swap.
    pub(crate) value: u64,
}

/// A file of records.
pub(crate) struct Log {
    memory: SharedMemory,
    count: u64,
}

impl Log {
    const RECORD_BYTES: usize = 48;
    const HEAD_BYTES: usize = 64;
    /// Records of one worker's life.
    const RECORDS_MAX: u64 = 8_000_000;
    /// Calls of one worker's life; some have two records.
    pub(crate) const CALLS_MAX: u64 = Self::RECORDS_MAX / 2;

    pub(crate) fn open(path: &Path) -> Result<Self, MemoryError> {
        let bytes = Self::HEAD_BYTES + Self::RECORDS_MAX as usize * Self::RECORD_BYTES;
        let memory = SharedMemory::open_sparse_file(path, bytes)?;
        let count = memory.load(0, Ordering::Acquire)?;
        Ok(Self { memory, count })
    }

    pub(crate) fn add(&mut self, record: &Record) -> Result<(), MemoryError> {
        let at = Self::HEAD_BYTES + self.count as usize * Self::RECORD_BYTES;
        let what = (record.segment as u64) << 16 | (record.kind as u64) << 8 | record.end as u64;
        let words = [what, record.began_ns, record.ended_ns, record.version, record.value];
        for (index, word) in words.into_iter().enumerate() {
            self.memory.store(at + index * 8, word, Ordering::Relaxed)?;
        }
        self.count += 1;
        self.memory.store(0, self.count, Ordering::Release)
    }

    /// Number of records in the log at `path`, without reading them; zero if the file does not exist.
    pub(crate) fn count_at(path: &Path) -> u64 {
        let mut word = [0; 8];
        let read = File::open(path).and_then(|file| file.read_exact_at(&mut word, 0));
        read.map_or(0, |()| u64::from_ne_bytes(word))
    }

    /// Returns the places of the calls that succeeded, behind so many records.
    pub(crate) fn places_done_since(&self, first: u64) -> Result<BTreeSet<usize>, MemoryError> {
        let records = self.records_since(first)?;
        Ok(records.iter().filter(|record| record.end == End::Done).map(|record| record.segment).collect())
    }

    pub(crate) fn records(&self) -> Result<Vec<Record>, MemoryError> {
        self.records_since(0)
    }

    fn records_since(&self, first: u64) -> Result<Vec<Record>, MemoryError> {
        let word = |at: usize| self.memory.load(at, Ordering::Relaxed);
        let count = self.count.min(Self::RECORDS_MAX) as usize;
        let record = |index: usize| {
            let at = Self::HEAD_BYTES + index * Self::RECORD_BYTES;
            let what = word(at)?;
            Ok(Record {
                kind: Kind::ALL[(what >> 8 & 0xff).min(7) as usize],
                end: [End::Done, End::Failed, End::Unknown, End::Begun][(what & 0xff).min(3) as usize],
                segment: (what >> 16) as usize,
                began_ns: word(at + 8)?,
                ended_ns: word(at + 16)?,
                version: word(at + 24)?,
                value: word(at + 32)?,
            })
        };
        (first as usize..count).map(record).collect()
    }
}

/// The machine's monotonic clock, the same for every process.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_fail_and_calls_of_before_are_no_progress() {
        // If this broke, clients that never work again behind an upgrade would pass.
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::open(&folder.path().join("log")).unwrap();
        let record =
            |end, segment| Record { kind: Kind::Get, end, segment, began_ns: 1, ended_ns: 2, version: 1, value: 1 };
        log.add(&record(End::Done, 1)).unwrap();
        for end in [End::Failed, End::Unknown, End::Begun] {
            log.add(&record(end, 2)).unwrap();
        }
        let progress = |log: &Log, first| log.places_done_since(first).unwrap().into_iter().collect::<Vec<_>>();
        assert_eq!((progress(&log, 0), progress(&log, 1)), (vec![1], vec![]));
        log.add(&record(End::Done, 3)).unwrap();
        assert_eq!((progress(&log, 1), progress(&log, 9)), (vec![3], vec![]));
    }
}
