//! Slots of a ring in shared memory.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use ddss_core::limits::{LINE_BYTES, RING_SLOTS};

use super::ring::{Slot, Slots, slot_of};
use crate::sys::{MemoryError, SharedMemory};

/// Slots of a ring in a mapping that another process writes as well.
pub(crate) struct MappedRing {
    first: NonNull<Slot>,
    _memory: SharedMemory,
}

// SAFETY: the pointer stays valid as long as `_memory` holds the mapping, from any thread; a slot consists of
// atomics only.
unsafe impl Send for MappedRing {}

impl MappedRing {
    /// Wraps the slots that start at `first`.
    ///
    /// # Safety
    ///
    /// `RING_SLOTS` slots from `first` on lie inside the mapping of `memory`, and `first` is aligned to a line.
    pub(crate) unsafe fn new(first: NonNull<Slot>, memory: SharedMemory) -> Self {
        Self { first, _memory: memory }
    }

    /// Returns the half of a slot's first word that will hold the sequence, as a futex word.
    pub(crate) fn sequence_word(&self, sequence: u32) -> &AtomicU32 {
        let half = if cfg!(target_endian = "little") { 0 } else { 1 };
        let words = std::ptr::from_ref(self.slot(slot_of(sequence))).cast::<AtomicU32>();
        let word = words.wrapping_add(half);
        // SAFETY: both halves of word 0 lie inside the slot, which lives as long as `self`; the futex only
        // compares, so the mixed size never meets a write of ours.
        unsafe { &*word }
    }
}

impl Slots for MappedRing {
    #[inline(always)]
    fn slot(&self, position: u32) -> &Slot {
        let index = position as usize % RING_SLOTS;
        // SAFETY: `index < RING_SLOTS`, and the caller of `new` guaranteed that many slots inside the mapping.
        let slot = unsafe { self.first.add(index) };
        // SAFETY: the slot is aligned, inside a mapping that `self` holds, and made of atomics only, so that
        // another process may write it at any time.
        unsafe { slot.as_ref() }
    }
}

impl SharedMemory {
    /// Returns the ring of slots at `offset`.
    pub(crate) fn ring_at(&self, offset: usize) -> Result<MappedRing, MemoryError> {
        let first = self.check_writable(offset, RING_SLOTS * size_of::<Slot>())?;
        if !first.addr().get().is_multiple_of(LINE_BYTES) {
            return Err(MemoryError::Misaligned(offset));
        }
        // SAFETY: the range was just found inside the mapping, writable and aligned.
        Ok(unsafe { MappedRing::new(first.cast(), self.clone()) })
    }
}
