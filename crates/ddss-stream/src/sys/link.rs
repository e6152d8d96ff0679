//! The memory of one stream: a page of this end, and behind it two rings behind one page of cursors that both ends map.
//!
//! Nothing that both ends map is trusted: positions are reduced to the ring, lengths are checked by the cursors. Whatever this end relies
//! on lies in its own page, which no peer ever gets.

use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::cursors::{Cursors, Span};
use crate::limits::{HEADER_BYTES, LINK_BYTES, OWN_BYTES, RING_BYTES};
use crate::sys::guarded_copy;
use crate::sys::user_memory::UserMemory;

/// First word of the common memory: the layout and its version.
const MAGIC: u64 = 0x4444_5353_5354_0004;
/// First word of the memory of one end.
const OWN_MAGIC: u64 = 0x4444_5353_4f57_0002;
/// Bytes of the mapping.
const MAPPED_BYTES: usize = OWN_BYTES + LINK_BYTES;

/// State of the reading direction of this end.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct OwnReader {
    /// Owner of the reading side, see `thread_lock`.
    pub(crate) lock: AtomicU64,
    /// Bytes taken from the ring.
    pub(crate) head: AtomicU64,
    /// Phase of the peer whose bytes this end takes.
    pub(crate) phase: AtomicU32,
    /// Bytes taken from TCP.
    pub(crate) tcp_read: AtomicU64,
    /// 1 while a process takes bytes from TCP that it has yet to count.
    pub(crate) is_receiving: AtomicU32,
}

/// State of the writing direction of this end.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct OwnWriter {
    /// Owner of the writing side.
    pub(crate) lock: AtomicU64,
    /// Bytes given to the ring.
    pub(crate) tail: AtomicU64,
    /// Position up to which the ring's memory was given back.
    pub(crate) returned: AtomicU64,
    /// Phase of this end: an odd one is of the ring.
    pub(crate) phase: AtomicU32,
    /// 1 once this end has to write to TCP for good.
    pub(crate) stays_on_tcp: AtomicU32,
    /// Bytes given to TCP.
    pub(crate) tcp_written: AtomicU64,
    /// 1 while a process gives bytes to TCP that it has yet to count.
    pub(crate) is_sending: AtomicU32,
}

/// State of one end that its processes rely on. They inherit the page by `fork`, or by its descriptor; the peer never gets it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Own {
    magic: AtomicU64,
    pub(crate) reader: OwnReader,
    pub(crate) writer: OwnWriter,
    /// Threads that sleep in a call of their own, for bytes and for space. A killed one stays counted, which only costs bells.
    pub(crate) blocked: [AtomicU32; 2],
    /// Processes that use this end.
    pub(crate) processes: AtomicU32,
    /// 1 after this end was shut down for writing.
    pub(crate) is_shut: AtomicU32,
    /// Hidden descriptors that a later program image inherits, plus one: own page, memory, bell, control socket.
    pub(crate) hidden: [AtomicU32; 4],
    /// 0 for the accepting end, 1 for the connecting end.
    pub(crate) side: AtomicU32,
    /// Inode of the TCP socket.
    pub(crate) inode: AtomicU64,
}

/// Record of a stream that an earlier image of the program left, from the page of its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handover {
    /// Descriptors, plus one: own page, memory, bell, control socket.
    pub(crate) hidden: [u32; 4],
    pub(crate) side: u32,
    pub(crate) inode: u64,
}

/// State of one end that its peer has to see.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Side {
    /// 1 after the last process that the end counted has closed it: the peer asks the kernel before each write.
    pub(crate) is_closed: AtomicU32,
    /// Pumps of images that may still have bytes for the peer. A killed one stays counted.
    pub(crate) pumps: AtomicU32,
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

const _: () = assert!(size_of::<Header>() <= HEADER_BYTES && size_of::<Own>() <= OWN_BYTES);

/// The mapped memory of a stream. Copied freely: the table entry owns the mapping and unmaps it when no call uses it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link(NonNull<u8>);

impl Link {
    /// Creates the memory of a stream and that of this end. Returns both descriptors: own, then common.
    pub(crate) fn create() -> Result<(Self, OwnedFd, OwnedFd), Errno> {
        let memory = sealed(c"ddss-stream", LINK_BYTES)?;
        let (link, own) = Self::open(&memory, true)?;
        Ok((link, own, memory))
    }

    /// Maps memory that a peer sent, after it was checked that the peer can no longer resize it. Returns the descriptor of the own page.
    pub(crate) fn attach(memory: impl AsFd) -> Result<(Self, OwnedFd), Errno> {
        Self::open(memory, false)
    }

    fn open(memory: impl AsFd, is_new: bool) -> Result<(Self, OwnedFd), Errno> {
        let own = sealed(c"ddss-stream-own", OWN_BYTES)?;
        let link = Self::map(&own, &memory)?;
        link.own().magic.store(OWN_MAGIC, Ordering::Relaxed);
        if is_new {
            link.header().magic.store(MAGIC, Ordering::Relaxed);
        }
        link.check().map(|link| (link, own))
    }

    /// Reads the page of an end before anything is mapped.
    pub(crate) fn handover(own: impl AsFd) -> Result<Handover, Errno> {
        check_size(&own, OWN_BYTES)?;
        let mut page = [0; size_of::<Own>()];
        if rustix::io::pread(&own, &mut page, 0)? < page.len() {
            return Err(Errno::INVAL);
        }
        let word = |at: usize| page[at..].first_chunk().map_or(0, |part| u32::from_ne_bytes(*part));
        let inode = page[offset_of!(Own, inode)..].first_chunk().map_or(0, |part| u64::from_ne_bytes(*part));
        let hidden = std::array::from_fn(|place| word(offset_of!(Own, hidden) + place * 4));
        Ok(Handover { hidden, side: word(offset_of!(Own, side)) & 1, inode })
    }

