//! System V message queues: one entry a message, the message's type is the lane.
//!
//! A queue has no descriptor, its reads know no time-out, and it stays behind when its maker dies. So: every queue has
//! a key that was written down before it was made (see `transport/sysv_journal.rs`), nobody but a client's own thread ever blocks on
//! one, and who blocks is woken by an empty message (a *nudge*) when its time is up.

use std::io;
use std::mem::{MaybeUninit, offset_of};

use ddss_core::Entry;
use rustix::io::Errno;

/// Bytes of an entry in a message.
const ENTRY_BYTES: usize = size_of::<Entry>();

/// A message as the kernel takes it: the type, then the bytes.
#[repr(C)]
struct Message {
    kind: libc::c_long,
    entry: Entry,
}

const _: () = assert!(offset_of!(Message, entry) == size_of::<libc::c_long>());

/// What came out of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// A message of ours.
    Entry(Entry),
    /// An empty message, or a signal: look at what you wait for again.
    Nudge,
    /// A message that nobody of us sends.
    Nonsense,
}

/// A queue's number. It names a queue, it does not keep it: see [`OwnedQueue`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Queue(i32);

impl Queue {
    /// A queue that somebody else made.
    pub(crate) fn from_id(id: i32) -> Self {
        Self(id)
    }

    /// The number to tell others.
    pub(crate) fn id(self) -> i32 {
        self.0
    }

    /// Makes a queue under a key that nobody uses, for this process and that user.
    pub(crate) fn create(key: i32, user: u32) -> Result<Self, Errno> {
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | 0o600;
        // SAFETY: `msgget` takes plain numbers.
        let queue = Self(answer(unsafe { libc::msgget(key, flags) })?);
        let owned = queue.stat().and_then(|mut stat| {
            stat.msg_perm.uid = user;
            // SAFETY: the queue's own description, just read, with another owner; the kernel only reads it.
            answer(unsafe { libc::msgctl(queue.0, libc::IPC_SET, &raw mut stat) })
        });
        if let Err(errno) = owned {
            queue.remove();
            return Err(errno);
        }
        Ok(queue)
    }

    /// The queue that this process's user made under that key.
    pub(crate) fn find_ours(key: i32) -> Option<Self> {
        // SAFETY: `msgget` takes plain numbers.
        let queue = Self(answer(unsafe { libc::msgget(key, 0) }).ok()?);
        queue.is_ours(key).then_some(queue)
    }

    /// Whether it is what this process's user made under that key, and not another queue with a number used again.
    pub(crate) fn is_ours(self, key: i32) -> bool {
        let us = rustix::process::geteuid().as_raw();
        self.stat().is_ok_and(|stat| stat.msg_perm.cuid == us && key_of(&stat.msg_perm) == key)
    }

    /// Removes it; who blocks on it is woken with an error.
    pub(crate) fn remove(self) {
        // SAFETY: `IPC_RMID` ignores the pointer.
        let _ = unsafe { libc::msgctl(self.0, libc::IPC_RMID, std::ptr::null_mut()) };
    }

    /// How many entries fit.
    pub(crate) fn capacity(self) -> Result<usize, Errno> {
        Ok(self.stat()?.msg_qbytes as usize / ENTRY_BYTES)
    }

    fn stat(self) -> Result<libc::msqid_ds, Errno> {
        let mut stat = MaybeUninit::<libc::msqid_ds>::zeroed();
        // SAFETY: the pointer is to room for what `IPC_STAT` writes.
        answer(unsafe { libc::msgctl(self.0, libc::IPC_STAT, stat.as_mut_ptr()) })?;
        // SAFETY: the kernel filled it, and all zeroes would have been a value as well.
        Ok(unsafe { stat.assume_init() })
    }

    /// Sends an entry; `AGAIN` when the queue is full.
    pub(crate) fn send(self, lane: u8, entry: &Entry) -> Result<(), Errno> {
        self.put(&Message { kind: kind(lane), entry: *entry }, ENTRY_BYTES)
    }

    /// Sends an empty message, so that whoever blocks on that lane looks up.
    pub(crate) fn nudge(self, lane: u8) -> Result<(), Errno> {
        self.put(&Message { kind: kind(lane), entry: [0; 8] }, 0)
    }

