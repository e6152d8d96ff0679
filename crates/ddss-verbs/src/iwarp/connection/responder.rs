//! Answers to the peer's reads and atomics, in order, and long messages that are sent segment by segment.

use super::Connection;
use super::context::Context;
use super::posted_work::Receipt;
use super::response::{Response, Source, Stream};
use crate::fabric::Rights;
use crate::iwarp::ddp::{Tagged, UNTAGGED_BYTES, Untagged, queue};
use crate::iwarp::rdmap::{ATOMIC_REPLY_BYTES, AtomicReply, AtomicRequest, Opcode, ReadRequest};
use crate::iwarp::send_queue::Payload;
use crate::limits::{SNAPSHOT_BYTES, WORK_BYTES_MAX};
use crate::memory::RegionTable;
use crate::sys::crc;
use crate::terminate_code::TerminateCode;

/// Payload of one segment that is copied: small enough to stay in the cache between copy and checksum.
const COPIED_BYTES: usize = 16 << 10;
/// Payload of one segment that is gathered from memory.
const GATHERED_BYTES: usize = 60 << 10;
/// Payload up to this length is copied even where it could be gathered: the socket accepts one long part faster than
/// many short ones.
const COPY_MAX_BYTES: usize = 8 << 10;
/// Payload up to this length is copied if the processor checksums payload while copying it.
const COPY_SUMMED_MAX_BYTES: usize = 16 << 10;

const _: () = assert!(COPIED_BYTES.is_multiple_of(8), "words stay whole across segments");
const _: () = assert!(GATHERED_BYTES.is_multiple_of(8), "words stay whole across segments");
const _: () = assert!(GATHERED_BYTES + 14 < u16::MAX as usize, "a segment's length has 16 bits");

/// Largest read that is taken in one go where payload is gathered.
pub(crate) const GATHERED_SNAPSHOT_BYTES: u64 = COPY_MAX_BYTES as u64;

impl Connection {
    /// Checks a read request of the peer.
    pub(super) fn check_read(&self, read: ReadRequest, cx: &Context<'_>) -> Result<Response, TerminateCode> {
        let bytes = u64::from(read.bytes);
        if bytes > WORK_BYTES_MAX {
            return Err(TerminateCode::RDMAP_BOUNDS);
        }
        read.sink_address.checked_add(bytes).ok_or(TerminateCode::RDMAP_WRAP)?;
        let mut found = (None, 0);
        if bytes > 0 {
            let (region, offset) = self
                .windows
                .translate(cx.memory, read.source_key, read.source_address, bytes, Rights::READ)
                .map_err(|denied| denied.rdmap())?;
            found = (Some(region), offset);
        }
        let (region, offset) = found;
        Ok(Response::Read { region, offset, bytes: read.bytes, key: read.sink_key, address: read.sink_address })
    }

    /// Checks an atomic request of the peer.
    pub(super) fn check_atomic(&self, update: AtomicRequest, cx: &Context<'_>) -> Result<Response, TerminateCode> {
        let AtomicRequest { id, key, address, kind } = update;
        let (region, offset) =
            self.windows.translate(cx.memory, key, address, 8, Rights::ATOMIC).map_err(|denied| denied.rdmap())?;
        if !offset.is_multiple_of(8) {
            return Err(TerminateCode::RDMAP_UNSPECIFIED);
        }
        Ok(Response::Atomic { region, offset, kind, id })
    }

    /// Returns true if an answer is being sent segment by segment.
    pub(super) fn is_responding(&self) -> bool {
        self.answers.stream.is_some_and(|stream| stream.opcode == Opcode::ReadResponse)
    }

