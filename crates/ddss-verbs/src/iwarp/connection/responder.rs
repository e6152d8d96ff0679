//! Answers to the peer's reads and atomics, in order, and long messages that are sent segment by segment.

use super::requester::Receipt;
use super::{Connection, Context};
use crate::fabric::{RegionId, Rights};
use crate::iwarp::ddp::{Tagged, UNTAGGED_BYTES, Untagged, queue};
use crate::iwarp::rdmap::{ATOMIC_REPLY_BYTES, AtomicKind, AtomicReply, AtomicRequest, Opcode, ReadRequest};
use crate::iwarp::send_queue::Payload;
use crate::limits::{SNAPSHOT_BYTES, WORK_BYTES_MAX};
use crate::memory::Registry;
use crate::sys::crc;
use crate::terminate_code::TerminateCode;
use crate::work::{LocalRange, RemoteRange};

/// Payload of one segment that is copied: small enough to stay in the cache between copy and checksum.
const COPIED_BYTES: usize = 16 << 10;
/// Payload of one segment that is gathered from memory.
const GATHERED_BYTES: usize = 60 << 10;
/// Payload up to this length is copied even where it could be gathered: the socket accepts one long part faster than
/// many short ones.
const COPY_ANYWAY_BYTES: usize = 8 << 10;
/// The same limit where the processor checksums payload while copying it.
const COPY_SUMMED_BYTES: usize = 16 << 10;

/// An answer up to this length is small: it is sent along with others.
const SMALL_BYTES: usize = 4 << 10;

const _: () = assert!(COPIED_BYTES.is_multiple_of(8), "words stay whole across segments");
const _: () = assert!(GATHERED_BYTES.is_multiple_of(8), "words stay whole across segments");
const _: () = assert!(GATHERED_BYTES + 14 < u16::MAX as usize, "a segment's length has 16 bits");

/// Rule for payload in memory. Payload that only this thread can change, and that is sent at once, is summed in place
/// and left to the socket. Other payload is copied when it is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    InPlace,
    Copied,
}

/// Largest read that is taken in one go where payload is gathered.
pub(crate) const GATHERED_SNAPSHOT_BYTES: u64 = COPY_ANYWAY_BYTES as u64;

/// A checked request of the peer, with a hold on its region.
#[derive(Clone, Copy, Debug)]
pub(super) enum Response {
    Read { region: Option<RegionId>, offset: u64, bytes: u32, key: u32, address: u64 },
    Atomic { region: RegionId, offset: u64, kind: AtomicKind, id: u32 },
}

impl Response {
    pub(super) fn region(&self) -> Option<RegionId> {
        match *self {
            Response::Read { region, .. } => region,
            Response::Atomic { region, .. } => Some(region),
        }
    }

    /// Returns true if the answer is worth a packet of its own.
    pub(super) fn is_large(&self) -> bool {
        matches!(*self, Response::Read { bytes, .. } if bytes as usize > SMALL_BYTES)
    }

    pub(super) fn hold(&self, memory: &mut Registry) {
        if let Some(region) = self.region() {
            memory.hold(region);
        }
    }
}

/// A long tagged message that is being sent. Nothing else is sent between its segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    opcode: Opcode,
    /// Region with a hold, if there is any.
    pub(super) region: Option<RegionId>,
    offset: u64,
    left: u64,
    key: u32,
    address: u64,
    /// True if it has to be read from memory within one poll.
    whole: bool,
    /// Of a write: its tag and its start in the stream.
    pub(super) receipt: Option<(u64, u64)>,
}

impl Stream {
    pub(super) fn write(tag: u64, local: LocalRange, remote: RemoteRange, start: u64) -> Self {
        Self {
            opcode: Opcode::Write,
            region: Some(local.region),
            offset: local.offset,
            left: local.bytes,
            key: remote.key,
            address: remote.address,
            whole: false,
            receipt: Some((tag, start)),
        }
    }
}

