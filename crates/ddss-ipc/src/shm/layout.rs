//! Where everything lies in the one piece of memory that a client and the daemon share.
//!
//! ```text
//!  offset
//!  0               +--------------------------------------------------------------+
//!                  | header, one line: magic u64, layout version u32, lanes u32,  |
//!                  | ring slots u32, (zero u32), arena offset u64, arena bytes u64|
//!  64              +--------------------------------------------------------------+
//!                  | held u64: the daemon holds replies back, until the client    |
//!                  | has taken some (Mq, Rmq); written by the daemon              |
//!  128             +--------------------------------------------------------------+
//!                  | zero                                                         |
//!  4096            +--------------------------------------------------------------+
//!                  | control, one line a lane, written by the client:             |
//!                  | sleep u64 (see park.rs), sent u64: messages sent (Mq),       |
//!                  | taken u64: messages taken (Mq, Rmq), stamp u64 (follow.rs),  |
//!                  | thread u64: who called last                                  |
//!  4096 * k        +--------------------------------------------------------------+
//!                  | lane 0: ring, RING_SLOTS lines, both ways (see ring.rs)      |
//!                  +--------------------------------------------------------------+
//!                  | lane 1: ring ..                                              |
//!  arena offset    +--------------------------------------------------------------+
//!                  | arena: slots of ARENA_SLOT_BYTES, the client hands them out  |
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
//! The daemon makes the memory, writes the header, and never reads it again: it counts on what it keeps for itself.
//! The client checks the header against what the handshake said.

use std::mem::offset_of;

use ddss_core::Entry;
use ddss_core::limits::{ARENA_BYTES_MAX, ARENA_SLOT_BYTES, LANES_PER_CLIENT_MAX, LINE_BYTES, RING_SLOTS};

/// The first word of everything that this crate shares or sends: `DDSSIPC` and a zero.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"DDSSIPC\0");

/// Changes with every change of this page or of `handshake.rs`, so that two builds that differ say so and do not guess.
pub const LAYOUT_VERSION: u32 = 7;

/// Bytes of one page of the layout (the processor's may be larger: nothing here depends on it).
pub(crate) const PAGE_BYTES: usize = 4096;
/// Bytes of one ring.
pub(crate) const RING_BYTES: usize = RING_SLOTS * size_of::<Entry>();
const HELD_OFFSET: usize = LINE_BYTES;
const CONTROL_OFFSET: usize = PAGE_BYTES;
/// Bytes of the largest memory of one client.
pub(crate) const MEMORY_BYTES_MAX: usize =
    control_bytes(LANES_PER_CLIENT_MAX) + CONTROL_OFFSET + LANES_PER_CLIENT_MAX * RING_BYTES + ARENA_BYTES_MAX;

/// The header as it lies in memory. Only a drawing: it is written and read word by word.
#[repr(C)]
struct HeaderShape {
    magic: u64,
    version: u32,
    lanes: u32,
    ring_slots: u32,
    zero: u32,
    arena_offset: u64,
    arena_bytes: u64,
}

const _: () = assert!(offset_of!(HeaderShape, magic) == 0);
const _: () = assert!(offset_of!(HeaderShape, version) == 8);
const _: () = assert!(offset_of!(HeaderShape, lanes) == 12);
const _: () = assert!(offset_of!(HeaderShape, ring_slots) == 16);
const _: () = assert!(offset_of!(HeaderShape, zero) == 20);
const _: () = assert!(offset_of!(HeaderShape, arena_offset) == 24);
const _: () = assert!(offset_of!(HeaderShape, arena_bytes) == 32);
const _: () = assert!(size_of::<HeaderShape>() == HEADER_BYTES);
const _: () = assert!(HEADER_BYTES <= LINE_BYTES);
const _: () = assert!(RING_BYTES == PAGE_BYTES, "a ring is a page");
const _: () = assert!(ARENA_SLOT_BYTES.is_multiple_of(PAGE_BYTES));

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 40;

const fn control_bytes(lanes: usize) -> usize {
    (lanes * LINE_BYTES).next_multiple_of(PAGE_BYTES)
}

