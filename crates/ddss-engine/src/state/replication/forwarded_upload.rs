//! Progress of a large put on its way from a home to its replica.

use ddss_core::limits::RESYNC_PIECES_MAX;

/// Progress of a large put on its way to the replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardedUpload {
    /// Offset of the value in the segment, and its length.
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    /// Pool offset of the value.
    pub(crate) from: u64,
    /// Bytes that were sent.
    pub(crate) sent: u32,
    /// Parts that the replica has not answered.
    pub(crate) in_flight: usize,
    /// The replica has refused the put.
    pub(crate) refusal: Option<UploadRefusal>,
    /// Memory with which this home will commit the put after its replica.
    pub(crate) undo: UndoMemory,
}

/// Memory of the undo log for the commit of a large put at its home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UndoMemory {
    /// The daemon reserves it. No part goes out before, since the replica may commit after the last one.
    Awaited,
    Reserved,
    /// The commit looks for it: an injected bug.
    Unreserved,
}

/// Refusal of a large put by the replica, which keeps the version that it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UploadRefusal {
    /// The room will not come by itself: the put fails now.
    pub(crate) is_final: bool,
    /// Time to send the put again from its first part.
    pub(crate) retry_us: u64,
}

impl ForwardedUpload {
    pub(crate) fn new(offset: u64, bytes: u32, from: u64, undo: UndoMemory) -> Self {
        Self { offset, bytes, from, sent: 0, in_flight: 0, refusal: None, undo }
    }

    /// Takes the next part of at most `part` bytes, its place and its length; it is in flight from now on.
    pub(crate) fn begin_part(&mut self, part: u32) -> Option<(u32, u32)> {
        let (at, length) = (self.sent, part.min(self.bytes - self.sent));
        let is_held_back = self.refusal.is_some() || self.undo == UndoMemory::Awaited;
        if length == 0 || self.in_flight == RESYNC_PIECES_MAX || is_held_back {
            return None;
        }
        self.sent += length;
        self.in_flight += 1;
        Some((at, length))
    }

    /// Returns the newest part, which could not be sent.
    pub(crate) fn return_part(&mut self, length: u32) {
        assert!(self.in_flight > 0 && self.sent >= length, "only a part in flight is returned");
        self.sent -= length;
        self.in_flight -= 1;
    }

    /// Records the acknowledgement of a part. A replica may acknowledge more than it was sent.
    pub(crate) fn end_part(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Records the refusal of a part, or of the commit behind the last one.
    pub(crate) fn refuse(&mut self, is_final: bool, retry_us: u64) {
        self.end_part();
        let was_final = self.refusal.is_some_and(|refusal| refusal.is_final);
        self.refusal = Some(UploadRefusal { is_final: is_final || was_final, retry_us });
    }
}
