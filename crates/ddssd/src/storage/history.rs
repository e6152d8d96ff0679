//! Old versions of a segment, stored behind it in its area.

use super::memory::NodeMemory;
use ddss_core::{Header, Version};
use ddss_ipc::SharedMemory;
use std::sync::atomic::{Ordering, fence};

/// The engine validates the places before it emits an action.
const CHECKED: &str = "the engine keeps versions inside their segment's area";

impl NodeMemory {
    /// Copies the segment's bytes to the history slot of their version. A remote reader validates that slot by its
    /// header, as with the segment itself.
    pub(crate) fn store_version(&self, at: u64, to: u64, header: &Header) {
        let ((area, at), (_, to)) = (self.area_at(at), self.area_at(to));
        let set = |offset: u64, value, ordering| area.store(to + offset as usize, value, ordering).expect(CHECKED);
        set(Header::STATE_OFFSET, Header::writing(Version(header.state >> 1)), Ordering::Relaxed);
        // pairs with the reader's Acquire of the state word: a reader that sees a new byte sees the odd state.
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
