//! The shared memory of one stream: two rings behind one page of cursors.
//!
//! Nothing in here is trusted: positions are reduced to the ring, lengths are checked by the cursors.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::cursors::{Cursors, Span};
use crate::limits::{HEADER_BYTES, LINK_BYTES, RING_BYTES};
use crate::sys::guarded_copy;
use crate::sys::user_memory::UserMemory;

/// First word of the memory: the layout and its version.
const MAGIC: u64 = 0x4444_5353_5354_0002;

/// State of one end of a stream, shared by the processes that inherited it. Only that end writes it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Side {
    /// Owner of the reading side, see `thread_lock`.
    pub(crate) read_lock: AtomicU64,
    /// Owner of the writing side.
    pub(crate) write_lock: AtomicU64,
    /// Bytes taken from TCP.
    pub(crate) tcp_read: AtomicU64,
    /// Bytes given to TCP.
    pub(crate) tcp_written: AtomicU64,
    /// Threads that sleep in a call of their own, for bytes and for space. A killed one stays counted, which only costs bells.
    pub(crate) blocked: [AtomicU32; 2],
    /// Processes that use this end.
    pub(crate) processes: AtomicU32,
    /// 1 after the last of them closed it.
    pub(crate) is_closed: AtomicU32,
    /// 1 after this end was shut down for writing.
    pub(crate) is_shut: AtomicU32,
    /// Hidden descriptors of this end, plus one: memory, own bell, the peer's bell, control socket.
    pub(crate) hidden: [AtomicU32; 4],
    /// Inode of the TCP socket.
    pub(crate) inode: AtomicU64,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Header {
    magic: AtomicU64,
    /// 1 once the connector uses the memory.
    pub(crate) is_attached: AtomicU32,
    /// The accepting end, then the connecting end.
    pub(crate) sides: [Side; 2],
    /// The direction that the accepting end writes, then the other.
    pub(crate) directions: [Cursors; 2],
}

const _: () = assert!(size_of::<Header>() <= HEADER_BYTES);

/// The mapped memory of a stream. Copied freely: the table entry owns the mapping and unmaps it when no call uses it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link(NonNull<u8>);

impl Link {
    /// Creates sealed memory with a new header.
    pub(crate) fn create() -> Result<(Self, OwnedFd), Errno> {
        let memory = rustix::fs::memfd_create("ddss-stream", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&memory, LINK_BYTES as u64)?;
        rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let link = Self::map(&memory)?;
        link.header().magic.store(MAGIC, std::sync::atomic::Ordering::Relaxed);
        Ok((link, memory))
    }

    /// Maps memory that a peer sent, after it was checked that the peer can no longer resize it.
    pub(crate) fn open(memory: impl AsFd) -> Result<Self, Errno> {
        let seals = rustix::fs::fcntl_get_seals(&memory)?;
        let has_size = rustix::fs::fstat(&memory)?.st_size == LINK_BYTES as i64;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) || !has_size {
            return Err(Errno::INVAL);
        }
        let link = Self::map(&memory)?;
        if link.header().magic.load(std::sync::atomic::Ordering::Relaxed) != MAGIC {
            link.unmap();
            return Err(Errno::INVAL);
        }
        Ok(link)
    }

    fn map(memory: impl AsFd) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address that the kernel chooses affects no other memory.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), LINK_BYTES, access, MapFlags::SHARED, memory, 0) }?;
        NonNull::new(base.cast()).map(Self).ok_or(Errno::NOMEM)
    }

    /// Unmaps the memory. The table entry calls this once, when its last user has left.
    pub(crate) fn unmap(self) {
        // SAFETY: `map` mapped these bytes, and the entry's reference count says that nobody uses the link any more.
        let unmapped = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), LINK_BYTES) };
        debug_assert!(unmapped.is_ok());
    }

    pub(super) fn base(self) -> *mut u8 {
        self.0.as_ptr()
    }

    pub(super) fn from_base(base: *mut u8) -> Option<Self> {
        NonNull::new(base).map(Self)
    }

    pub(crate) fn header<'a>(self) -> &'a Header {
        // SAFETY: the mapping begins with a `Header`, which consists of atomics and is valid for every content.
        unsafe { self.0.cast::<Header>().as_ref() }
    }

    /// Returns the address of a ring's byte. The position is reduced to the ring, whatever the peer stored.
    #[inline]
    fn ring_byte(self, direction: usize, position: u64) -> *mut u8 {
        let offset = HEADER_BYTES + (direction & 1) * RING_BYTES + (position as usize & (RING_BYTES - 1));
        debug_assert!(offset < LINK_BYTES);
        // SAFETY: the offset lies inside the mapping, which has `LINK_BYTES`.
        unsafe { self.0.as_ptr().add(offset) }
    }

    /// Copies bytes of the program into a ring. `FAULT`: the program passed a wrong pointer.
    #[inline]
    pub(crate) fn write(self, direction: usize, span: Span, from: &UserMemory<'_>, offset: usize) -> Result<(), Errno> {
        debug_assert!(span.bytes <= RING_BYTES);
        from.each_part(offset, span.bytes, |done, part, bytes| {
            let position = span.position.wrapping_add(done as u64);
            let first = bytes.min(RING_BYTES - (position as usize & (RING_BYTES - 1)));
            // SAFETY: `part` is memory of the program or faults; the ring has `first` bytes from `position` to its end.
            unsafe { guarded_copy::copy(self.ring_byte(direction, position), part, first) }?;
            if first == bytes {
                return Ok(());
            }
            let start = self.ring_byte(direction, position.wrapping_add(first as u64));
            // SAFETY: as above; the remaining bytes begin at the ring's start and are fewer than its capacity.
            unsafe { guarded_copy::copy(start, part.wrapping_add(first), bytes - first) }
        })
    }

    /// Copies bytes of a ring to the program. `FAULT`: the program passed a wrong pointer.
    #[inline]
    pub(crate) fn read(self, direction: usize, span: Span, to: &UserMemory<'_>, offset: usize) -> Result<(), Errno> {
        debug_assert!(span.bytes <= RING_BYTES);
        to.each_part(offset, span.bytes, |done, part, bytes| {
            let position = span.position.wrapping_add(done as u64);
            let first = bytes.min(RING_BYTES - (position as usize & (RING_BYTES - 1)));
            // SAFETY: `part` has room for `bytes` or faults; the ring has `first` bytes from `position` to its end.
            unsafe { guarded_copy::copy(part, self.ring_byte(direction, position), first) }?;
            if first == bytes {
                return Ok(());
            }
            let start = self.ring_byte(direction, position.wrapping_add(first as u64));
            // SAFETY: as above; the remaining bytes begin at the ring's start.
            unsafe { guarded_copy::copy(part.wrapping_add(first), start, bytes - first) }
        })
    }
}
