//! A segment whose payload is still arriving, and its place.

use crate::id::RegionId;

/// Payload that needs no check is received directly into its memory from this length on.
const DIRECT_BYTES_MIN: usize = 2048;

/// Length of a large segment. The bytes before its payload are received separately, so that most of the payload goes
/// from the socket to its place.
pub(super) const LARGE_BYTES: usize = 16 << 10;

/// A segment is summed while it is copied from this length on.
pub(super) const SUMMED_BYTES_MIN: usize = 1024;

/// Place of a tagged segment's payload. `None`: the payload is discarded.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) region: Option<RegionId>,
    pub(super) offset: u64,
    pub(super) response: bool,
    pub(super) last: bool,
    /// Key that the segment named.
    pub(super) key: u32,
}

/// A tagged segment with a parsed header and incomplete payload. Used only without markers, and with CRC only for an
/// answer to the oldest local read.
pub(super) struct PartialSegment {
    pub(super) target: Target,
    pub(super) remaining: usize,
    pub(super) trailer: usize,
    /// With CRC: the checksum of the bytes so far.
    pub(super) sum: Option<u32>,
}

impl PartialSegment {
    pub(super) fn direct_target(&self) -> Option<(RegionId, u64, usize)> {
        let region = self.target.region?;
        // Payload under a CRC has to be summed in private memory.
        let fits = self.sum.is_none() && self.remaining >= DIRECT_BYTES_MIN;
        fits.then_some((region, self.target.offset, self.remaining))
    }

    /// Discards the rest of the payload; returns the region whose hold is to be released. Only a read can be abandoned
    /// while the connection is open.
    pub(super) fn abandon(&mut self, ended: bool) -> Option<RegionId> {
        if ended || self.target.response { self.target.region.take() } else { None }
    }

    /// Discards the rest of a write into a withdrawn window; returns the region to release.
    pub(super) fn withdraw(&mut self, key: u32) -> Option<RegionId> {
        if !self.target.response && self.target.key == key { self.target.region.take() } else { None }
    }
}
