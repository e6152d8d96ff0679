//! Which System V queues a daemon has made, so that the next one can remove what a crash left behind.
//!
//! A file beside the socket, one line of two keys for each client slot:
//!
//! ```text
//!  offset  8 * index      8 * index + 4
//!  +----------------------+----------------------+
//!  | reply queue's key    | request queue's key  |   i32 each, 0 none
//!  +----------------------+----------------------+
//! ```
//!
//! A key is drawn and written down *before* its queue is made, so a crash in between leaves a key without a queue and
//! never a queue without a key. It stays there when its queue goes, until the next one of that slot is made. Whoever
//! holds the daemon's lock may clean up.

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
/// Keys tried before we say that there is none to be had.
const KEY_TRIES: usize = 16;

/// What a queue is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueueRole {
    Replies = 0,
    Requests = 1,
}

/// The file; opened when the first queue is made.
#[derive(Debug)]
pub(crate) struct QueueJournal {
    file: File,
    path: PathBuf,
}

impl Drop for QueueJournal {
    fn drop(&mut self) {
        // All its queues are gone. By now another daemon may have the socket, and a ledger of its own there.
        let inode = |stat: io::Result<Metadata>| stat.map(|stat| (stat.dev(), stat.ino())).ok();
        if inode(self.file.metadata()) == inode(std::fs::metadata(&self.path)) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl QueueJournal {
    /// Where the ledger of a socket is.
    pub(crate) fn path(socket: &Path) -> PathBuf {
        let mut path = socket.as_os_str().to_owned();
        path.push(".queues");
        PathBuf::from(path)
    }

    /// Removes the queues that a dead daemon left behind, and its ledger. Gives how many there were.
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
        let left: Vec<Queue> = keys.filter(|key| *key != 0).filter_map(Queue::find_ours).collect();
        left.iter().for_each(|queue| queue.remove());
        std::fs::remove_file(&path)?;
        Ok(left.len())
    }

    /// Opens a ledger for a socket whose lock we hold, after [`clean`](Self::clean).
    pub(crate) fn open(socket: &Path) -> io::Result<Arc<Self>> {
        let path = Self::path(socket);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        file.set_len((CLIENTS_MAX * SLOT_BYTES) as u64)?;
        Ok(Arc::new(Self { file, path }))
    }

    fn note(&self, slot: usize, role: QueueRole, key: i32) -> io::Result<()> {
        debug_assert!(slot < CLIENTS_MAX);
        let offset = slot * SLOT_BYTES + role as usize * KEY_BYTES;
        self.file.write_all_at(&key.to_ne_bytes(), offset as u64)
    }
}

/// A queue that goes when its owner does.
#[derive(Debug)]
pub(crate) struct OwnedQueue {
    queue: Queue,
    key: i32,
    capacity: usize,
    /// It goes after the last of its queues.
    _ledger: Arc<QueueJournal>,
}

impl OwnedQueue {
    /// Makes a queue for the client in that slot and that user.
    pub(crate) fn create(ledger: &Arc<QueueJournal>, slot: usize, role: QueueRole, user: u32) -> io::Result<Self> {
        let random = RandomState::new();
        for attempt in 0..KEY_TRIES {
            let mut hasher = random.build_hasher();
            hasher.write_usize(attempt);
            // Neither zero (no key, and IPC_PRIVATE) nor negative, which tools print badly.
            let key = (hasher.finish() as i32 & i32::MAX).max(1);
            ledger.note(slot, role, key)?;
            match Queue::create(key, user) {
                Ok(queue) => {
                    let mut made = Self { queue, key, capacity: 0, _ledger: Arc::clone(ledger) };
                    made.capacity = queue.capacity()?;
                    return Ok(made);
                }
                Err(Errno::EXIST) => {}
                Err(errno) => {
                    ledger.note(slot, role, 0)?;
                    return Err(explain(errno));
                }
            }
        }
        ledger.note(slot, role, 0)?;
        Err(io::Error::other("found no key that is free for a message queue"))
    }

    /// The queue.
    pub(crate) fn queue(&self) -> Queue {
        self.queue
    }

    /// How many entries fit.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        // The client owns the queue as well and may have removed it, and its number may be somebody else's by now.
        if self.queue.is_ours(self.key) {
            self.queue.remove();
        }
        // Its key stays written down: the slot may be another client's by now, and a key without a queue does no harm.
    }
}

fn explain(errno: Errno) -> io::Error {
    let why = match errno {
        Errno::NOSPC => "all System V message queues of this machine are in use (kernel.msgmni): take strategy auto",
        Errno::NOSYS => "this kernel has no System V message queues: take strategy auto",
        Errno::PERM => {
            "may not give a message queue to another user (run the daemon as that user, or take strategy auto)"
        }
        _ => return errno.into(),
    };
    io::Error::other(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queues_of_a_dead_daemon_are_removed_at_the_next_start() {
        // If this broke, each crash would leave queues behind until the machine has none left.
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let user = rustix::process::geteuid().as_raw();
        let ledger = QueueJournal::open(&socket).unwrap();
        let make = |slot, role| OwnedQueue::create(&ledger, slot, role, user).unwrap();
        let (first, second, third) =
            (make(0, QueueRole::Replies), make(0, QueueRole::Requests), make(1023, QueueRole::Replies));
        let (key, left) = (first.key, [second.queue(), third.queue()]);
        drop(first);
        assert_eq!(Queue::find_ours(key), None, "dropped is removed");
        // A crash: nobody runs the destructors.
        std::mem::forget(second);
        std::mem::forget(third);
        std::mem::forget(ledger);
        assert_eq!(QueueJournal::clean(&socket).unwrap(), 2);
        for queue in left {
            assert!(queue.capacity().is_err(), "still there: {queue:?}");
        }
        assert_eq!(QueueJournal::clean(&socket).unwrap(), 0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