    /// Maps the memory that an earlier image of this program left.
    pub(crate) fn inherit(own: impl AsFd, memory: impl AsFd) -> Result<Self, Errno> {
        Self::map(own, memory)?.check()
    }

    fn check(self) -> Result<Self, Errno> {
        let is_known = self.own().magic.load(Ordering::Relaxed) == OWN_MAGIC
            && self.header().magic.load(Ordering::Relaxed) == MAGIC;
        if is_known {
            return Ok(self);
        }
        self.unmap();
        Err(Errno::INVAL)
    }

    fn map(own: impl AsFd, memory: impl AsFd) -> Result<Self, Errno> {
        check_size(&own, OWN_BYTES)?;
        check_size(&memory, LINK_BYTES)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address that the kernel chooses affects no other memory.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), MAPPED_BYTES, ProtFlags::empty(), flags) }?;
        let link = NonNull::new(base.cast()).map(Self).ok_or(Errno::NOMEM)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: replaces the first page of the mapping above, which nothing else uses.
        let first = unsafe { rustix::mm::mmap(base, OWN_BYTES, access, flags, own, 0) };
        let behind = base.wrapping_byte_add(OWN_BYTES);
        // SAFETY: replaces the rest of the mapping above.
        let rest = unsafe { rustix::mm::mmap(behind, LINK_BYTES, access, flags, memory, 0) };
        match first.and(rest) {
            Ok(_) => Ok(link),
            Err(error) => {
                link.unmap();
                Err(error)
            }
        }
    }

    /// Unmaps the memory. The table entry calls this once, when its last user has left.
    pub(crate) fn unmap(self) {
        // SAFETY: `map` mapped these bytes, and the entry's reference count says that nobody uses the link any more.
        let unmapped = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), MAPPED_BYTES) };
        debug_assert!(unmapped.is_ok());
    }

    pub(super) fn base(self) -> *mut u8 {
        self.0.as_ptr()
    }

    pub(super) fn from_base(base: *mut u8) -> Option<Self> {
        NonNull::new(base).map(Self)
    }

    /// Returns the state that only this end's processes can write.
    #[inline]
    pub(crate) fn own<'a>(self) -> &'a Own {
        // SAFETY: the mapping begins with an `Own`, which consists of atomics and is valid for every content.
        unsafe { self.0.cast::<Own>().as_ref() }
    }

    /// Returns the place of this end: 0 accepts, 1 connects.
    #[inline]
    pub(crate) fn side(self) -> usize {
        (self.own().side.load(Ordering::Relaxed) & 1) as usize
    }

    /// Returns the cursors of the direction that this end writes.
    #[inline]
    pub(crate) fn outgoing<'a>(self) -> &'a Cursors {
        &self.header().directions[self.side()]
    }

    /// Returns the cursors of the direction that this end reads.
    #[inline]
    pub(crate) fn incoming<'a>(self) -> &'a Cursors {
        &self.header().directions[self.side() ^ 1]
    }

    /// Returns the state that the peer can write as well.
    #[inline]
    pub(crate) fn header<'a>(self) -> &'a Header {
        // SAFETY: the offset lies inside the mapping, which has `MAPPED_BYTES`.
        let header = unsafe { self.0.add(OWN_BYTES) };
        // SAFETY: a `Header` begins there, which consists of atomics and is valid for every content.
        unsafe { header.cast::<Header>().as_ref() }
    }

    /// Returns the address of a ring's byte. The position is reduced to the ring, whatever the peer stored.
    #[inline]
    fn ring_byte(self, direction: usize, position: u64) -> *mut u8 {
        let start = OWN_BYTES + HEADER_BYTES + (direction & 1) * RING_BYTES;
        let offset = start + (position as usize & (RING_BYTES - 1));
        debug_assert!(offset < MAPPED_BYTES);
        // SAFETY: the offset lies inside the mapping, which has `MAPPED_BYTES`.
        unsafe { self.0.as_ptr().add(offset) }
    }

    /// Gives the memory of a ring back to the system: it reads as zeros from then on. The writer of the ring calls this while it is empty.
    pub(crate) fn return_ring(self, direction: usize) -> bool {
        let ring = self.ring_byte(direction, 0).cast();
        // SAFETY: the range is one ring inside the mapping; both ends read and write it as plain bytes, and zeros are bytes.
        unsafe { rustix::mm::madvise(ring, RING_BYTES, Advice::LinuxRemove) }.is_ok()
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

/// Creates memory that nobody can resize.
fn sealed(name: &std::ffi::CStr, bytes: usize) -> Result<OwnedFd, Errno> {
    let memory = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&memory, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memory)
}

/// Refuses memory of another size, and memory that another process can still resize.
fn check_size(memory: impl AsFd, bytes: usize) -> Result<(), Errno> {
    let seals = rustix::fs::fcntl_get_seals(&memory)?;
    let has_size = rustix::fs::fstat(&memory)?.st_size == bytes as i64;
    if seals.contains(SealFlags::SHRINK | SealFlags::GROW) && has_size { Ok(()) } else { Err(Errno::INVAL) }
}
