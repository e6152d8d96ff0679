//! Memory that a socket sends or fills, and that of the calls which lend theirs.

use std::io::{IoSlice, IoSliceMut};

/// Bytes for the socket.
pub(super) enum Outgoing<'a> {
    /// Nothing that may leave now.
    Nothing,
    /// Frames of the ring.
    Frames([&'a [u8]; 2]),
    /// A segment in the memory of the call.
    Segment(Vec<IoSlice<'a>>),
}

/// Memory for bytes of the socket.
pub(super) enum Incoming<'a> {
    /// A part of the ring. It is empty while the application has to read first.
    Frames(&'a mut [u8]),
    /// A segment in the memory of the call.
    Segment(Vec<IoSliceMut<'a>>),
}

/// Memory of a call to read.
pub(super) struct ReadCall<'a> {
    pub(super) out: &'a mut [u8],
    /// True if the peer's memory may be read into `out`: the call can wait.
    pub(super) can_place: bool,
    /// True while a read of the peer's memory fills `out`.
    pub(super) is_placing: bool,
}

impl<'a> Outgoing<'a> {
    pub(super) fn of_frames(parts: [&'a [u8]; 2]) -> Self {
        if parts.iter().all(|part| part.is_empty()) { Self::Nothing } else { Self::Frames(parts) }
    }
}