    fn put(self, message: &Message, bytes: usize) -> Result<(), Errno> {
        let pointer = std::ptr::from_ref(message).cast();
        // SAFETY: the message is a type followed by at least `bytes` bytes.
        answer(unsafe { libc::msgsnd(self.0, pointer, bytes, libc::IPC_NOWAIT) }).map(drop)
    }

    /// Takes a lane's next message, if there is one.
    pub(crate) fn try_receive(self, lane: u8) -> Result<Option<Received>, Errno> {
        match self.get(lane, libc::IPC_NOWAIT) {
            Ok(received) => Ok(Some(received)),
            Err(Errno::NOMSG) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Waits for a lane's next message, without end: somebody must be there to nudge.
    pub(crate) fn receive(self, lane: u8) -> Result<Received, Errno> {
        self.get(lane, 0)
    }

    fn get(self, lane: u8, flags: i32) -> Result<Received, Errno> {
        let mut message = Message { kind: 0, entry: [0; 8] };
        let pointer = (&raw mut message).cast();
        // An oversized message is cut off instead of staying at the head of the queue for ever.
        let flags = flags | libc::MSG_NOERROR;
        // SAFETY: the message has room for a type and `ENTRY_BYTES` bytes.
        let bytes = unsafe { libc::msgrcv(self.0, pointer, ENTRY_BYTES, kind(lane), flags) };
        match usize::try_from(bytes) {
            Ok(ENTRY_BYTES) => Ok(Received::Entry(message.entry)),
            Ok(0) => Ok(Received::Nudge),
            Ok(_) => Ok(Received::Nonsense),
            Err(_) => match last_error() {
                Errno::INTR => Ok(Received::Nudge),
                errno => Err(errno),
            },
        }
    }
}

fn kind(lane: u8) -> libc::c_long {
    libc::c_long::from(lane) + 1
}

fn answer(answer: i32) -> Result<i32, Errno> {
    if answer < 0 { Err(last_error()) } else { Ok(answer) }
}

fn last_error() -> Errno {
    Errno::from_raw_os_error(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))
}

/// The key that a queue was made under. The C libraries do not agree on the field's name.
fn key_of(made: &libc::ipc_perm) -> i32 {
    #[cfg(target_env = "musl")]
    #[expect(deprecated, reason = "the next release of libc calls it as glibc does, and ends this")]
    let key = made.__ipc_perm_key;
    #[cfg(not(target_env = "musl"))]
    let key = made.__key;
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> (Queue, i32) {
        let user = rustix::process::geteuid().as_raw();
        for key in 0x4453_0000 + (std::process::id() as i32 & 0xffff) * 16.. {
            match Queue::create(key, user) {
                Ok(queue) => return (queue, key),
                Err(Errno::EXIST) => {}
                Err(errno) => panic!("no System V queue to be had: {errno}"),
            }
        }
        unreachable!()
    }

    #[test]
    fn each_lane_gets_its_own_messages_and_a_full_queue_says_so() {
        // If this broke, one thread would get another's answers, or the progress thread would block for ever.
        let (queue, key) = fresh();
        assert_eq!(Queue::find_ours(key), Some(queue));
        queue.send(1, &[11; 8]).unwrap();
        queue.send(0, &[10; 8]).unwrap();
        queue.nudge(0).unwrap();
        assert_eq!(queue.try_receive(0), Ok(Some(Received::Entry([10; 8]))));
        assert_eq!(queue.receive(0), Ok(Received::Nudge));
        assert_eq!(queue.try_receive(0), Ok(None));
        assert_eq!(queue.receive(1), Ok(Received::Entry([11; 8])));
        for _ in 0..queue.capacity().unwrap() {
            queue.send(3, &[0; 8]).unwrap();
        }
        assert_eq!(queue.send(3, &[0; 8]), Err(Errno::AGAIN));
        queue.remove();
        assert_eq!(Queue::find_ours(key), None);
        assert!(matches!(queue.try_receive(3), Err(Errno::INVAL | Errno::IDRM)));
    }
}
