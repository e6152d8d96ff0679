//! Placement of segments that are still arriving, so that nothing is buffered and no byte is copied twice.

use super::receive::SUMMED_BYTES_MIN;
use super::{Connection, ConnectionError, Context, Stage};
use crate::fabric::RegionId;
use crate::iwarp::ddp::{Header, TAGGED_BYTES};
use crate::iwarp::mpa::frame_bytes;
use crate::iwarp::rdmap::Opcode;
use crate::sys::crc;
use crate::terminate_code::TerminateCode;

/// Payload that needs no check is received directly into its memory from this length on.
const DIRECT_BYTES_MIN: usize = 2048;

/// Length of a large segment. The bytes before its payload are received separately, so that most of the payload goes
/// from the socket to its place.
pub(super) const LARGE_BYTES: usize = 16 << 10;

/// A segment in pieces is placed and summed up to a multiple of this length.
const PIECE_BYTES: usize = 64;

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
    target: Target,
    remaining: usize,
    trailer: usize,
    /// With CRC: the checksum of the bytes so far.
    sum: Option<u32>,
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

impl Connection {
    /// Returns true if a large segment that may be placed on arrival probably comes next: after another one, or in
    /// answer to a large read. With CRC all bytes are received into private memory first.
    pub(crate) fn expects_large(&self) -> bool {
        // The end of one answer arrives together with the start of the next one.
        let asked = || self.reads.iter().take(2).any(|read| read.remaining() as usize >= LARGE_BYTES);
        self.stage == Stage::Open && !self.terms.crc && !self.terms.markers_in && (self.was_large_segment || asked())
    }

    /// Records payload bytes that were put at the place of [`direct_target`](Self::direct_target).
    pub(crate) fn advance_placement(&mut self, count: usize, cx: &mut Context<'_>) {
        let partial = self.partial.as_mut().expect("bytes are placed only where a partial segment wants them");
        partial.remaining -= count;
        partial.target.offset += count as u64;
        if partial.remaining == 0 {
            self.complete_payload(cx);
        }
    }

    /// Starts an incomplete frame: the payload of a tagged segment is placed as it arrives.
    pub(super) fn receive_head(
        &mut self,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> Result<Option<usize>, ConnectionError> {
        let Some(head) = bytes.first_chunk::<{ 2 + TAGGED_BYTES }>() else { return Ok(None) };
        let ulpdu_bytes = usize::from(u16::from_be_bytes([head[0], head[1]]));
        if head[2] & 0x80 == 0 || ulpdu_bytes < TAGGED_BYTES {
            return Ok(None);
        }
        let ulpdu = &head[2..];
        let remaining = ulpdu_bytes - TAGGED_BYTES;
        let target = match Header::parse(ulpdu) {
            Ok((Header::Tagged(header), _)) => self.check_tagged(header, remaining, cx),
            Ok((Header::Untagged(_), _)) => return Ok(None),
            Err(fault) => Err(fault),
        };
        match target {
            Err(fault) => self.fail(fault, Some((ulpdu, ulpdu_bytes)), cx),
            Ok(target) => {
                if self.stage == Stage::AwaitFirstFrame {
                    self.receive_first_frame(cx);
                }
                if let Some(region) = target.region {
                    cx.memory.hold(region);
                }
                let trailer = frame_bytes(ulpdu_bytes) - 2 - ulpdu_bytes;
                self.partial = Some(PartialSegment { target, remaining, trailer, sum: None });
                if remaining == 0 {
                    self.complete_payload(cx);
                }
            }
        }
        Ok(Some(head.len()))
    }

    /// Continues with the payload and trailer of a partial segment.
    pub(super) fn receive_rest(
        &mut self,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> Result<Option<usize>, ConnectionError> {
        let partial = self.partial.as_mut().expect("the caller has looked");
        if partial.remaining == 0 {
            return match partial.sum {
                Some(sum) => self.receive_summed_trailer(sum, bytes, cx),
                None => Ok(Some(self.receive_trailer(bytes))),
            };
        }
        let Target { region, offset, .. } = partial.target;
        let mut count = partial.remaining.min(bytes.len());
        if partial.sum.is_some() && count < partial.remaining {
            // The next piece has to start at a vector and word boundary: neither is ever split.
            let beyond = (offset as usize).wrapping_add(count) % PIECE_BYTES;
            let Some(whole) = count.checked_sub(beyond).filter(|whole| *whole > 0) else { return Ok(None) };
            count = whole;
        }
        let piece = &bytes[..count];
        let mapping = region.map(|region| cx.memory.mapping(region));
        match (&mut partial.sum, mapping) {
            (Some(sum), Some(mapping)) => *sum = mapping.copy_in_summed(offset as usize, piece, *sum),
            (Some(sum), None) => *sum = crc::append(*sum, piece),
            (None, Some(mapping)) => mapping.copy_in(offset as usize, piece),
            (None, None) => {}
        }
        self.advance_placement(count, cx);
        Ok(Some(count))
    }

    /// Skips padding and an unused CRC.
    fn receive_trailer(&mut self, bytes: &[u8]) -> usize {
        let partial = self.partial.as_mut().expect("the caller has looked");
        let count = partial.trailer.min(bytes.len());
        partial.trailer -= count;
        if partial.trailer == 0 {
            self.partial = None;
        }
        count
    }

    /// Verifies padding and CRC: the segment counts only if the CRC is correct.
    fn receive_summed_trailer(
        &mut self,
        sum: u32,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> Result<Option<usize>, ConnectionError> {
        let Some(PartialSegment { target, trailer, .. }) = self.partial else { return Ok(None) };
        let Some(rest) = bytes.get(..trailer) else { return Ok(None) };
        let (padding, theirs) = rest.split_at(trailer - 4);
        self.partial = None;
        if crc::append(sum, padding).to_le_bytes() != *theirs {
            return Err(TerminateCode::MPA_CRC.into());
        }
        self.complete_tagged(target, cx);
        Ok(Some(trailer))
    }

    /// Completes the payload of a partial segment; its padding and CRC are still to come.
    fn complete_payload(&mut self, cx: &mut Context<'_>) {
        let partial = self.partial.as_mut().expect("it was just filled");
        let (target, summed) = (partial.target, partial.sum.is_some());
        if let Some(region) = partial.target.region.take() {
            cx.memory.release(region);
        }
        if !summed {
            self.complete_tagged(target, cx);
        }
    }

    /// With CRC, starts a large segment in answer to the oldest local read: its payload is placed and summed as it
    /// arrives. Every other frame, or a malformed one, is processed when it is complete.
    pub(super) fn receive_summed_head(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Option<usize> {
        let head = bytes.first_chunk::<{ 2 + TAGGED_BYTES }>()?;
        let ulpdu_bytes = usize::from(u16::from_be_bytes([head[0], head[1]]));
        if ulpdu_bytes < SUMMED_BYTES_MIN || self.stage != Stage::Open {
            return None;
        }
        let Ok((Header::Tagged(header), at)) = Header::parse(&head[2..]) else { return None };
        if Opcode::parse(header.rdmap) != Ok(Opcode::ReadResponse) {
            return None;
        }
        let remaining = ulpdu_bytes - at;
        let target = self.check_tagged(header, remaining, cx).ok()?;
        if let Some(region) = target.region {
            cx.memory.hold(region);
        }
        let trailer = frame_bytes(ulpdu_bytes) - 2 - ulpdu_bytes;
        self.partial = Some(PartialSegment { target, remaining, trailer, sum: Some(crc::checksum(head)) });
        Some(head.len())
    }
}
