//! Layout of the shared memory of one client and the daemon.
//!
//! ```text
//!  offset
//!  0               +--------------------------------------------------------------+
//!                  | header, one line: magic u64, version u32, channels u32,      |
//!                  | ring slots u32, (zero u32), arena offset u64, arena bytes u64|
//!  64              +--------------------------------------------------------------+
//!                  | deferred u64: the daemon defers replies, until the client    |
//!                  | has received some (Mq, Rmq); written by the daemon           |
//!  128             +--------------------------------------------------------------+
//!                  | zero                                                         |
//!  4096            +--------------------------------------------------------------+
//!                  | control, one line a channel, written by the client:          |
//!                  | sleep u64 (see wait/park.rs), sent u64: messages sent (Mq),  |
//!                  | taken u64: messages received (Mq, Rmq),                      |
//!                  | stamp u64 (see trace_sampling.rs)                            |
//!  4096 * k        +--------------------------------------------------------------+
//!                  | channel 0: ring, RING_SLOTS lines, both ways (see ring.rs)   |
//!                  +--------------------------------------------------------------+
//!                  | channel 1: ring ..                                           |
//!  arena offset    +--------------------------------------------------------------+
//!                  | arena: slots of ARENA_SLOT_BYTES, allocated by the client    |
//!                  +--------------------------------------------------------------+
//! ```
//!
//! One slot of a ring, one line:
//!
//! ```text
//!   0        4        8                                                         64
//!  +--------+--------+---------------------------------------------------------+
//!  |sequence| caller | the caller's 56 bytes                                   |
//!  +--------+--------+---------------------------------------------------------+
//! ```
//!
//! The daemon creates the memory, writes the header, and never reads it again: it relies on its private state. The
//! client checks the header against the handshake.

use std::mem::offset_of;

use ddss_core::Entry;
use ddss_core::limits::{ARENA_BYTES_MAX, ARENA_SLOT_BYTES, CHANNELS_PER_CLIENT_MAX, LINE_BYTES, RING_SLOTS};

/// First word of everything that this crate shares or sends: `DDSSIPC` and a zero.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"DDSSIPC\0");

/// Version of this layout and of the handshake. It changes with both, so that two builds that differ report it.
pub const LAYOUT_VERSION: u32 = 11;

/// Bytes of one page of the layout. The processor's pages may be larger; nothing depends on it.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Bytes of one ring.
pub(crate) const RING_BYTES: usize = RING_SLOTS * size_of::<Entry>();
const DEFERRED_OFFSET: usize = LINE_BYTES;
const CONTROL_OFFSET: usize = PAGE_BYTES;
/// Bytes of the largest memory of one client.
pub(crate) const MEMORY_BYTES_MAX: usize =
    control_bytes(CHANNELS_PER_CLIENT_MAX) + CONTROL_OFFSET + CHANNELS_PER_CLIENT_MAX * RING_BYTES + ARENA_BYTES_MAX;

/// Layout of the header. For the offset checks only: code reads and writes the header word by word.
#[repr(C)]
struct HeaderLayout {
    magic: u64,
    version: u32,
    channels: u32,
    ring_slots: u32,
    zero: u32,
    arena_offset: u64,
    arena_bytes: u64,
}

const _: () = assert!(offset_of!(HeaderLayout, magic) == 0);
const _: () = assert!(offset_of!(HeaderLayout, version) == 8);
const _: () = assert!(offset_of!(HeaderLayout, channels) == 12);
const _: () = assert!(offset_of!(HeaderLayout, ring_slots) == 16);
const _: () = assert!(offset_of!(HeaderLayout, zero) == 20);
const _: () = assert!(offset_of!(HeaderLayout, arena_offset) == 24);
const _: () = assert!(offset_of!(HeaderLayout, arena_bytes) == 32);
const _: () = assert!(size_of::<HeaderLayout>() == HEADER_BYTES);
const _: () = assert!(HEADER_BYTES <= LINE_BYTES);
const _: () = assert!(RING_BYTES == PAGE_BYTES, "a ring is a page");
const _: () = assert!(ARENA_SLOT_BYTES.is_multiple_of(PAGE_BYTES));

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 40;

const fn control_bytes(channels: usize) -> usize {
    (channels * LINE_BYTES).next_multiple_of(PAGE_BYTES)
}

/// Layout of one client's memory, which follows from two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    channels: usize,
    arena_bytes: usize,
}

