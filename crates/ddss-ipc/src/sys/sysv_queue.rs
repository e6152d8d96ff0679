//! System V message queues: one entry a message; the message's type is the channel.
//!
//! A queue has no descriptor, its reads have no time-out, and it outlives its creator. So every queue has a key that is
//! recorded before it is created (see `transport/sysv_journal.rs`). Only a client's own threads block on one, and an
//! empty message (a *nudge*) wakes them at their deadline.

use std::io;
use std::mem::{MaybeUninit, offset_of};

use ddss_core::Entry;
use rustix::io::Errno;

/// Bytes of an entry in a message.
const ENTRY_BYTES: usize = size_of::<Entry>();

/// A message in the kernel's format: the type, then the bytes.
#[repr(C)]
struct Message {
    kind: libc::c_long,
    entry: Entry,
}

const _: () = assert!(offset_of!(Message, entry) == size_of::<libc::c_long>());

/// Message received from a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// An entry.
    Entry(Entry),
    /// An empty message, or a signal: check the awaited condition again.
    Nudge,
    /// A message of an unexpected length.
    Malformed,
}

/// Id of a queue. It does not own the queue: see [`OwnedQueue`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Queue(i32);

impl Queue {
    /// Wraps the id of a queue that another process created.
    pub(crate) fn from_id(id: i32) -> Self {
        Self(id)
    }

    /// Returns the id to pass to other processes.
    pub(crate) fn id(self) -> i32 {
        self.0
    }

    /// Creates a queue under an unused key, for this process and that user.
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

    /// Returns the queue that this process's user created under that key.
    pub(crate) fn find_own(key: i32) -> Option<Self> {
        // SAFETY: `msgget` takes plain numbers.
        let queue = Self(answer(unsafe { libc::msgget(key, 0) }).ok()?);
        queue.is_own(key).then_some(queue)
    }

    /// Returns true if this process's user created the queue under that key, and its id is not reused.
    pub(crate) fn is_own(self, key: i32) -> bool {
        let us = rustix::process::geteuid().as_raw();
        self.stat().is_ok_and(|stat| stat.msg_perm.cuid == us && key_of(&stat.msg_perm) == key)
    }

    /// Removes the queue; blocked readers are woken with an error.
    pub(crate) fn remove(self) {
        // SAFETY: `IPC_RMID` ignores the pointer.
        let _ = unsafe { libc::msgctl(self.0, libc::IPC_RMID, std::ptr::null_mut()) };
    }

    /// Returns the number of entries that fit.
    pub(crate) fn capacity(self) -> Result<usize, Errno> {
        Ok(self.stat()?.msg_qbytes as usize / ENTRY_BYTES)
    }

    fn stat(self) -> Result<libc::msqid_ds, Errno> {
        let mut stat = MaybeUninit::<libc::msqid_ds>::zeroed();
        // SAFETY: the pointer is to a buffer for the output of `IPC_STAT`.
        answer(unsafe { libc::msgctl(self.0, libc::IPC_STAT, stat.as_mut_ptr()) })?;
        // SAFETY: the kernel filled it, and all zeroes would be valid as well.
        Ok(unsafe { stat.assume_init() })
    }

    /// Sends an entry; `AGAIN` when the queue is full.
    pub(crate) fn send(self, channel: u8, entry: &Entry) -> Result<(), Errno> {
        self.put(&Message { kind: kind(channel), entry: *entry }, ENTRY_BYTES)
    }

    /// Sends an empty message, which wakes a thread that blocks on that channel.
    pub(crate) fn nudge(self, channel: u8) -> Result<(), Errno> {
        self.put(&Message { kind: kind(channel), entry: [0; 8] }, 0)
    }

    fn put(self, message: &Message, bytes: usize) -> Result<(), Errno> {
        let pointer = std::ptr::from_ref(message).cast();
        // SAFETY: the message is a type followed by at least `bytes` bytes.
        answer(unsafe { libc::msgsnd(self.0, pointer, bytes, libc::IPC_NOWAIT) }).map(drop)
    }

    /// Receives a channel's next message, if there is one.
    pub(crate) fn try_receive(self, channel: u8) -> Result<Option<Received>, Errno> {
        match self.get(channel, libc::IPC_NOWAIT) {
            Ok(received) => Ok(Some(received)),
            Err(Errno::NOMSG) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Waits for a channel's next message without a time-out: another thread must nudge.
    pub(crate) fn receive(self, channel: u8) -> Result<Received, Errno> {
        self.get(channel, 0)
    }

    fn get(self, channel: u8, flags: i32) -> Result<Received, Errno> {
        let mut message = Message { kind: 0, entry: [0; 8] };
        let pointer = (&raw mut message).cast();
        // An oversized message is truncated instead of staying at the head of the queue forever.
        let flags = flags | libc::MSG_NOERROR;
        // SAFETY: the message has room for a type and `ENTRY_BYTES` bytes.
        let bytes = unsafe { libc::msgrcv(self.0, pointer, ENTRY_BYTES, kind(channel), flags) };
        match usize::try_from(bytes) {
            Ok(ENTRY_BYTES) => Ok(Received::Entry(message.entry)),
            Ok(0) => Ok(Received::Nudge),
            Ok(_) => Ok(Received::Malformed),
            Err(_) => match last_error() {
                Errno::INTR => Ok(Received::Nudge),
                errno => Err(errno),
            },
        }
    }
}

fn kind(channel: u8) -> libc::c_long {
    libc::c_long::from(channel) + 1
}

fn answer(answer: i32) -> Result<i32, Errno> {
    if answer < 0 { Err(last_error()) } else { Ok(answer) }
}

fn last_error() -> Errno {
    Errno::from_raw_os_error(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))
}

/// Returns the key of a queue. The C libraries disagree on the field's name.
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
                Err(errno) => panic!("cannot create a System V queue: {errno}"),
            }
        }
        unreachable!()
    }

    #[test]
    fn each_channel_receives_its_own_messages_until_queue_is_full() {
        // If this failed, one thread would get another's replies, or the progress thread would block forever.
        let (queue, key) = fresh();
        assert_eq!(Queue::find_own(key), Some(queue));
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
        assert_eq!(Queue::find_own(key), None);
        assert!(matches!(queue.try_receive(3), Err(Errno::INVAL | Errno::IDRM)));
    }
}
