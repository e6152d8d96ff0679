//! Two tables of streams: one that forked processes share, and one that each process has for itself.
//!
//! Entries are zero when free and consist of atomics, so that `close` needs no allocator and no lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

use super::descriptor::HiddenDescriptor;
use super::link::Link;

/// Streams of a process and its forked children.
pub const SLOTS: usize = 16_384;

/// State of a stream that a forked child shares with its parent, and that `ddss streams` reads.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Shared {
    pub(crate) state: AtomicU32,
    /// Calls in progress while the stream is undecided; the top bit is set while one of them decides.
    pub(crate) gate: AtomicU32,
    pub(crate) processes: AtomicU32,
    /// 0 for the accepting end, 1 for the connecting end.
    pub(crate) side: AtomicU32,
    pub(crate) reason: AtomicU32,
    pub(crate) process: AtomicU32,
    pub(crate) calls: AtomicU32,
    pub(crate) ports: AtomicU32,
    /// Number of the stream that uses this entry.
    pub(crate) generation: AtomicU32,
    pub(crate) tcp_read: AtomicU64,
    pub(crate) tcp_written: AtomicU64,
    /// Address of the connecting end, then of the accepting end, as IPv6.
    pub(crate) addresses: [AtomicU64; 4],
}

/// State of a stream in this process.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Local {
    /// Entries of the descriptor table, and calls in progress.
    pub(crate) users: AtomicU32,
    /// Number of the stream that uses this entry now; a registration with another number is out of date.
    pub(crate) generation: AtomicU32,
    /// 1 for a stream that has left TCP. A child that its parent does not know may lose the shared entry, and keeps this.
    pub(crate) is_off_tcp: AtomicU32,
    base: AtomicPtr<u8>,
    hidden: [AtomicI32; 5],
    pub(crate) latched: AtomicU32,
    pub(crate) error: AtomicI32,
    /// 1 after a write that found no space, until the next write asks whether the peer is gone.
    pub(crate) is_full: AtomicU32,
    /// Writes that found too little space and did not wait.
    pub(crate) shortages: AtomicU32,
    /// 1 from the moment when a set of `epoll` asks for space until one has taken a bell.
    pub(crate) asks_space: AtomicU32,
    pub(crate) writes: AtomicU32,
    /// Progress of the reader when this end last found too little space, and the time of the first such look, in milliseconds.
    pub(crate) full_progress: AtomicU64,
    pub(crate) full_since: AtomicU64,
    /// Position of the writer at the last look for idle rings.
    pub(crate) seen_tail: AtomicU64,
    /// Sets of `epoll` that keep an interest in the stream.
    pub(crate) registrations: AtomicU32,
    /// 1 once a set waits for the stream that the program waits for from outside: no thread of the library looks there.
    pub(crate) is_watched: AtomicU32,
    /// Bytes that a wait of the program asks for (`SO_RCVLOWAT`), less one.
    pub(crate) low_water: AtomicU32,
}

/// Place of a hidden descriptor in an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hidden {
    /// Memory of this end alone.
    Own = 0,
    /// Memory that the peer maps too.
    Memory = 1,
    /// Wakes the waiters of this end. The peer does not have it.
    Bell = 2,
    /// Connection to the peer: each byte is a ring, and a hang-up is the end of the peer's last process.
    Control = 3,
    Listener = 4,
}

impl Local {
    pub(crate) fn link(&self) -> Option<Link> {
        Link::from_base(self.base.load(Ordering::Acquire))
    }

    pub(crate) fn set_link(&self, link: Link) {
        self.base.store(link.base(), Ordering::Release);
    }

    pub(crate) fn take_link(&self) -> Option<Link> {
        Link::from_base(self.base.swap(std::ptr::null_mut(), Ordering::AcqRel))
    }

    #[inline]
    pub(crate) fn hidden(&self, place: Hidden) -> Option<HiddenDescriptor> {
        let number = self.hidden[place as usize].load(Ordering::Relaxed);
        (number > 0).then(|| HiddenDescriptor::known(number - 1))
    }

    pub(crate) fn set_hidden(&self, place: Hidden, descriptor: HiddenDescriptor) {
        self.hidden[place as usize].store(descriptor.number() + 1, Ordering::Relaxed);
    }

    pub(crate) fn close_hidden(&self, place: Hidden) {
        let number = self.hidden[place as usize].swap(0, Ordering::AcqRel);
        if number > 0 {
            HiddenDescriptor::known(number - 1).close();
        }
    }
}

struct Tables {
    shared: *const Shared,
    local: *const Local,
    /// Keeps the memory's descriptor hidden.
    _memory: HiddenDescriptor,
}

// SAFETY: both tables consist of atomics and stay mapped until the process ends.
unsafe impl Send for Tables {}
// SAFETY: as above.
unsafe impl Sync for Tables {}

static TABLES: OnceLock<Option<Tables>> = OnceLock::new();
static HIGH_WATER: AtomicU32 = AtomicU32::new(0);

/// Creates the tables. Returns false if the process cannot have them: all its streams then stay on TCP.
pub fn init() -> bool {
    TABLES.get_or_init(create).is_some()
}

fn create() -> Option<Tables> {
    let memory = rustix::fs::memfd_create("ddss-streams", MemfdFlags::CLOEXEC).ok()?;
    let (shared_bytes, local_bytes) = (SLOTS * size_of::<Shared>(), SLOTS * size_of::<Local>());
    rustix::fs::ftruncate(&memory, shared_bytes as u64).ok()?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address that the kernel chooses affects no other memory.
    let shared =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), shared_bytes, access, MapFlags::SHARED, &memory, 0) }.ok()?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: as above.
    let local = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), local_bytes, access, flags) }.ok()?;
    let memory = HiddenDescriptor::hide(memory, true).ok()?;
    Some(Tables { shared: shared.cast(), local: local.cast(), _memory: memory })
}

#[inline]
fn tables() -> Option<&'static Tables> {
    TABLES.get().and_then(Option::as_ref)
}

/// Returns an entry that forked processes share.
///
/// # Panics
///
/// Panics before [`init`], and for an index beyond the table.
#[inline]
pub(crate) fn shared(index: u32) -> &'static Shared {
    assert!((index as usize) < SLOTS);
    #[allow(clippy::expect_used, reason = "no stream exists before the tables do")]
    let tables = tables().expect("the tables of streams exist");
    // SAFETY: the table has `SLOTS` entries of atomics and is never unmapped.
    let entry = unsafe { tables.shared.add(index as usize) };
    // SAFETY: as above.
    unsafe { &*entry }
}

/// Returns an entry of this process. Panics as [`shared`] does.
#[inline]
pub(crate) fn local(index: u32) -> &'static Local {
    assert!((index as usize) < SLOTS);
    #[allow(clippy::expect_used, reason = "no stream exists before the tables do")]
    let tables = tables().expect("the tables of streams exist");
    // SAFETY: the table has `SLOTS` entries of atomics and is never unmapped.
    let entry = unsafe { tables.local.add(index as usize) };
    // SAFETY: as above.
    unsafe { &*entry }
}

/// Returns the number of entries that this process has ever used; raises it to include `index`.
pub(crate) fn high_water(index: Option<u32>) -> u32 {
    match index {
        Some(index) => HIGH_WATER.fetch_max(index + 1, Ordering::Relaxed).max(index + 1),
        None => HIGH_WATER.load(Ordering::Relaxed),
    }
}
