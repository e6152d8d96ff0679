//! Journal of the System V queues that a daemon creates, so that the next daemon can remove those of a crash.
//!
//! A file beside the socket, with two keys for each client slot:
//!
//! ```text
//!  offset  8 * index      8 * index + 4
//!  +----------------------+----------------------+
//!  | reply queue's key    | request queue's key  |   i32 each, 0 none
//!  +----------------------+----------------------+
//! ```
//!
//! A key is drawn and recorded *before* its queue is created. So a crash in between leaves a key without a queue, never
//! a queue without a key. The key stays when its queue is removed, until the next queue of that slot is created. The
//! holder of the daemon's lock may clean up.

use std::fs::{File, Metadata, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ddss_core::limits::CLIENTS_MAX;
use rustix::io::Errno;

use crate::sys::Queue;

const SLOT_BYTES: usize = 8;
const KEY_BYTES: usize = 4;
/// Keys that are tried before creation fails.
const KEY_TRIES: usize = 16;

/// Role of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueueRole {
    Replies = 0,
    Requests = 1,
}

/// The journal file, opened when the first queue is created.
#[derive(Debug)]
pub(crate) struct QueueJournal {
    file: File,
    path: PathBuf,
}

impl Drop for QueueJournal {
    fn drop(&mut self) {
        // All its queues are removed. By now another daemon may have the socket, and its own journal at this path.
        let inode = |stat: io::Result<Metadata>| stat.map(|stat| (stat.dev(), stat.ino())).ok();
        if inode(self.file.metadata()) == inode(std::fs::metadata(&self.path)) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl QueueJournal {
    /// Returns the path of a socket's journal.
    pub(crate) fn path(socket: &Path) -> PathBuf {
        let mut path = socket.as_os_str().to_owned();
        path.push(".queues");
        PathBuf::from(path)
    }

    /// Removes the queues of a dead daemon and its journal. Returns the number of removed queues.
    pub(crate) fn clean(socket: &Path) -> io::Result<usize> {
        let path = Self::path(socket);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        let keys = bytes.chunks_exact(KEY_BYTES).take(2 * CLIENTS_MAX).map(|key| {
            let mut word = [0; KEY_BYTES];
            word.copy_from_slice(key);
            i32::from_ne_bytes(word)
        });
        let leftover: Vec<Queue> = keys.filter(|key| *key != 0).filter_map(Queue::find_own).collect();
        leftover.iter().for_each(|queue| queue.remove());
        std::fs::remove_file(&path)?;
        Ok(leftover.len())
    }

    /// Opens the journal of a socket whose lock this process holds, after [`clean`](Self::clean).
    pub(crate) fn open(socket: &Path) -> io::Result<Arc<Self>> {
        let path = Self::path(socket);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        file.set_len((CLIENTS_MAX * SLOT_BYTES) as u64)?;
        Ok(Arc::new(Self { file, path }))
    }

    fn record(&self, slot: usize, role: QueueRole, key: i32) -> io::Result<()> {
        debug_assert!(slot < CLIENTS_MAX);
        let offset = slot * SLOT_BYTES + role as usize * KEY_BYTES;
        self.file.write_all_at(&key.to_ne_bytes(), offset as u64)
    }
}

/// A queue that is removed when its owner is dropped.
#[derive(Debug)]
pub(crate) struct OwnedQueue {
    queue: Queue,
    key: i32,
    capacity: usize,
    /// Dropped after the last of its queues.
    _journal: Arc<QueueJournal>,
}

impl OwnedQueue {
    /// Creates a queue for the client of a slot and its user.
    pub(crate) fn create(journal: &Arc<QueueJournal>, slot: usize, role: QueueRole, user: u32) -> io::Result<Self> {
        let random = RandomState::new();
        for attempt in 0..KEY_TRIES {
            let mut hasher = random.build_hasher();
            hasher.write_usize(attempt);
            // Neither zero (no key, and IPC_PRIVATE) nor negative, which tools print badly.
            let key = (hasher.finish() as i32 & i32::MAX).max(1);
            journal.record(slot, role, key)?;
            match Queue::create(key, user) {
                Ok(queue) => {
                    let mut made = Self { queue, key, capacity: 0, _journal: Arc::clone(journal) };
                    made.capacity = queue.capacity()?;
                    return Ok(made);
                }
                Err(Errno::EXIST) => {}
                Err(errno) => {
                    journal.record(slot, role, 0)?;
                    return Err(explain(errno));
                }
            }
        }
        journal.record(slot, role, 0)?;
        Err(io::Error::other("cannot find a free key for a message queue"))
    }

    /// Returns the queue.
    pub(crate) fn queue(&self) -> Queue {
        self.queue
    }

    /// Returns the number of entries that fit.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        // The client owns the queue as well and may have removed it; its id may be reused by another queue.
        if self.queue.is_own(self.key) {
            self.queue.remove();
        }
        // The key stays recorded: the slot may be another client's by now, and a key without a queue is harmless.
    }
}

fn explain(errno: Errno) -> io::Error {
    let why = match errno {
        Errno::NOSPC => {
            "all System V message queues of this machine are in use (kernel.msgmni): raise it or use strategy auto"
        }
        Errno::NOSYS => "this kernel has no System V message queues: use strategy auto",
        Errno::PERM => "cannot give a message queue to another user: run the daemon as that user, or use strategy auto",
        _ => return errno.into(),
    };
    io::Error::other(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_of_dead_daemon_are_removed_at_next_start() {
        // If this failed, each crash would leave queues behind until the machine has none left.
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let user = rustix::process::geteuid().as_raw();
        let journal = QueueJournal::open(&socket).unwrap();
        let make = |slot, role| OwnedQueue::create(&journal, slot, role, user).unwrap();
        let (first, second, third) =
            (make(0, QueueRole::Replies), make(0, QueueRole::Requests), make(1023, QueueRole::Replies));
        let (key, leftover) = (first.key, [second.queue(), third.queue()]);
        drop(first);
        assert_eq!(Queue::find_own(key), None, "dropped is removed");
        // Simulates a crash, which runs no destructors.
        std::mem::forget(second);
        std::mem::forget(third);
        std::mem::forget(journal);
        assert_eq!(QueueJournal::clean(&socket).unwrap(), 2);
        for queue in leftover {
            assert!(queue.capacity().is_err(), "still there: {queue:?}");
        }
        assert_eq!(QueueJournal::clean(&socket).unwrap(), 0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