    /// Executes the next request of the peer. False if there is none.
    pub(super) fn respond(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(response) = self.answers.queue.pop_front() else { return false };
        match response {
            Response::Read { region, offset, bytes, key, address } => {
                let remaining = u64::from(bytes);
                let opcode = Opcode::ReadResponse;
                let is_snapshot = remaining <= SNAPSHOT_BYTES as u64;
                self.answers.stream =
                    Some(Stream { opcode, region, offset, remaining, key, address, is_snapshot, receipt: None });
            }
            Response::Atomic { region, offset, kind, id } => {
                // Payload that was summed before has to leave unchanged.
                self.send_queue.copy_in_place_payload(cx.memory);
                let value = cx.memory.mapping(region).update(offset as usize, |old| kind.apply(old));
                cx.memory.release(region);
                self.encode_reply(AtomicReply { id, value }, cx.memory);
            }
        }
        true
    }

    fn encode_reply(&mut self, reply: AtomicReply, memory: &RegionTable) {
        let sequence = self.sent.replies;
        self.sent.replies = sequence.wrapping_add(1);
        let rdmap = Opcode::AtomicResponse.control();
        let header = Untagged { last: true, rdmap, word: 0, queue: queue::ATOMIC, sequence, offset: 0 };
        let mut head = [0; UNTAGGED_BYTES + ATOMIC_REPLY_BYTES];
        head[..UNTAGGED_BYTES].copy_from_slice(&header.encode());
        head[UNTAGGED_BYTES..].copy_from_slice(&reply.encode());
        self.send_queue.append_frame(&head, Payload::Bytes(&[]), memory);
    }

    /// Copies payload from memory at the end of a poll's sending: payload that was summed in place, and the rest of
    /// answers that are guaranteed to be a snapshot.
    pub(crate) fn copy_in_place_payload(&mut self, memory: &mut RegionTable) {
        self.send_queue.copy_in_place_payload(memory);
        if self.answers.stream.is_some_and(|stream| stream.is_snapshot) {
            self.encode_stream(None, Source::Copied, memory);
        }
    }

    /// Encodes the current long message, segment by segment, while less than `limit` bytes wait, or to its end.
    pub(super) fn encode_stream(&mut self, limit: Option<usize>, source: Source, memory: &mut RegionTable) {
        let Some(mut stream) = self.answers.stream.take() else { return };
        loop {
            let last = self.encode_stream_segment(&mut stream, limit, source, memory);
            if last {
                self.finish_stream(stream, memory);
                return;
            }
            if limit.is_some_and(|limit| !self.send_queue.has_room(limit)) {
                self.answers.stream = Some(stream);
                return;
            }
        }
    }

    fn encode_stream_segment(
        &mut self,
        stream: &mut Stream,
        limit: Option<usize>,
        source: Source,
        memory: &mut RegionTable,
    ) -> bool {
        let is_exclusive = |region| source == Source::InPlace && memory.is_exclusive(region);
        let copied = if self.terms.crc && crc::has_free_copy() { COPY_SUMMED_MAX_BYTES } else { COPY_MAX_BYTES };
        let gather =
            stream.remaining > copied as u64 && self.send_queue.can_gather(stream.region.is_some_and(is_exclusive));
        let limit = if gather { limit.map_or(GATHERED_BYTES, |limit| limit.min(GATHERED_BYTES)) } else { COPIED_BYTES };
        let bytes = stream.remaining.min(limit as u64) as usize;
        let last = stream.remaining == bytes as u64;
        let header = Tagged { last, rdmap: stream.opcode.control(), key: stream.key, address: stream.address };
        match stream.region {
            Some(region) if gather => {
                self.send_queue.append_gathered(&header.encode(), region, stream.offset, bytes, memory)
            }
            Some(region) => {
                let payload = Payload::Memory { region, offset: stream.offset, bytes };
                self.send_queue.append_frame(&header.encode(), payload, memory);
            }
            None => self.send_queue.append_frame(&header.encode(), Payload::Bytes(&[]), memory),
        }
        stream.remaining -= bytes as u64;
        stream.offset += bytes as u64;
        stream.address = stream.address.wrapping_add(bytes as u64);
        last
    }

    fn finish_stream(&mut self, stream: Stream, memory: &mut RegionTable) {
        if let Some(region) = stream.region {
            memory.release(region);
        }
        if let Some((tag, start)) = stream.receipt {
            self.work.receipts.push_back(Receipt { tag, start, end: self.send_queue.appended() });
        }
    }
}
