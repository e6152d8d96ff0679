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
//!        | core u64: the service's core + 1, 0 unknown                 |  written when it changes
//!  136   +-------------------------------------------------------------+
//!        | crowded u64: 1 if more clients call than there are cores    |  written when it changes
//!  144   +-------------------------------------------------------------+
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
const CROWDED_OFFSET: usize = 136;

/// Bytes of the page.
pub(crate) const SERVICE_PAGE_BYTES: usize = PAGE_BYTES;

/// The words of a service page, as the daemon or a client maps them.
pub(crate) struct ServicePage {
    memory: SharedMemory,
    sleep_id: MappedWord,
    core: MappedWord,
    crowded: MappedWord,
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
        let word_at = |offset| memory.word_at(offset);
        let (sleep_id, core, crowded) = (word_at(SLEEP_ID_OFFSET)?, word_at(CORE_OFFSET)?, word_at(CROWDED_OFFSET)?);
        Ok(Self { sleep_id, core, crowded, memory })
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
        store_if_changed(&self.core, core as u64 + 1);
    }

    /// Publishes whether more clients call than there are cores.
    pub(crate) fn set_crowded(&self, is_crowded: bool) {
        store_if_changed(&self.crowded, u64::from(is_crowded));
    }

    /// Returns true if more clients call than there are cores.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed) != 0
    }

    /// Returns the service's core.
    pub(crate) fn core(&self) -> Option<usize> {
        (self.core.load(Ordering::Relaxed) as usize).checked_sub(1)
    }
}

/// Stores a word that every client reads, without taking its line away from them for nothing.
fn store_if_changed(word: &MappedWord, value: u64) {
    if word.load(Ordering::Relaxed) != value {
        word.store(value, Ordering::Relaxed);
    }
}