/// The layout of one client's memory: follows from two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    lanes: usize,
    arena_bytes: usize,
}

impl Layout {
    /// The layout for that many lanes and bytes of arena (rounded up to slots), if both are within the limits.
    pub(crate) fn new(lanes: usize, arena_bytes: usize) -> Option<Self> {
        if lanes == 0 || lanes > LANES_PER_CLIENT_MAX || arena_bytes == 0 || arena_bytes > ARENA_BYTES_MAX {
            return None;
        }
        Some(Self { lanes, arena_bytes: arena_bytes.next_multiple_of(ARENA_SLOT_BYTES) })
    }

    /// How many lanes.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes
    }

    /// Where a lane's control line starts.
    pub(crate) fn control(&self, lane: usize) -> usize {
        debug_assert!(lane < self.lanes);
        CONTROL_OFFSET + lane * LINE_BYTES
    }

    /// Where a lane counts the messages that it sent.
    pub(crate) fn sent(&self, lane: usize) -> usize {
        self.control(lane) + size_of::<u64>()
    }

    /// Where a lane counts the messages that it took.
    pub(crate) fn taken(&self, lane: usize) -> usize {
        self.control(lane) + 2 * size_of::<u64>()
    }

    /// Where a lane says when a request set out.
    pub(crate) fn stamp(&self, lane: usize) -> usize {
        self.control(lane) + 3 * size_of::<u64>()
    }

    /// Where a lane says which thread called last.
    pub(crate) fn thread(&self, lane: usize) -> usize {
        self.control(lane) + 4 * size_of::<u64>()
    }

    /// Where the daemon says that it holds replies back.
    pub(crate) fn held(&self) -> usize {
        HELD_OFFSET
    }

    /// Where a lane's ring starts.
    pub(crate) fn ring(&self, lane: usize) -> usize {
        debug_assert!(lane < self.lanes);
        CONTROL_OFFSET + control_bytes(self.lanes) + lane * RING_BYTES
    }

    /// Where the arena starts.
    pub(crate) fn arena_offset(&self) -> usize {
        CONTROL_OFFSET + control_bytes(self.lanes) + self.lanes * RING_BYTES
    }

    /// How long the arena is.
    pub(crate) fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    /// How long the memory is.
    pub(crate) fn bytes(&self) -> usize {
        self.arena_offset() + self.arena_bytes
    }

    /// The header that says all this.
    pub(crate) fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[0..8].copy_from_slice(&MAGIC.to_ne_bytes());
        header[8..12].copy_from_slice(&LAYOUT_VERSION.to_ne_bytes());
        header[12..16].copy_from_slice(&(self.lanes as u32).to_ne_bytes());
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
    fn parts_of_a_clients_memory_never_overlap() {
        // If this broke, a completion would land in somebody's arena.
        for lanes in 1..=LANES_PER_CLIENT_MAX {
            let layout = Layout::new(lanes, 1).unwrap();
            let mut ends = vec![(0, HEADER_BYTES), (layout.held(), LINE_BYTES)];
            ends.extend((0..lanes).map(|lane| (layout.control(lane), LINE_BYTES)));
            for lane in 0..lanes {
                ends.push((layout.ring(lane), RING_BYTES));
            }
            ends.push((layout.arena_offset(), layout.arena_bytes()));
            for pair in ends.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{lanes} lanes: {pair:?}");
            }
            assert_eq!(layout.arena_offset() % ARENA_SLOT_BYTES, 0);
            assert_eq!(layout.bytes(), layout.arena_offset() + ARENA_SLOT_BYTES);
        }
        assert!(Layout::new(LANES_PER_CLIENT_MAX, ARENA_BYTES_MAX).unwrap().bytes() <= MEMORY_BYTES_MAX);
    }

    #[test]
    fn numbers_beyond_the_limits_have_no_layout() {
        // If this broke, a hello could make the daemon allocate without bound.
        for (lanes, bytes) in [(0, 1), (LANES_PER_CLIENT_MAX + 1, 1), (1, 0), (1, ARENA_BYTES_MAX + 1), (1, usize::MAX)]
        {
            assert_eq!(Layout::new(lanes, bytes), None);
        }
    }
}
