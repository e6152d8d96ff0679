//! The basic plan over a fabric in this process: private buffers above, frames in rings below.

use std::time::Instant;

use ddss_sdp::codec::{HEADER_BYTES, MessageKind};
use ddss_sdp::limits::FRAME_PAYLOAD_MAX;
use ddss_sdp::{
    BasicStream, CopyLedger, FrameReader, FrameWriter, Framing, Plan, SdpError, StreamConfig, Terms, ZeroCopyOutcome,
};

use super::remote_reads::RemoteReads;
use super::socket_memory::{Incoming, Outgoing, ReadCall};
use crate::limits::{WIRE_IN_PLACE_MIN, WIRE_READ_MAX};

/// Basic stream whose fabric, frames in a ring, is in this process as well.
pub(super) struct BasicOverFrames {
    stream: BasicStream,
    writer: FrameWriter,
    reader: FrameReader,
    reads: RemoteReads,
    begin: Instant,
    batching: bool,
    /// Error of the fabric. Nothing follows it.
    failed: Option<SdpError>,
}

impl BasicOverFrames {
    pub(super) fn new(
        config: &StreamConfig,
        batching: bool,
        terms: &Terms,
        outbound: Framing,
        inbound: Framing,
    ) -> Result<Self, SdpError> {
        let mut reader = FrameReader::new(config.ring_bytes, inbound)?;
        if terms.plan.zero_copy {
            reader = reader.with_read_requests();
        }
        Ok(Self {
            stream: BasicStream::new(config, terms)?,
            writer: FrameWriter::new(config.ring_bytes, outbound)?,
            reader,
            reads: RemoteReads::default(),
            begin: Instant::now(),
            batching,
            failed: None,
        })
    }

