//! Memory with slots for messages, which the fabric transfers.

use ddss_ipc::{MemoryError, SharedMemory};
use std::os::fd::BorrowedFd;

/// Slots for messages. Clones name the same memory. Only pages that were written take memory.
#[derive(Clone, Debug)]
pub(crate) struct SlotMemory {
    memory: SharedMemory,
    slot_bytes: usize,
}

impl SlotMemory {
    /// Alignment of a slot: no two messages share a line.
    const ALIGNMENT: usize = 64;
    /// Alignment of the memory, for registration.
    const PAGE: usize = 4096;

    pub(crate) fn create(name: &str, slots: u16, message_bytes_max: u32) -> Result<Self, MemoryError> {
        let slot_bytes = (message_bytes_max as usize).next_multiple_of(Self::ALIGNMENT);
        let memory = SharedMemory::create(name, (slot_bytes * usize::from(slots)).next_multiple_of(Self::PAGE))?;
        Ok(Self { memory, slot_bytes })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.memory.descriptor()
    }

    /// Returns the bytes of all slots.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Returns the offset of a slot.
    pub(crate) fn offset(&self, slot: u16) -> u64 {
        (usize::from(slot) * self.slot_bytes) as u64
    }

    /// Copies bytes into a slot.
    pub(crate) fn write(&self, slot: u16, bytes: &[u8]) {
        assert!(bytes.len() <= self.slot_bytes, "a message of {} bytes fits its slot", bytes.len());
        self.memory.write(self.offset(slot) as usize, bytes).expect("a slot of the memory");
    }

    /// Copies the first bytes out of a slot.
    pub(crate) fn read(&self, slot: u16, length: u32) -> Vec<u8> {
        assert!(length as usize <= self.slot_bytes, "a message of {length} bytes fits its slot");
        let mut bytes = vec![0; length as usize];
        self.memory.read(self.offset(slot) as usize, &mut bytes).expect("a slot of the memory");
        bytes
    }

    /// Copies the first bytes of a slot into a slot of another memory.
    pub(crate) fn copy(&self, slot: u16, into: &Self, into_slot: u16, length: u32) {
        let length = length as usize;
        assert!(length <= self.slot_bytes && length <= into.slot_bytes, "a message of {length} bytes fits its slots");
        let (from_offset, into_offset) = (self.offset(slot) as usize, into.offset(into_slot) as usize);
        SharedMemory::copy(&self.memory, from_offset, &into.memory, into_offset, length)
            .expect("slots of the memories");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_neighbouring_slots_do_not_touch() {
        // If this broke, one message would overwrite the end of another.
        let slots = SlotMemory::create("test", 3, 65).unwrap();
        let message = |byte| vec![byte; 65];
        (0..3).for_each(|slot| slots.write(slot, &message(slot as u8)));
        (0..3).for_each(|slot| assert_eq!(slots.read(slot, 65), message(slot as u8)));
        let other = SlotMemory::create("other", 2, 65).unwrap();
        slots.copy(2, &other, 1, 65);
        assert_eq!((other.read(1, 65), other.read(0, 65)), (message(2), message(0)));
    }
}
