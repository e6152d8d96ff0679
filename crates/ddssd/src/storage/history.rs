//! The versions of a segment that are kept behind it in its area.

use super::memory::NodeMemory;
use ddss_core::{Header, Version};
use ddss_ipc::SharedMemory;
use std::sync::atomic::{Ordering, fence};

/// What an engine's action says was checked by the engine before.
const CHECKED: &str = "the engine keeps versions inside their segment's area";

impl NodeMemory {
    /// Copies a segment's bytes to where this version of them is kept. Who reads that place from another node proves it
    /// by the header there, as with the segment itself.
    pub(crate) fn keep(&self, at: u64, to: u64, header: &Header) {
        let ((area, at), (_, to)) = (self.at(at), self.at(to));
        let set = |offset: u64, value, ordering| area.store(to + offset as usize, value, ordering).expect(CHECKED);
        set(Header::STATE_OFFSET, Header::writing(Version(header.state >> 1)), Ordering::Relaxed);
        // pairs with the reader's Acquire of the state word: who sees a new byte sees the odd state.
        fence(Ordering::Release);
        let (from, data) = (at + Header::DATA_OFFSET as usize, to + Header::DATA_OFFSET as usize);
        SharedMemory::copy(area, from, area, data, header.bytes as usize).expect(CHECKED);
        set(Header::TIMESTAMP_OFFSET, header.timestamp, Ordering::Relaxed);
        set(Header::SEGMENT_OFFSET, header.segment, Ordering::Relaxed);
        set(Header::BYTES_OFFSET, header.bytes, Ordering::Relaxed);
        set(Header::LOCKED_OFFSET, 0, Ordering::Relaxed);
        set(Header::STATE_OFFSET, header.state, Ordering::Release);
    }
}