    pub(super) fn plan(&self) -> Plan {
        self.stream.plan()
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<usize, SdpError> {
        self.check()?;
        self.stream.write(bytes)
    }

    /// Reads: bytes that the peer sent, or its memory in place.
    pub(super) fn read(&mut self, call: &mut ReadCall<'_>) -> Result<Option<usize>, SdpError> {
        if call.is_placing
            && let Some(bytes) = self.reads.take_placed()
        {
            call.is_placing = false;
            return Ok(Some(bytes));
        }
        if let Some(bytes) = self.reads.read_spill(call.out) {
            return Ok(Some(bytes));
        }
        self.check()?;
        if self.reads.has_sink() {
            return Ok(None);
        }
        call.is_placing = false;
        if call.can_place
            && let Some(source) = self.stream.source()
            && call.out.len() >= WIRE_IN_PLACE_MIN.min(source.len as usize)
        {
            let bytes = call.out.len().min(WIRE_READ_MAX).min(source.len as usize) as u32;
            if self.reads.begin(&mut self.writer, &source, bytes).is_some() {
                self.stream.begin_source_read(bytes)?;
                call.is_placing = true;
            }
            return Ok(None);
        }
        self.stream.read(call.out)
    }

    pub(super) fn end_borrow(&mut self, memory: &[u8]) {
        self.reads.end_borrow(memory);
    }

    pub(super) fn peer_ended(&mut self) -> bool {
        self.reads.peer_ended()
    }

    pub(super) fn advertise(&mut self, bytes: u32) -> Result<Option<bool>, SdpError> {
        self.check()?;
        if !self.stream.plan().zero_copy {
            return Ok(None);
        }
        let memory = self.reads.next_advertisement(bytes);
        match self.stream.advertise(memory, &[]) {
            Ok(()) => self.reads.advertised(memory),
            Err(SdpError::CannotAdvertise) => return Ok(Some(false)),
            Err(error) => return Err(error),
        }
        Ok(Some(true))
    }

    pub(super) fn take_outcome(&mut self) -> Option<ZeroCopyOutcome> {
        if self.reads.is_serving() {
            return None;
        }
        let outcome = self.stream.take_outcome()?;
        self.reads.end_source();
        Some(outcome)
    }

    pub(super) fn withdraw(&mut self) {
        self.stream.withdraw();
    }

    pub(super) fn served(&self) -> u64 {
        self.reads.served()
    }

    /// Moves due messages from their private buffers into frames. `memory` is that of the advertisement, if this call made it.
    pub(super) fn outgoing<'a>(&'a mut self, memory: Option<&'a [u8]>) -> Outgoing<'a> {
        if !self.reads.is_sending() {
            self.fill_frames();
            if !self.writer.is_empty() {
                return Outgoing::of_frames(self.writer.parts());
            }
        }
        let segment = memory.and_then(|memory| self.reads.outgoing(&mut self.writer, memory));
        segment.map_or(Outgoing::Nothing, Outgoing::Segment)
    }

    pub(super) fn wants_send(&mut self, has_memory: bool) -> bool {
        if self.reads.is_sending() {
            return has_memory;
        }
        self.fill_frames();
        !self.writer.is_empty() || has_memory && self.reads.is_serving()
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        if self.reads.is_sending() { self.reads.sent(bytes) } else { self.writer.consume(bytes) }
    }

    fn fill_frames(&mut self) {
        let now_ms = self.now_ms();
        while (self.batching || self.writer.is_empty())
            && self.writer.room_for_new() >= FRAME_PAYLOAD_MAX
            && let Some(message) = self.stream.next_message(now_ms)
            && let Some((header, fixed)) = message.head().split_first_chunk::<HEADER_BYTES>()
        {
            let is_open = self.writer.open(header);
            let taken = self.writer.append_body(fixed) + self.writer.append(message.payload);
            debug_assert!(is_open && taken == fixed.len() + message.payload.len(), "the room was checked");
        }
    }

    /// Returns memory for bytes of the socket. `place` is that of the call, if a read fills it.
    pub(super) fn incoming<'a>(&'a mut self, place: Option<&'a mut [u8]>) -> Incoming<'a> {
        if !self.wants_receive(place.is_some()) {
            return Incoming::Frames(&mut []);
        }
        if self.reads.has_segment() {
            return self.reads.incoming(place).map_or(Incoming::Frames(&mut []), Incoming::Segment);
        }
        let missing = if self.reads.is_placing() { self.reader.missing() } else { usize::MAX };
        let room = self.reader.room();
        let bytes = room.len().min(missing);
        Incoming::Frames(&mut room[..bytes])
    }

    pub(super) fn wants_receive(&mut self, has_place: bool) -> bool {
        if self.reads.is_sink_borrowed() && !has_place {
            return false;
        }
        self.reads.has_segment() || !self.reader.room().is_empty()
    }

    pub(super) fn received(&mut self, bytes: usize, place: Option<&mut [u8]>) -> Result<(), SdpError> {
        self.check()?;
        let result = self.take_received(bytes, place);
        self.failed = result.err();
        result
    }

    fn take_received(&mut self, bytes: usize, place: Option<&mut [u8]>) -> Result<(), SdpError> {
        if self.reads.has_segment() {
            if let Some(bytes) = self.reads.filled(&mut self.reader, bytes, place)? {
                self.stream.end_source_read(bytes)?;
            }
            return Ok(());
        }
        self.reader.fill(bytes);
        while !self.reads.begin_segment(&self.reader)?
            && let Some(frame) = self.reader.next_frame()?
        {
            if let Some(request) = self.reader.read_request(frame) {
                self.reads.requested(request)?;
            } else {
                self.take_message(frame)?;
            }
            self.reader.free(frame);
        }
        Ok(())
    }

    /// Moves a message into a private buffer.
    fn take_message(&mut self, frame: ddss_sdp::frame::Frame) -> Result<(), SdpError> {
        let buffer = self.stream.receive_buffer()?;
        let message = buffer.get_mut(..frame.message_bytes).ok_or(SdpError::FrameLength(frame.message_bytes))?;
        let (header, payload) = message.split_at_mut(HEADER_BYTES.min(frame.message_bytes));
        self.reader.copy_message(frame, 0, header);
        // Fields of other messages are not bytes of the stream.
        if header.first() == Some(&MessageKind::Data.mid()) {
            self.reader.copy_payload(frame, 0, payload);
        } else {
            self.reader.copy_message(frame, HEADER_BYTES, payload);
        }
        self.stream.received(frame.message_bytes)
    }

    pub(super) fn shutdown(&mut self) {
        self.stream.shutdown();
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.stream.has_unsent() || !self.writer.is_empty()
    }

    pub(super) fn wait_ms(&self) -> Option<u64> {
        self.stream.next_deadline_ms().map(|deadline| deadline.saturating_sub(self.now_ms()))
    }

    pub(super) fn ledger(&self) -> CopyLedger {
        let own = self.stream.ledger();
        CopyLedger {
            send_copied: own.send_copied + self.writer.copied(),
            receive_copied: own.receive_copied + self.reader.copied() + self.reads.copied(),
            ..own
        }
    }

    pub(super) fn messages(&self) -> u32 {
        self.writer.frames()
    }

    fn check(&self) -> Result<(), SdpError> {
        self.failed.map_or(Ok(()), Err)
    }

    fn now_ms(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }
}
