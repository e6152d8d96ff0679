//! Bytes that are arriving: the position in the stream, and what is incomplete.

use super::partial_segment::PartialSegment;
use crate::sealing::Open;

/// Received bytes whose segment, message or write is incomplete.
#[derive(Default)]
pub(super) struct Arriving {
    /// Position in the peer's stream.
    pub(super) position: u64,
    /// Opens the frames of a sealed connection.
    pub(super) open: Option<Open>,
    pub(super) partial: Option<PartialSegment>,
    /// True if the last segment was a large tagged one.
    pub(super) was_large_segment: bool,
    /// Key of an incomplete write.
    pub(super) open_write: Option<u32>,
    /// Key of an incomplete write whose window was withdrawn: the rest of the write is discarded.
    pub(super) withdrawn_write: Option<u32>,
    pub(super) ulpdu: Vec<u8>,
    pub(super) message: Vec<u8>,
    pub(super) message_opcode: u8,
}
