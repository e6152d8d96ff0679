//! The notice board of a node: one page that the daemon writes and every client maps read-only.
//!
//! One store says "the service sleeps" to all clients at once, and a client can tamper with nobody else's view.
//!
//! ```text
//!  offset
//!  0     +-------------------------------------------------------------+
//!        | magic u64, layout version u32 and zero u32, node u64        |  written once
//!  64    +-------------------------------------------------------------+
//!        | rest u64: 0 awake, otherwise the number of this sleep       |  written at each sleep
//!  128   +-------------------------------------------------------------+
//!        | core u64: the service's core + 1, 0 unknown                 |  written now and then
//!        | latency u64: moving average of an operation, nanoseconds    |
//!        | unwanted u64: 1 while nobody else is known to want the core |
//!  192   +-------------------------------------------------------------+
//!        | callers u32 and crowd u32, 64 times: threads of the users   |  written now and then
//!        | of a place that had requests just now, and of late          |
//!  704   +-------------------------------------------------------------+
//! ```

use std::os::fd::OwnedFd;

use ddss_core::NodeId;

use super::layout::{LAYOUT_VERSION, MAGIC, PAGE_BYTES};
use crate::sync::Ordering;
use crate::sys::{Access, MappedWord, MemoryError, SharedMemory};

const VERSION_OFFSET: usize = 8;
const NODE_OFFSET: usize = 16;
const REST_OFFSET: usize = 64;
const CORE_OFFSET: usize = 128;
const LATENCY_OFFSET: usize = 136;
const UNWANTED_OFFSET: usize = 144;
const PRESENT_OFFSET: usize = 192;

/// Places for the callers of all users. Who shares one with another user takes that one's threads for his own.
pub(crate) const PLACES: usize = 64;

/// Where the callers of a user are counted.
pub(crate) fn place_of(uid: u32) -> u8 {
    (uid % PLACES as u32) as u8
}

/// Bytes of the board.
pub(crate) const BOARD_BYTES: usize = PAGE_BYTES;

/// The words of a board, as the daemon or a client sees them.
pub(crate) struct ServicePage {
    memory: SharedMemory,
    rest: MappedWord,
    core: MappedWord,
    latency: MappedWord,
    unwanted: MappedWord,
    present: Box<[MappedWord]>,
}

/// How many threads of the users of a place have requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ActiveUsers {
    /// Just now.
    pub(crate) callers: u32,
    /// While each had a turn.
    pub(crate) crowd: u32,
}

impl ActiveUsers {
    fn to_word(self) -> u64 {
        u64::from(self.crowd) << u32::BITS | u64::from(self.callers)
    }

    fn from_word(word: u64) -> Self {
        Self { callers: word as u32, crowd: (word >> u32::BITS) as u32 }
    }
}

impl ServicePage {
    /// The daemon's: after this nobody else gets a writable mapping.
    pub(crate) fn create(node: NodeId) -> Result<Self, MemoryError> {
        let memory = SharedMemory::create("ddss-board", BOARD_BYTES)?;
        memory.store(0, MAGIC, Ordering::Relaxed)?;
        memory.store(VERSION_OFFSET, u64::from(LAYOUT_VERSION), Ordering::Relaxed)?;
        memory.store(NODE_OFFSET, u64::from(node.0), Ordering::Relaxed)?;
        memory.seal_future_writes()?;
        Self::over(memory)
    }

    /// A client's.
    pub(crate) fn open(descriptor: OwnedFd) -> Result<Self, MemoryError> {
        Self::over(SharedMemory::from_descriptor(descriptor, BOARD_BYTES, Access::ReadOnly)?)
    }

    fn over(memory: SharedMemory) -> Result<Self, MemoryError> {
        Ok(Self {
            rest: memory.word_at(REST_OFFSET)?,
            core: memory.word_at(CORE_OFFSET)?,
            latency: memory.word_at(LATENCY_OFFSET)?,
            unwanted: memory.word_at(UNWANTED_OFFSET)?,
            present: (0..PLACES).map(|place| memory.word_at(PRESENT_OFFSET + 8 * place)).collect::<Result<_, _>>()?,
            memory,
        })
    }

    /// What is passed to clients.
    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Whether the page says what it is.
    pub(crate) fn is_genuine(&self) -> bool {
        let word = |offset| self.memory.load(offset, Ordering::Relaxed).unwrap_or(0);
        word(0) == MAGIC && word(VERSION_OFFSET) == u64::from(LAYOUT_VERSION)
    }

    /// "I sleep" (the number of the sleep) or "I am awake" (zero).
    pub(crate) fn set_rest(&self, rest: u64) {
        self.rest.store(rest, Ordering::Relaxed);
    }

    /// What the service said last.
    #[inline(always)]
    pub(crate) fn rest(&self) -> u64 {
        self.rest.load(Ordering::Relaxed)
    }

    /// The service runs on this core now.
    pub(crate) fn set_core(&self, core: usize) {
        let value = core as u64 + 1;
        if self.core.load(Ordering::Relaxed) != value {
            self.core.store(value, Ordering::Relaxed);
        }
    }

    /// Where the service runs.
    pub(crate) fn core(&self) -> Option<usize> {
        (self.core.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// The moving average of what one operation takes.
    pub(crate) fn set_latency_ns(&self, latency_ns: u64) {
        self.latency.store(latency_ns, Ordering::Relaxed);
    }

    /// The moving average of what one operation takes.
    pub(crate) fn latency_ns(&self) -> u64 {
        self.latency.load(Ordering::Relaxed)
    }

    /// Whether nobody is known to want the service's core, but for those who wait for the service on it.
    pub(crate) fn set_core_unwanted(&self, unwanted: bool) {
        self.unwanted.store(unwanted.into(), Ordering::Relaxed);
    }

    /// Whether the service says so.
    #[inline]
    pub(crate) fn is_core_unwanted(&self) -> bool {
        self.unwanted.load(Ordering::Relaxed) == 1
    }

    /// Who of the users of that place has requests.
    pub(crate) fn set_present(&self, place: u8, present: ActiveUsers) {
        if let Some(word) = self.present.get(usize::from(place))
            && word.load(Ordering::Relaxed) != present.to_word()
        {
            word.store(present.to_word(), Ordering::Relaxed);
        }
    }

    /// Who of the users of that place has requests.
    #[inline(always)]
    pub(crate) fn present(&self, place: u8) -> ActiveUsers {
        let word = self.present.get(usize::from(place)).map_or(0, |word| word.load(Ordering::Relaxed));
        ActiveUsers::from_word(word)
    }
}
