//! Received frames: each is checked, header by header, and then placed.

use super::context::{ConnectionError, Context};
use super::partial_segment::SUMMED_BYTES_MIN;
use super::response::Response;
use super::{Connection, Stage};
use crate::events::CloseReason;
use crate::iwarp::ddp::{Header, Untagged, queue};
use crate::iwarp::mpa::{self, Frame, SealedFrame, sealed_frame_bytes};
use crate::iwarp::rdmap::{
    ATOMIC_BYTES, ATOMIC_REPLY_BYTES, AtomicReply, AtomicRequest, Opcode, READ_BYTES, ReadRequest, Terminate,
};
use crate::terminate_code::TerminateCode;

impl Connection {
    /// Processes the complete frames at the front of `bytes` and returns the bytes used. The caller offers the rest
    /// again, with more behind it.
    pub(crate) fn receive(&mut self, bytes: &mut [u8], cx: &mut Context<'_>) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            let rest = &mut bytes[used..];
            let step = match self.stage {
                Stage::AwaitRequest => self.receive_request(rest, cx),
                Stage::AwaitReply => self.receive_reply(rest, cx),
                // The other side has to wait for the reply, or for the first frame.
                Stage::AwaitAccept | Stage::AwaitKeys => {
                    Err(ConnectionError::Close(CloseReason::ProtocolViolation(TerminateCode::MPA_START)))
                }
                Stage::AwaitFirstFrame | Stage::Open if self.is_sealed => self.receive_sealed(rest, cx),
                Stage::AwaitFirstFrame | Stage::Open => self.receive_frame(rest, cx),
                Stage::Ended => return bytes.len(),
            };
            match step {
                Ok(Some(count)) => used += count,
                Ok(None) => break,
                Err(ConnectionError::Close(reason)) => {
                    self.end(reason, &[], true, None, cx);
                    return bytes.len();
                }
                Err(ConnectionError::Fault(fault)) => {
                    self.fail(fault, None, cx);
                    return bytes.len();
                }
            }
        }
        used
    }

    fn receive_frame(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Result<Option<usize>, ConnectionError> {
        if self.arriving.partial.is_some() {
            return self.receive_rest(bytes, cx);
        }
        if self.terms.markers_in {
            return self.receive_marked(bytes, cx);
        }
        let Some(frame) = Frame::take(bytes) else {
            return if self.terms.crc { Ok(self.receive_summed_head(bytes, cx)) } else { self.receive_head(bytes, cx) };
        };
        if self.terms.crc {
            if self.receive_response(frame, cx)? {
                return Ok(Some(frame.len()));
            }
            if !frame.has_valid_crc() {
                return Err(TerminateCode::MPA_CRC.into());
            }
        }
        self.receive_segment(frame.ulpdu(), cx);
        Ok(Some(frame.len()))
    }

    /// Opens a frame in place. Nothing of it is looked at, and nothing placed, before its tag is verified.
    fn receive_sealed(&mut self, bytes: &mut [u8], cx: &mut Context<'_>) -> Result<Option<usize>, ConnectionError> {
        let Some(SealedFrame { length, ulpdu, tag }) = SealedFrame::take(bytes) else { return Ok(None) };
        let open = self.arriving.open.as_mut().expect("a sealed connection has the cipher of its peer");
        if !open(length, ulpdu, tag) {
            return Err(TerminateCode::MPA_CRC.into());
        }
        self.receive_segment(ulpdu, cx);
        Ok(Some(sealed_frame_bytes(ulpdu.len())))
    }

    /// Places a large segment that answers the oldest local read while summing it. It can go nowhere but to the place
    /// of that read, and the read completes only if the checksum is correct. False for any other frame. (A write names
    /// its own place, so its checksum is verified first.)
    fn receive_response(&mut self, frame: Frame<'_>, cx: &mut Context<'_>) -> Result<bool, ConnectionError> {
        let ulpdu = frame.ulpdu();
        if ulpdu.len() < SUMMED_BYTES_MIN || self.stage != Stage::Open {
            return Ok(false);
        }
        let Ok((Header::Tagged(header), at)) = Header::parse(ulpdu) else { return Ok(false) };
        if Opcode::parse(header.rdmap) != Ok(Opcode::ReadResponse) {
            return Ok(false);
        }
        let Ok(target) = self.check_tagged(header, ulpdu.len() - at, cx) else { return Ok(false) };
        let Some(region) = target.region else {
            // The read was abandoned.
            if !frame.has_valid_crc() {
                return Err(TerminateCode::MPA_CRC.into());
            }
            self.complete_tagged(target, cx);
            return Ok(true);
        };
        let mapping = cx.memory.mapping(region);
        if !frame.has_valid_crc_with(at, |crc, payload| mapping.copy_in_summed(target.offset as usize, payload, crc)) {
            return Err(TerminateCode::MPA_CRC.into());
        }
        self.complete_tagged(target, cx);
        Ok(true)
    }

    fn receive_marked(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Result<Option<usize>, ConnectionError> {
        let mut ulpdu = std::mem::take(&mut self.arriving.ulpdu);
        let taken = mpa::take_marked_frame(bytes, self.arriving.position, self.terms.crc, &mut ulpdu);
        if let Ok(Some(count)) = taken {
            self.arriving.position += count as u64;
            self.receive_segment(&ulpdu, cx);
        }
        self.arriving.ulpdu = ulpdu;
        Ok(taken?)
    }

    /// Processes a complete ULPDU with a verified checksum or tag.
    fn receive_segment(&mut self, ulpdu: &[u8], cx: &mut Context<'_>) {
        if self.stage == Stage::AwaitFirstFrame {
            self.receive_first_frame(cx);
        }
        let result = match Header::parse(ulpdu) {
            Err(fault) => Err(fault),
            Ok((Header::Tagged(header), at)) => {
                let payload = &ulpdu[at..];
                self.check_tagged(header, payload.len(), cx).map(|target| {
                    if let Some(region) = target.region {
                        cx.memory.mapping(region).copy_in(target.offset as usize, payload);
                    }
                    self.complete_tagged(target, cx);
                })
            }
            Ok((Header::Untagged(header), at)) => self.receive_untagged(header, &ulpdu[at..], cx),
        };
        if let Err(fault) = result {
            self.fail(fault, Some((ulpdu, ulpdu.len())), cx);
        }
    }

    fn receive_untagged(&mut self, header: Untagged, body: &[u8], cx: &mut Context<'_>) -> Result<(), TerminateCode> {
        self.arriving.was_large_segment = false;
        if header.queue > queue::ATOMIC {
            return Err(TerminateCode::DDP_QUEUE);
        }
        let opcode = Opcode::parse(header.rdmap)?;
        match (opcode, header.queue) {
            (Opcode::Send { solicited, invalidate }, queue::SEND) => {
                self.receive_send(header, solicited, invalidate, body, cx)
            }
            (Opcode::Immediate { solicited }, queue::SEND) => {
                let data: [u8; 8] = self.parse_single(header, body, self.expected.sends)?;
                if !self.arriving.message.is_empty() {
                    return Err(TerminateCode::RDMAP_OPCODE);
                }
                self.expected.sends = self.expected.sends.wrapping_add(1);
                cx.events.push_immediate(self.id, data, solicited);
                Ok(())
            }
            (Opcode::ReadRequest, queue::REQUEST) => {
                let body: [u8; READ_BYTES] = self.parse_single(header, body, self.expected.requests)?;
                let response = self.check_read(ReadRequest::parse(&body), cx)?;
                self.queue_response(response, cx)
            }
            (Opcode::AtomicRequest, queue::REQUEST) => {
                let body: [u8; ATOMIC_BYTES] = self.parse_single(header, body, self.expected.requests)?;
                let response = self.check_atomic(AtomicRequest::parse(&body)?, cx)?;
                self.queue_response(response, cx)
            }
            (Opcode::AtomicResponse, queue::ATOMIC) => {
                let body: [u8; ATOMIC_REPLY_BYTES] = self.parse_single(header, body, self.expected.replies)?;
                self.expected.replies = self.expected.replies.wrapping_add(1);
                self.atomic_done(AtomicReply::parse(&body), cx)
            }
            (Opcode::Terminate, queue::TERMINATE) => {
                let terminate = Terminate::parse(body).ok_or(TerminateCode::RDMAP_STREAM)?;
                self.end(CloseReason::Terminated(terminate.fault), &[], false, Some(terminate), cx);
                Ok(())
            }
            _ => Err(TerminateCode::RDMAP_OPCODE),
        }
    }

    /// Checks a message of fixed length in one segment.
    fn parse_single<const N: usize>(
        &self,
        header: Untagged,
        body: &[u8],
        expected: u32,
    ) -> Result<[u8; N], TerminateCode> {
        if header.sequence != expected {
            return Err(TerminateCode::DDP_SEQUENCE);
        }
        if header.offset != 0 {
            return Err(TerminateCode::DDP_OFFSET);
        }
        if body.len() > N {
            return Err(TerminateCode::DDP_TOO_LONG);
        }
        if !header.last {
            return Err(TerminateCode::RDMAP_STREAM);
        }
        body.try_into().map_err(|_| TerminateCode::RDMAP_STREAM)
    }

    fn receive_send(
        &mut self,
        header: Untagged,
        solicited: bool,
        invalidate: bool,
        body: &[u8],
        cx: &mut Context<'_>,
    ) -> Result<(), TerminateCode> {
        if header.sequence != self.expected.sends {
            return Err(TerminateCode::DDP_SEQUENCE);
        }
        if header.offset as usize != self.arriving.message.len() {
            return Err(TerminateCode::DDP_OFFSET);
        }
        if self.arriving.message.len() + body.len() > self.config.message_bytes_max {
            return Err(TerminateCode::DDP_TOO_LONG);
        }
        if header.offset == 0 {
            self.arriving.message_opcode = header.rdmap;
        } else if header.rdmap != self.arriving.message_opcode {
            return Err(TerminateCode::RDMAP_OPCODE);
        }
        if !header.last {
            if body.is_empty() {
                // Such a message would never end.
                return Err(TerminateCode::RDMAP_STREAM);
            }
            self.arriving.message.extend_from_slice(body);
            return Ok(());
        }
        let invalidated = invalidate.then_some(header.word);
        if let Some(key) = invalidated
            && !self.windows.withdraw(key)
        {
            return Err(TerminateCode::RDMAP_INVALIDATE);
        }
        if self.arriving.message.is_empty() {
            cx.events.push_message(self.id, body, solicited, invalidated);
        } else {
            self.arriving.message.extend_from_slice(body);
            cx.events.push_message(self.id, &self.arriving.message, solicited, invalidated);
            self.arriving.message.clear();
        }
        self.expected.sends = self.expected.sends.wrapping_add(1);
        Ok(())
    }

    /// Queues a request of the peer.
    fn queue_response(&mut self, response: Response, cx: &mut Context<'_>) -> Result<(), TerminateCode> {
        if self.answers.queue.len() + usize::from(self.is_responding()) >= usize::from(self.terms.ird) {
            return Err(TerminateCode::DDP_NO_BUFFER);
        }
        self.expected.requests = self.expected.requests.wrapping_add(1);
        response.hold(cx.memory);
        self.answers.queue.push_back(response);
        Ok(())
    }
}
