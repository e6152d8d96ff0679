//! Layout of the registered memory for the messages of one peer: receive slots, send slots, results of atomics.

use crate::limits::{MESSAGE_BYTES_DEFAULT, MESSAGE_BYTES_MAX, SLOTS_BYTES, SLOTS_MAX, SLOTS_MIN};
use crate::rdma::frame::HEADER_BYTES;

/// Spare receive slots for frames that cost no credit.
const RECEIVES_SPARE: usize = 8;

/// Layout for the messages of a fabric. Both ends of a connection have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct SlotLayout {
    message_bytes_max: usize,
}

impl SlotLayout {
    pub(in crate::rdma) const fn new(message_bytes_max: usize) -> Self {
        Self { message_bytes_max }
    }

    pub(in crate::rdma) const fn message_bytes_max(self) -> usize {
        self.message_bytes_max
    }

    /// Returns the bytes of the longest frame, and of a slot.
    pub(in crate::rdma) const fn frame_bytes(self) -> usize {
        (HEADER_BYTES + self.message_bytes_max).next_multiple_of(64)
    }

    /// Returns the number of operations in the adapter's queue, and of messages that a peer may send before it receives credits again.
    pub(in crate::rdma) const fn count(self) -> usize {
        let fit = SLOTS_BYTES / self.frame_bytes();
        if fit > SLOTS_MAX {
            SLOTS_MAX
        } else if fit < SLOTS_MIN {
            SLOTS_MIN
        } else {
            fit
        }
    }

    /// Returns the number of receive slots.
    pub(in crate::rdma) const fn receives(self) -> usize {
        self.count() + RECEIVES_SPARE
    }

    /// Returns the offset of an outgoing message.
    pub(in crate::rdma) const fn send_slot(self, token: usize) -> u64 {
        ((self.receives() + token) * self.frame_bytes()) as u64
    }

    /// Returns the offset of the result of an atomic.
    pub(in crate::rdma) const fn word_slot(self, token: usize) -> u64 {
        self.send_slot(self.count()) + (token * 8) as u64
    }

    /// Returns the bytes of all slots.
    pub(in crate::rdma) const fn bytes(self) -> u64 {
        self.word_slot(self.count())
    }
}

const _: () = assert!(SLOTS_MAX <= u16::MAX as usize, "credits are 16 bits on the wire");
const _: () = assert!(SlotLayout::new(MESSAGE_BYTES_DEFAULT).count() == SLOTS_MAX);
const _: () = assert!(SlotLayout::new(MESSAGE_BYTES_MAX).count() == SLOTS_MIN);

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a message would overwrite another one, or the result of an atomic.
    #[test]
    fn slots_lie_side_by_side_for_every_limit() {
        for shift in 0..=7 {
            let layout = SlotLayout::new(MESSAGE_BYTES_DEFAULT << shift);
            let frame = layout.frame_bytes() as u64;
            assert!(layout.frame_bytes() >= HEADER_BYTES + layout.message_bytes_max());
            assert!((SLOTS_MIN..=SLOTS_MAX).contains(&layout.count()));
            assert!(layout.send_slot(0) >= layout.receives() as u64 * frame);
            assert_eq!(layout.send_slot(1) - layout.send_slot(0), frame);
            assert!(layout.word_slot(0) >= layout.send_slot(layout.count() - 1) + frame);
            assert!(layout.word_slot(0).is_multiple_of(8), "the adapter writes words");
            assert_eq!(layout.bytes(), layout.word_slot(layout.count() - 1) + 8);
        }
    }
}
