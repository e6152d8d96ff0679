//! The log of the Raft group: in memory for reads, in one file for durability.
//!
//! The file is a sequence of records. A tail that a crash cut short is dropped; any other damage is an error.
//!
//! ```text
//!   0        4        8                   8 + length
//!  +--------+--------+-------------------+
//!  | length | crc32c | a record, as JSON |   then the next one
//!  +--------+--------+-------------------+
//! ```

use super::types::{Entry, Group, LogId, StorageError, Vote};
use crate::control::identity::member::Member;
use crate::control::identity::state_file::{STATE_FILE_MODE, replace_file_atomically};
use crate::status::RaftStatus;
use openraft::entry::RaftPayload;
use openraft::storage::{LogFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::{OptionalSend, RaftLogId, StorageIOError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::{Bound, RangeBounds};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

#[derive(Serialize, Deserialize)]
enum Record {
    Vote(Vote),
    Entry(Entry),
    /// Removes entries from this index on.
    Truncate(u64),
    /// Removes entries up to this one.
    Purge(LogId),
}

#[derive(Debug)]
struct Log {
    folder: PathBuf,
    file: File,
    vote: Option<Vote>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, Entry>,
}

/// The log; clones share it. On a full disk it waits for space: the Raft library would stop for good at the first
/// error.
#[derive(Clone, Debug)]
pub(crate) struct LogStore {
    log: Arc<Mutex<Log>>,
    full: LogFull,
    /// Durations of writes, for the metrics.
    status: RaftStatus,
    /// Position of the snapshot on the disk: what it holds may be purged.
    snapshot: watch::Receiver<Option<LogId>>,
}

/// Shared flag: a log waits for disk space. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogFull(Arc<AtomicBool>);

impl LogFull {
    /// Returns true while the log waits for disk space.
    pub(crate) fn is_full(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Records the result of a write. Returns true if the disk is full and the write must be repeated.
    fn record_result(&self, ended: &io::Result<()>) -> bool {
        match ended {
            Err(error) if is_full(error) => {
                if !self.0.swap(true, Ordering::AcqRel) {
                    tracing::error!(%error, "no disk space for the cluster's log: no name is made or given back until there is");
                }
                true
            }
            _ => {
                if self.0.swap(false, Ordering::AcqRel) {
                    tracing::info!("the cluster's log has disk space again");
                }
                false
            }
        }
    }
}

/// Returns true for errors that end when disk space is freed.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl Log {
    const NAME: &str = "raft.log";
    const RECORD_BYTES_MAX: usize = 8 << 20;

    fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join(Self::NAME);
        let file = OpenOptions::new().read(true).append(true).create(true).mode(STATE_FILE_MODE).open(&path)?;
        let bytes = std::fs::read(&path)?;
        let mut log = Self { folder: folder.to_owned(), file, vote: None, purged: None, entries: BTreeMap::new() };
        let mut at = 0;
        while let Some((record, end)) = next_record(&bytes, at)? {
            log.apply_record(record);
            at = end;
        }
        if at < bytes.len() {
            tracing::warn!(path = %path.display(), bytes = bytes.len() - at, "dropped a log record that a crash cut short");
            log.file.set_len(at as u64)?;
        }
        Ok(log)
    }

    fn apply_record(&mut self, record: Record) {
        match record {
            Record::Vote(vote) => self.vote = Some(vote),
            Record::Entry(entry) => {
                self.entries.insert(entry.log_id.index, entry);
            }
            Record::Truncate(from) => drop(self.entries.split_off(&from)),
            Record::Purge(upto) => {
                self.entries = self.entries.split_off(&(upto.index + 1));
                self.purged = Some(upto);
            }
        }
    }

    /// Writes records; returns the length of the log when they would survive a loss of power.
    fn write(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let before = self.file.metadata()?.len();
        if let Err(error) = self.file.write_all(bytes).and_then(|()| self.file.sync_data()) {
            // Half a record would damage the records after it once there is space again.
            if let Err(error) = self.file.set_len(before) {
                tracing::error!(%error, folder = %self.folder.display(), "cannot truncate the log after a failed write");
            }
            return Err(error);
        }
        Ok(before + bytes.len() as u64)
    }

    /// Drops the entries that a snapshot holds, and rewrites the rest.
    fn purge(&mut self, upto: LogId) -> io::Result<()> {
        self.apply_record(Record::Purge(upto));
        let mut bytes = Vec::new();
        if let Some(vote) = self.vote {
            append(&mut bytes, &Record::Vote(vote))?;
        }
        append(&mut bytes, &Record::Purge(upto))?;
        for entry in self.entries.values() {
            append(&mut bytes, &Record::Entry(entry.clone()))?;
        }
        replace_file_atomically(&self.folder, Self::NAME, &bytes)?;
        self.file = OpenOptions::new().append(true).open(self.folder.join(Self::NAME))?;
        Ok(())
    }
}

/// Reads vote and entries of a stopped node, and changes nothing.
pub(super) fn read_log(folder: &Path) -> io::Result<(Option<Vote>, Vec<Entry>)> {
    let bytes = match std::fs::read(folder.join(Log::NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let (mut vote, mut entries, mut at) = (None, BTreeMap::new(), 0);
    while let Some((record, end)) = next_record(&bytes, at)? {
        match record {
            Record::Vote(next) => vote = Some(next),
            Record::Entry(entry) => drop(entries.insert(entry.log_id.index, entry)),
            Record::Truncate(from) => drop(entries.split_off(&from)),
            Record::Purge(upto) => entries = entries.split_off(&(upto.index + 1)),
        }
        at = end;
    }
    Ok((vote, entries.into_values().collect()))
}

fn append(bytes: &mut Vec<u8>, record: &Record) -> io::Result<()> {
    let record = serde_json::to_vec(record)?;
    bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&record).to_le_bytes());
    bytes.extend_from_slice(&record);
    Ok(())
}

/// Reads the record at `at`; returns it with its end. `None` at the end of the file or in a cut-off tail.
fn next_record(bytes: &[u8], at: usize) -> io::Result<Option<(Record, usize)>> {
    let Some((head, rest)) = bytes[at..].split_first_chunk::<8>() else { return Ok(None) };
    let [l0, l1, l2, l3, c0, c1, c2, c3] = *head;
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    let sum = u32::from_le_bytes([c0, c1, c2, c3]);
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("the record at byte {at} is damaged"));
    if length > Log::RECORD_BYTES_MAX {
        return Err(damaged());
    }
    let Some(record) = rest.get(..length) else { return Ok(None) };
    if crc32c::crc32c(record) != sum {
        // A torn write of the last record can leave its length and not all of its bytes.
        return if rest.len() == length { Ok(None) } else { Err(damaged()) };
    }
    let record = serde_json::from_slice(record).map_err(|_| damaged())?;
    Ok(Some((record, at + 8 + length)))
}