impl Layout {
    /// Creates the layout for a number of channels and bytes of arena (rounded up to slots). Returns `None` beyond the
    /// limits.
    pub(crate) fn new(channels: usize, arena_bytes: usize) -> Option<Self> {
        if channels == 0 || channels > CHANNELS_PER_CLIENT_MAX || arena_bytes == 0 || arena_bytes > ARENA_BYTES_MAX {
            return None;
        }
        Some(Self { channels, arena_bytes: arena_bytes.next_multiple_of(ARENA_SLOT_BYTES) })
    }

    /// Returns the number of channels.
    pub(crate) fn channels(&self) -> usize {
        self.channels
    }

    /// Returns the offset of a channel's control line.
    pub(crate) fn control_offset(&self, channel: usize) -> usize {
        debug_assert!(channel < self.channels);
        CONTROL_OFFSET + channel * LINE_BYTES
    }

    /// Returns the offset of the count of messages that a channel has sent.
    pub(crate) fn sent_offset(&self, channel: usize) -> usize {
        self.control_offset(channel) + size_of::<u64>()
    }

    /// Returns the offset of the count of messages that a channel has received.
    pub(crate) fn taken_offset(&self, channel: usize) -> usize {
        self.control_offset(channel) + 2 * size_of::<u64>()
    }

    /// Returns the offset of a channel's submit stamp.
    pub(crate) fn stamp_offset(&self, channel: usize) -> usize {
        self.control_offset(channel) + 3 * size_of::<u64>()
    }

    /// Returns the offset of the word that announces deferred replies.
    pub(crate) fn deferred_offset(&self) -> usize {
        DEFERRED_OFFSET
    }

    /// Returns the offset of a channel's ring.
    pub(crate) fn ring_offset(&self, channel: usize) -> usize {
        debug_assert!(channel < self.channels);
        CONTROL_OFFSET + control_bytes(self.channels) + channel * RING_BYTES
    }

    /// Returns the offset of the arena.
    pub(crate) fn arena_offset(&self) -> usize {
        CONTROL_OFFSET + control_bytes(self.channels) + self.channels * RING_BYTES
    }

    /// Returns the length of the arena.
    pub(crate) fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    /// Returns the length of the memory.
    pub(crate) fn bytes(&self) -> usize {
        self.arena_offset() + self.arena_bytes
    }

    /// Returns the header of this layout.
    pub(crate) fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[0..8].copy_from_slice(&MAGIC.to_ne_bytes());
        header[8..12].copy_from_slice(&LAYOUT_VERSION.to_ne_bytes());
        header[12..16].copy_from_slice(&(self.channels as u32).to_ne_bytes());
        header[16..20].copy_from_slice(&(RING_SLOTS as u32).to_ne_bytes());
        header[24..32].copy_from_slice(&(self.arena_offset() as u64).to_ne_bytes());
        header[32..40].copy_from_slice(&(self.arena_bytes as u64).to_ne_bytes());
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_parts_never_overlap() {
        // If this failed, a completion would be written into an arena.
        for channels in 1..=CHANNELS_PER_CLIENT_MAX {
            let layout = Layout::new(channels, 1).unwrap();
            let mut ends = vec![(0, HEADER_BYTES), (layout.deferred_offset(), LINE_BYTES)];
            ends.extend((0..channels).map(|channel| (layout.control_offset(channel), LINE_BYTES)));
            for channel in 0..channels {
                ends.push((layout.ring_offset(channel), RING_BYTES));
            }
            ends.push((layout.arena_offset(), layout.arena_bytes()));
            for pair in ends.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{channels} channels: {pair:?}");
            }
            assert_eq!(layout.arena_offset() % ARENA_SLOT_BYTES, 0);
            assert_eq!(layout.bytes(), layout.arena_offset() + ARENA_SLOT_BYTES);
        }
        assert!(Layout::new(CHANNELS_PER_CLIENT_MAX, ARENA_BYTES_MAX).unwrap().bytes() <= MEMORY_BYTES_MAX);
    }

    #[test]
    fn layout_rejects_values_beyond_limits() {
        // If this failed, a hello could make the daemon allocate without bound.
        for (channels, bytes) in
            [(0, 1), (CHANNELS_PER_CLIENT_MAX + 1, 1), (1, 0), (1, ARENA_BYTES_MAX + 1), (1, usize::MAX)]
        {
            assert_eq!(Layout::new(channels, bytes), None);
        }
    }
}
