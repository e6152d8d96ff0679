//! The service page of a node: one page that the daemon writes and every client maps read-only.
//!
//! One store announces the service's sleep to all clients at once, and no client can tamper with the page.
//!
//! ```text
//!  offset
//!  0     +-------------------------------------------------------------+
//!        | magic u64, layout version u32 and zero u32, node u64        |  written once
//!  64    +-------------------------------------------------------------+
//!        | sleep id u64: 0 awake, otherwise the number of this sleep   |  written at each sleep
//!  128   +-------------------------------------------------------------+
//!        | core u64: the service's core + 1, 0 unknown                 |  written now and then
//!        | latency u64: moving average of an operation, nanoseconds    |
//!        | exclusive u64: 1 while no other thread wants the core       |
//!  192   +-------------------------------------------------------------+
//!        | active u32 and recent u32, 64 times: threads of a user      |  written now and then
//!        | bucket with requests now, and over a longer period          |
//!  704   +-------------------------------------------------------------+
//! ```

use std::os::fd::OwnedFd;

use ddss_core::NodeId;

use super::layout::{LAYOUT_VERSION, MAGIC, PAGE_BYTES};
use crate::sync::Ordering;
use crate::sys::{Access, MappedWord, MemoryError, SharedMemory};

const VERSION_OFFSET: usize = 8;
const NODE_OFFSET: usize = 16;
const SLEEP_ID_OFFSET: usize = 64;
const CORE_OFFSET: usize = 128;
const LATENCY_OFFSET: usize = 136;
const EXCLUSIVE_OFFSET: usize = 144;
const ACTIVE_THREADS_OFFSET: usize = 192;

/// Buckets for the thread counts of all users. Users that share a bucket see each other's threads as their own.
pub(crate) const USER_BUCKETS: usize = 64;

/// Returns the bucket of a user's thread counts.
pub(crate) fn user_bucket(uid: u32) -> u8 {
    (uid % USER_BUCKETS as u32) as u8
}

/// Bytes of the page.
pub(crate) const SERVICE_PAGE_BYTES: usize = PAGE_BYTES;

/// The words of a service page, as the daemon or a client maps them.
pub(crate) struct ServicePage {
    memory: SharedMemory,
    sleep_id: MappedWord,
    core: MappedWord,
    latency: MappedWord,
    exclusive: MappedWord,
    active_threads: Box<[MappedWord]>,
}

/// Counts of the threads of a user bucket that had requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ActiveThreadCounts {
    /// In the current or the last short period.
    pub(crate) active: u32,
    /// In a period long enough for each to have had a turn.
    pub(crate) recent: u32,
}

impl ActiveThreadCounts {
    fn to_word(self) -> u64 {
        u64::from(self.recent) << u32::BITS | u64::from(self.active)
    }

    fn from_word(word: u64) -> Self {
        Self { active: word as u32, recent: (word >> u32::BITS) as u32 }
    }
}

impl ServicePage {
    /// Creates the page in the daemon. From then on no other process gets a writable mapping.
    pub(crate) fn create(node: NodeId) -> Result<Self, MemoryError> {
        let memory = SharedMemory::create("ddss-service", SERVICE_PAGE_BYTES)?;
        memory.store(0, MAGIC, Ordering::Relaxed)?;
        memory.store(VERSION_OFFSET, u64::from(LAYOUT_VERSION), Ordering::Relaxed)?;
        memory.store(NODE_OFFSET, u64::from(node.0), Ordering::Relaxed)?;
        memory.seal_future_writes()?;
        Self::from_memory(memory)
    }

    /// Maps the page in a client.
    pub(crate) fn open(descriptor: OwnedFd) -> Result<Self, MemoryError> {
        Self::from_memory(SharedMemory::from_descriptor(descriptor, SERVICE_PAGE_BYTES, Access::ReadOnly)?)
    }

    fn from_memory(memory: SharedMemory) -> Result<Self, MemoryError> {
        Ok(Self {
            sleep_id: memory.word_at(SLEEP_ID_OFFSET)?,
            core: memory.word_at(CORE_OFFSET)?,
            latency: memory.word_at(LATENCY_OFFSET)?,
            exclusive: memory.word_at(EXCLUSIVE_OFFSET)?,
            active_threads: (0..USER_BUCKETS)
                .map(|bucket| memory.word_at(ACTIVE_THREADS_OFFSET + 8 * bucket))
                .collect::<Result<_, _>>()?,
            memory,
        })
    }

    /// Returns the memory to pass to clients.
    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Returns true if magic and version are right.
    pub(crate) fn is_genuine(&self) -> bool {
        let word = |offset| self.memory.load(offset, Ordering::Relaxed).unwrap_or(0);
        word(0) == MAGIC && word(VERSION_OFFSET) == u64::from(LAYOUT_VERSION)
    }

    /// Announces a sleep by its number, or the end of the sleep by zero.
    pub(crate) fn set_sleep_id(&self, sleep_id: u64) {
        self.sleep_id.store(sleep_id, Ordering::Relaxed);
    }

    /// Returns the number of the current sleep, or zero.
    #[inline(always)]
    pub(crate) fn sleep_id(&self) -> u64 {
        self.sleep_id.load(Ordering::Relaxed)
    }

    /// Publishes the service's core.
    pub(crate) fn set_core(&self, core: usize) {
        let value = core as u64 + 1;
        if self.core.load(Ordering::Relaxed) != value {
            self.core.store(value, Ordering::Relaxed);
        }
    }

    /// Returns the service's core.
    pub(crate) fn core(&self) -> Option<usize> {
        (self.core.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// Publishes the average latency of an operation.
    pub(crate) fn set_latency_ns(&self, latency_ns: u64) {
        self.latency.store(latency_ns, Ordering::Relaxed);
    }

    /// Returns the average latency of an operation.
    pub(crate) fn latency_ns(&self) -> u64 {
        self.latency.load(Ordering::Relaxed)
    }

    /// Publishes whether no thread is known to want the service's core, except those that wait for the service on it.
    pub(crate) fn set_core_exclusive(&self, exclusive: bool) {
        self.exclusive.store(exclusive.into(), Ordering::Relaxed);
    }

    /// Returns true if the service has its core to itself.
    #[inline]
    pub(crate) fn is_core_exclusive(&self) -> bool {
        self.exclusive.load(Ordering::Relaxed) == 1
    }

    /// Publishes the thread counts of a bucket.
    pub(crate) fn set_active_threads(&self, bucket: u8, active_threads: ActiveThreadCounts) {
        if let Some(word) = self.active_threads.get(usize::from(bucket))
            && word.load(Ordering::Relaxed) != active_threads.to_word()
        {
            word.store(active_threads.to_word(), Ordering::Relaxed);
        }
    }

    /// Returns the thread counts of a bucket.
    #[inline(always)]
    pub(crate) fn active_threads(&self, bucket: u8) -> ActiveThreadCounts {
        let word = self.active_threads.get(usize::from(bucket)).map_or(0, |word| word.load(Ordering::Relaxed));
        ActiveThreadCounts::from_word(word)
    }
}