impl LogStore {
    /// Interval between two attempts on a full disk.
    pub(crate) const RETRY_INTERVAL: Duration = Duration::from_millis(100);

    /// Maximum wait for a snapshot that is being installed.
    const SNAPSHOT_WAIT_MAX: Duration = Duration::from_secs(60);

    /// Opens the log beside a snapshot on the disk. A log that begins behind the snapshot is refused: names between the two
    /// are missing.
    pub(crate) fn open(folder: &Path, snapshot: watch::Receiver<Option<LogId>>) -> io::Result<Self> {
        let log = Log::open(folder)?;
        let held = *snapshot.borrow();
        if log.purged > held {
            let [purged, held] = [log.purged, held].map(|id| id.map_or(0, |id| id.index));
            let words = format!(
                "the log begins after entry {purged}, and the snapshot ends with entry {held}: `ddss cluster remove` this \
                 node, and let it join anew"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        }
        let (full, status) = Default::default();
        Ok(Self { log: Arc::new(Mutex::new(log)), full, status, snapshot })
    }

    /// Records writes in `status`.
    pub(crate) fn recorded_in(self, status: &RaftStatus) -> Self {
        Self { status: status.clone(), ..self }
    }

    /// Returns true if neither an entry nor a vote was ever written.
    pub(crate) fn is_empty(&self) -> bool {
        let log = self.log();
        log.vote.is_none() && log.purged.is_none() && log.entries.is_empty()
    }

    /// Returns the newest membership in the log.
    pub(crate) fn membership(&self) -> Option<openraft::Membership<u64, Member>> {
        self.log().entries.values().rev().find_map(|entry| entry.get_membership().cloned())
    }

    /// Returns the flag of a full disk.
    pub(crate) fn full(&self) -> LogFull {
        self.full.clone()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        // A poisoned lock is safe: no panic leaves the log half changed.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes records, as soon as there is disk space.
    async fn write(&self, records: Vec<Record>) -> io::Result<()> {
        let mut bytes = Vec::new();
        for record in &records {
            append(&mut bytes, record)?;
        }
        loop {
            let began = Instant::now();
            let written = self.log().write(&bytes);
            if let Ok(log_bytes) = written {
                self.status.note_log_write(began.elapsed(), log_bytes);
            }
            let written = written.map(drop);
            if !self.full.record_result(&written) {
                written?;
                let mut log = self.log();
                records.into_iter().for_each(|record| log.apply_record(record));
                return Ok(());
            }
            tokio::time::sleep(Self::RETRY_INTERVAL).await;
        }
    }
}

impl RaftLogReader<Group> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, StorageError> {
        let bounds: (Bound<u64>, Bound<u64>) = (range.start_bound().cloned(), range.end_bound().cloned());
        Ok(self.log().entries.range(bounds).map(|(_, entry)| entry.clone()).collect())
    }
}

impl RaftLogStorage<Group> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Group>, StorageError> {
        let log = self.log();
        let last = log.entries.last_key_value().map(|(_, entry)| *entry.get_log_id());
        Ok(LogState { last_purged_log_id: log.purged, last_log_id: last.or(log.purged) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let saved = self.write(vec![Record::Vote(*vote)]).await;
        Ok(saved.map_err(|error| StorageIOError::write_vote(&error))?)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(self.log().vote)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Group>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let written = self.write(entries.into_iter().map(Record::Entry).collect()).await;
        match written {
            Ok(()) => callback.log_io_completed(Ok(())),
            Err(error) => {
                let storage_error = StorageIOError::write_logs(&error);
                callback.log_io_completed(Err(error));
                return Err(storage_error.into());
            }
        }
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let written = self.write(vec![Record::Truncate(log_id.index)]).await;
        Ok(written.map_err(|error| StorageIOError::write_logs(&error))?)
    }

    /// Waits for the snapshot: the Raft library installs it beside this call, and a node that died with neither would have
    /// lost what it had acknowledged.
    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let mut snapshot = self.snapshot.clone();
        let held = snapshot.wait_for(|held| *held >= Some(log_id));
        if !matches!(tokio::time::timeout(Self::SNAPSHOT_WAIT_MAX, held).await, Ok(Ok(_))) {
            let error = io::Error::new(io::ErrorKind::TimedOut, "no snapshot holds the entries that are to be purged");
            return Err(StorageIOError::write_logs(&error).into());
        }
        let purged = match self.log().purge(log_id) {
            // A log that was not shortened is still valid.
            Err(error) if is_full(&error) => {
                tracing::warn!(%error, "no disk space to compact the cluster's log");
                Ok(())
            }
            purged => purged,
        };
        Ok(purged.map_err(|error| StorageIOError::write_logs(&error))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openraft::{CommittedLeaderId, EntryPayload};

    fn entry(index: u64) -> Entry {
        let log_id = LogId::new(CommittedLeaderId::new(1, 1), index);
        let name = "n".repeat(index as usize);
        Entry {
            log_id,
            payload: EntryPayload::Normal(crate::control::raft::types::Command::Disclaim { name, claim: index }),
        }
    }

    fn indexes(log: &Log) -> Vec<u64> {
        log.entries.keys().copied().collect()
    }

    fn write(log: &mut Log, records: Vec<Record>) {
        let mut bytes = Vec::new();
        records.iter().for_each(|record| append(&mut bytes, record).unwrap());
        log.write(&bytes).unwrap();
        records.into_iter().for_each(|record| log.apply_record(record));
    }

    #[test]
    fn written_records_are_read_back_and_torn_tail_is_dropped() {
        // If this broke, a node would forget its vote, and the cluster could decide one entry twice.
        let folder = std::env::temp_dir().join(format!("ddssd-log-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut log = Log::open(&folder).unwrap();
        write(&mut log, (1..=9).map(|index| Record::Entry(entry(index))).collect());
        write(&mut log, vec![Record::Vote(Vote::new(3, 1)), Record::Truncate(8)]);
        log.purge(entry(2).log_id).unwrap();
        write(&mut log, vec![Record::Entry(entry(8))]);
        let path = folder.join(Log::NAME);
        let whole = std::fs::read(&path).unwrap();
        let check = |log: &Log, last: u64| {
            assert_eq!(indexes(log), (3..=last).collect::<Vec<_>>());
            assert_eq!((log.vote, log.purged), (Some(Vote::new(3, 1)), Some(entry(2).log_id)));
        };
        check(&Log::open(&folder).unwrap(), 8);
        let mut last = Vec::new();
        append(&mut last, &Record::Entry(entry(8))).unwrap();
        for missing in 1..=last.len() {
            std::fs::write(&path, &whole[..whole.len() - missing]).unwrap();
            let mut log = Log::open(&folder).unwrap();
            check(&log, 7);
            write(&mut log, vec![Record::Entry(entry(8))]);
            check(&Log::open(&folder).unwrap(), 8);
        }
        // Damage in the middle does not come from a crash: stopping is safer than forgetting.
        let mut damaged = whole;
        damaged[20] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert!(Log::open(&folder).unwrap_err().to_string().contains("damaged"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn entries_are_purged_after_the_snapshot_that_holds_them() {
        // If this broke, a node that dies while it installs a snapshot would lose what it had acknowledged, and could not
        // start again.
        let folder = std::env::temp_dir().join(format!("ddssd-log-purge-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (snapshot, on_disk) = watch::channel(None);
        let mut store = LogStore::open(&folder, on_disk.clone()).unwrap();
        write(&mut store.log(), (1..=5).map(|index| Record::Entry(entry(index))).collect());
        let kept = || indexes(&Log::open(&folder).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let purge = store.purge(entry(4).log_id);
            tokio::pin!(purge);
            for held in [None, Some(entry(3).log_id)] {
                snapshot.send_replace(held);
                tokio::select! {
                    biased;
                    _ = &mut purge => panic!("purged without a snapshot"),
                    () = tokio::task::yield_now() => {}
                }
                assert_eq!(kept(), [1, 2, 3, 4, 5]);
            }
            snapshot.send_replace(Some(entry(4).log_id));
            purge.await.unwrap();
        });
        assert_eq!(kept(), [5]);
        assert!(LogStore::open(&folder, on_disk).is_ok());
        let refused = LogStore::open(&folder, watch::channel(Some(entry(3).log_id)).1).unwrap_err().to_string();
        assert!(refused.contains("begins after entry 4") && refused.contains("ends with entry 3"), "{refused}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