impl Connection {
    /// Checks a read request of the peer.
    pub(super) fn asked_to_read(&self, read: ReadRequest, cx: &Context<'_>) -> Result<Response, TerminateCode> {
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
    pub(super) fn asked_to_update(&self, update: AtomicRequest, cx: &Context<'_>) -> Result<Response, TerminateCode> {
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
        self.streaming.is_some_and(|stream| stream.opcode == Opcode::ReadResponse)
    }

    /// Executes the next request of the peer. False if there is none.
    pub(super) fn respond(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(response) = self.responses.pop_front() else { return false };
        match response {
            Response::Read { region, offset, bytes, key, address } => {
                let left = u64::from(bytes);
                let opcode = Opcode::ReadResponse;
                let whole = left <= SNAPSHOT_BYTES as u64;
                self.streaming = Some(Stream { opcode, region, offset, left, key, address, whole, receipt: None });
            }
            Response::Atomic { region, offset, kind, id } => {
                // Payload that was summed before has to leave unchanged.
                self.outbox.take_in(cx.memory);
                let value = cx.memory.held(region).update(offset as usize, |old| kind.apply(old));
                cx.memory.release(region);
                self.encode_reply(AtomicReply { id, value }, cx.memory);
            }
        }
        true
    }

    fn encode_reply(&mut self, reply: AtomicReply, memory: &Registry) {
        let sequence = self.reply_sequence;
        self.reply_sequence = sequence.wrapping_add(1);
        let rdmap = Opcode::AtomicResponse.control();
        let header = Untagged { last: true, rdmap, word: 0, queue: queue::ATOMIC, sequence, offset: 0 };
        let mut head = [0; UNTAGGED_BYTES + ATOMIC_REPLY_BYTES];
        head[..UNTAGGED_BYTES].copy_from_slice(&header.encode());
        head[UNTAGGED_BYTES..].copy_from_slice(&reply.encode());
        self.outbox.frame(&head, Payload::Bytes(&[]), memory);
    }

    /// Copies payload from memory at the end of a poll's sending: payload that was summed in place, and the rest of
    /// answers that are guaranteed to be a snapshot.
    pub(crate) fn take_in(&mut self, memory: &mut Registry) {
        self.outbox.take_in(memory);
        if self.streaming.is_some_and(|stream| stream.whole) {
            self.stream(None, Source::Copied, memory);
        }
    }

    /// Encodes the current long message, segment by segment, while less than `limit` bytes wait, or to its end.
    pub(super) fn stream(&mut self, limit: Option<usize>, source: Source, memory: &mut Registry) {
        let Some(mut stream) = self.streaming.take() else { return };
        loop {
            let last = self.stream_segment(&mut stream, limit, source, memory);
            if last {
                self.stream_done(stream, memory);
                return;
            }
            if limit.is_some_and(|limit| !self.outbox.has_room(limit)) {
                self.streaming = Some(stream);
                return;
            }
        }
    }

    fn stream_segment(
        &mut self,
        stream: &mut Stream,
        limit: Option<usize>,
        source: Source,
        memory: &mut Registry,
    ) -> bool {
        let own = |region| source == Source::InPlace && memory.is_own(region);
        let copied = if self.terms.crc && crc::copies_meanwhile() { COPY_SUMMED_BYTES } else { COPY_ANYWAY_BYTES };
        let gather = stream.left > copied as u64 && self.outbox.gathers(stream.region.is_some_and(own));
        let limit = if gather { limit.map_or(GATHERED_BYTES, |limit| limit.min(GATHERED_BYTES)) } else { COPIED_BYTES };
        let bytes = stream.left.min(limit as u64) as usize;
        let last = stream.left == bytes as u64;
        let header = Tagged { last, rdmap: stream.opcode.control(), key: stream.key, address: stream.address };
        match stream.region {
            Some(region) if gather => self.outbox.gather(&header.encode(), region, stream.offset, bytes, memory),
            Some(region) => {
                let payload = Payload::Memory { region, offset: stream.offset, bytes };
                self.outbox.frame(&header.encode(), payload, memory);
            }
            None => self.outbox.frame(&header.encode(), Payload::Bytes(&[]), memory),
        }
        stream.left -= bytes as u64;
        stream.offset += bytes as u64;
        stream.address = stream.address.wrapping_add(bytes as u64);
        last
    }

    fn stream_done(&mut self, stream: Stream, memory: &mut Registry) {
        if let Some(region) = stream.region {
            memory.release(region);
        }
        if let Some((tag, start)) = stream.receipt {
            self.receipts.push_back(Receipt { tag, start, end: self.outbox.appended() });
        }
    }
}
