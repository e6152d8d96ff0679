//! Placement of tagged segments: also of those that are still arriving, so that nothing is buffered and no byte is
//! copied twice.

use super::context::{ConnectionError, Context};
use super::partial_segment::{LARGE_BYTES, PartialSegment, SUMMED_BYTES_MIN, Target};
use super::{Connection, Stage};
use crate::fabric::Rights;
use crate::iwarp::ddp::{Header, TAGGED_BYTES, Tagged};
use crate::iwarp::mpa::frame_bytes;
use crate::iwarp::rdmap::Opcode;
use crate::sys::crc;
use crate::terminate_code::TerminateCode;

/// A segment in pieces is placed and summed up to a multiple of this length.
const PIECE_BYTES: usize = 64;

impl Connection {
    /// Returns true if a large segment that may be placed on arrival probably comes next: after another one, or in
    /// answer to a large read. With CRC, and sealed, all bytes are received into
    /// private memory first.
    pub(crate) fn expects_large(&self) -> bool {
        // The end of one answer arrives together with the start of the next one.
        let asked = || self.work.reads.iter().take(2).any(|read| read.remaining() as usize >= LARGE_BYTES);
        self.stage == Stage::Open
            && !self.is_sealed
            && !self.terms.crc
            && !self.terms.markers_in
            && (self.arriving.was_large_segment || asked())
    }

    /// Records payload bytes that were put at the place of [`direct_target`](Self::direct_target).
    pub(crate) fn advance_placement(&mut self, count: usize, cx: &mut Context<'_>) {
        let partial = self.arriving.partial.as_mut().expect("bytes are placed only where a partial segment wants them");
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
                self.arriving.partial = Some(PartialSegment { target, remaining, trailer, sum: None });
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
        let partial = self.arriving.partial.as_mut().expect("the caller has looked");
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
        let partial = self.arriving.partial.as_mut().expect("the caller has looked");
        let count = partial.trailer.min(bytes.len());
        partial.trailer -= count;
        if partial.trailer == 0 {
            self.arriving.partial = None;
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
        let Some(PartialSegment { target, trailer, .. }) = self.arriving.partial else { return Ok(None) };
        let Some(rest) = bytes.get(..trailer) else { return Ok(None) };
        let (padding, theirs) = rest.split_at(trailer - 4);
        self.arriving.partial = None;
        if crc::append(sum, padding).to_le_bytes() != *theirs {
            return Err(TerminateCode::MPA_CRC.into());
        }
        self.complete_tagged(target, cx);
        Ok(Some(trailer))
    }

    /// Completes the payload of a partial segment; its padding and CRC are still to come.
    fn complete_payload(&mut self, cx: &mut Context<'_>) {
        let partial = self.arriving.partial.as_mut().expect("it was just filled");
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
        self.arriving.partial = Some(PartialSegment { target, remaining, trailer, sum: Some(crc::checksum(head)) });
        Some(head.len())
    }

    /// Checks a tagged header, returns the place of its payload, and counts the payload as arrived.
    pub(super) fn check_tagged(
        &mut self,
        header: Tagged,
        bytes: usize,
        cx: &mut Context<'_>,
    ) -> Result<Target, TerminateCode> {
        self.arriving.was_large_segment = bytes >= LARGE_BYTES;
        match Opcode::parse(header.rdmap)? {
            Opcode::Write => {
                let key = header.key;
                let mut target = Target { region: None, offset: 0, response: false, last: header.last, key };
                let withdrawn_write = self.arriving.withdrawn_write.filter(|withdrawn_write| *withdrawn_write == key);
                self.arriving.open_write = (!header.last).then_some(key);
                if header.last {
                    self.arriving.withdrawn_write = None;
                }
                // A segment without payload touches nothing, so its key and address mean nothing.
                if bytes > 0 && withdrawn_write.is_none() {
                    let (region, offset) = self
                        .windows
                        .translate(cx.memory, header.key, header.address, bytes as u64, Rights::WRITE)
                        .map_err(|denied| denied.ddp())?;
                    target.region = Some(region);
                    target.offset = offset;
                }
                Ok(target)
            }
            Opcode::ReadResponse => {
                let read = self.work.reads.front_mut().ok_or(TerminateCode::DDP_KEY)?;
                let (region, offset) = read.take(header, bytes)?;
                Ok(Target { region, offset, response: true, last: header.last, key: header.key })
            }
            _ => Err(TerminateCode::RDMAP_OPCODE),
        }
    }

    /// Completes a read after the payload of its last segment is placed.
    pub(super) fn complete_tagged(&mut self, target: Target, cx: &mut Context<'_>) {
        if target.response && target.last {
            let read = self.work.reads.pop_front().expect("the response was checked against it");
            read.done(self.id, cx);
        }
    }
}
