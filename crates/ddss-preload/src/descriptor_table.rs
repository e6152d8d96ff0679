//! The meaning of each descriptor of the program.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use ddss_stream::{Descriptor, Endpoint};
use rustix::io::FdFlags;

use crate::set_counts;

/// Descriptors above this number stay with the kernel.
const DESCRIPTORS: usize = 65_536;
const KIND: u32 = 3 << 30;
const STREAM: u32 = 1 << 30;
/// A stream that stays on TCP. Its entry only serves `ddss streams`.
const PLAIN: u32 = 2 << 30;
const EPOLL: u32 = 3 << 30;

/// Highest descriptor that was ever a stream.
static HIGHEST: AtomicI32 = AtomicI32::new(-1);

static TABLE: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(0) }; DESCRIPTORS];

/// Inode of each stream's socket. It tells a stream from a file that got its number when a close went past this library.
static INODES: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];

/// True if loaded code closes by its own instructions: each use of a number then compares the inode.
///
/// Without such code every close passes this library. The comparison takes one `fstat`, which costs more than a small operation on a ring
/// (0.5 µs on a virtual machine), so that programs do not pay for it in vain.
static COMPARES_INODES: AtomicBool = AtomicBool::new(false);

/// Compares the inode with each use from now on.
pub(crate) fn compare_inodes() {
    COMPARES_INODES.store(true, Ordering::Relaxed);
}

/// Returns the inode behind a descriptor, if it is a socket's.
fn socket_inode(descriptor: RawFd) -> Option<u64> {
    let found = rustix::fs::fstat(Descriptor(descriptor)).ok()?;
    (found.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(found.st_ino)
}

/// Forgets a stream whose number now belongs to another file. False: it is still that of the stream, or the program closed it.
#[cold]
pub(crate) fn forget_replaced(descriptor: RawFd) -> bool {
    let Some(entry) = entry(descriptor) else { return false };
    let code = entry.load(Ordering::Acquire);
    let inode = INODES[descriptor as usize].load(Ordering::Acquire);
    let is_replaced = code & KIND == STREAM && socket_inode(descriptor) != Some(inode);
    if is_replaced && entry.compare_exchange(code, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        release(code);
    }
    is_replaced
}

#[inline]
fn entry(descriptor: RawFd) -> Option<&'static AtomicU32> {
    TABLE.get(descriptor as usize)
}

/// Returns true if the descriptor is that of a stream, unless the connection stays on TCP.
#[inline(always)]
pub(crate) fn may_leave_tcp(descriptor: RawFd) -> bool {
    entry(descriptor).is_some_and(|entry| entry.load(Ordering::Relaxed) & KIND == STREAM)
}

/// Returns the stream behind a descriptor, unless the connection stays on TCP.
#[inline]
pub(crate) fn stream(descriptor: RawFd) -> Option<Endpoint> {
    let entry = entry(descriptor)?;
    if COMPARES_INODES.load(Ordering::Relaxed) {
        forget_replaced(descriptor);
    }
    loop {
        let code = entry.load(Ordering::Acquire);
        if code & KIND != STREAM {
            return None;
        }
        let endpoint = Endpoint::acquire(code & !KIND);
        // The descriptor may have been closed, and the entry used again, before the use was counted.
        if entry.load(Ordering::Acquire) == code && endpoint.is_some() {
            return endpoint;
        }
    }
}

/// Returns true if a descriptor was ever a stream.
#[inline]
pub(crate) fn has_streams() -> bool {
    HIGHEST.load(Ordering::Relaxed) >= 0
}

/// Returns the streams that may leave TCP or have left it, by descriptor.
pub(crate) fn streams() -> impl Iterator<Item = (RawFd, Endpoint)> {
    (0..=HIGHEST.load(Ordering::Relaxed)).filter_map(|fd| stream(fd).map(|endpoint| (fd, endpoint)))
}

/// Returns true if a new program image inherits the descriptor.
pub(crate) fn survives_exec(descriptor: RawFd) -> bool {
    rustix::io::fcntl_getfd(Descriptor(descriptor)).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC))
}

/// Returns the position of the epoll set behind a descriptor.
#[inline]
pub(crate) fn epoll(descriptor: RawFd) -> Option<usize> {
    let code = entry(descriptor)?.load(Ordering::Acquire);
    (code & KIND == EPOLL).then_some((code & !KIND) as usize)
}

/// Stores a new stream. A descriptor that is too high stays on TCP.
pub(crate) fn insert_stream(descriptor: RawFd, endpoint: Endpoint) -> bool {
    let (Some(entry), Some(inode)) = (entry(descriptor), socket_inode(descriptor)) else { return false };
    INODES[descriptor as usize].store(inode, Ordering::Release);
    HIGHEST.fetch_max(descriptor, Ordering::Relaxed);
    release(entry.swap(STREAM | endpoint.into_table(), Ordering::AcqRel));
    true
}

/// Stores an epoll set.
pub(crate) fn insert_epoll(descriptor: RawFd, set: usize) -> bool {
    let Some(entry) = entry(descriptor) else { return false };
    release(entry.swap(EPOLL | set as u32, Ordering::AcqRel));
    true
}

/// Lets the calls on a descriptor pass to the kernel directly.
pub(crate) fn mark_plain(descriptor: RawFd) {
    let Some(entry) = entry(descriptor) else { return };
    let code = entry.load(Ordering::Acquire);
    if code & KIND == STREAM {
        let plain = code & !KIND | PLAIN;
        // A failure means that the descriptor was closed in the meantime.
        let _ = entry.compare_exchange(code, plain, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Forgets a descriptor, before the kernel closes it.
pub(crate) fn remove(descriptor: RawFd) {
    let Some(entry) = entry(descriptor) else { return };
    if entry.load(Ordering::Relaxed) != 0 {
        release(entry.swap(0, Ordering::AcqRel));
    }
}

/// Gives `copy` the meaning of `original`, after the kernel has duplicated it.
pub(crate) fn duplicate(original: RawFd, copy: RawFd) {
    let (Some(from), Some(to)) = (entry(original), entry(copy)) else { return };
    let code = from.load(Ordering::Acquire);
    if code & KIND != 0 {
        HIGHEST.fetch_max(copy, Ordering::Relaxed);
        let inode = INODES[original as usize].load(Ordering::Acquire);
        INODES[copy as usize].store(inode, Ordering::Release);
    }
    let is_live = match code & KIND {
        STREAM | PLAIN => Endpoint::acquire(code & !KIND).map(Endpoint::into_table).is_some(),
        EPOLL => set_counts::share((code & !KIND) as usize),
        _ => false,
    };
    release(to.swap(if is_live { code } else { 0 }, Ordering::AcqRel));
}

/// Returns true if the descriptor means something to the library.
#[inline]
pub(crate) fn is_known(descriptor: RawFd) -> bool {
    entry(descriptor).is_some_and(|entry| entry.load(Ordering::Relaxed) != 0)
}

/// Number of descriptors in the table.
pub(crate) fn len() -> u32 {
    DESCRIPTORS as u32
}

fn release(code: u32) {
    match code & KIND {
        STREAM | PLAIN => drop(Endpoint::from_table(code & !KIND)),
        EPOLL => set_counts::release((code & !KIND) as usize),
        _ => (),
    }
}
