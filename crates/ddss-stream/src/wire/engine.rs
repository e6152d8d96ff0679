//! Engines of both plans behind one set of calls: stream bytes in, bytes of the socket out, and back.

use std::time::Instant;

use ddss_sdp::codec::{HEADER_BYTES, MessageKind};
use ddss_sdp::limits::FRAME_PAYLOAD_MAX;
use ddss_sdp::{
    BasicStream, Capabilities, CopyLedger, EnhancedStream, FrameReader, FrameWriter, Framing, Place, Plan, SdpError,
    StreamConfig, Terms,
};

/// Returns where iWARP in user space carries out its work.
#[must_use]
pub const fn capabilities() -> Capabilities {
    Capabilities {
        checksum: Place::Processor,
        demultiplexing: Place::Kernel,
        markers: Place::Software,
        segmentation: Place::Software,
        send_queue: Place::Software,
        flow_control: Place::Kernel,
        // Memory is not registered on such a connection.
        remote_reads: Place::Absent,
    }
}

/// Engine of one stream.
pub(super) enum Engine {
    Enhanced(Box<EnhancedStream>),
    Basic(Box<BasicOverFrames>),
}

/// Basic stream whose fabric, frames in a ring, is in this process as well.
pub(super) struct BasicOverFrames {
    stream: BasicStream,
    writer: FrameWriter,
    reader: FrameReader,
    begin: Instant,
    batching: bool,
}

impl Engine {
    /// Makes the engine that both sides agreed on.
    pub(super) fn new(
        config: &StreamConfig,
        batching: bool,
        terms: &Terms,
        outbound: Framing,
        inbound: Framing,
    ) -> Result<Self, SdpError> {
        if terms.plan.is_enhanced() {
            return Ok(Self::Enhanced(Box::new(EnhancedStream::new(config, terms, outbound, inbound)?)));
        }
        Ok(Self::Basic(Box::new(BasicOverFrames {
            stream: BasicStream::new(config, terms)?,
            writer: FrameWriter::new(config.ring_bytes, outbound)?,
            reader: FrameReader::new(config.ring_bytes, inbound)?,
            begin: Instant::now(),
            batching,
        })))
    }

    pub(super) fn plan(&self) -> Plan {
        match self {
            Self::Enhanced(stream) => stream.plan(),
            Self::Basic(basic) => basic.stream.plan(),
        }
    }

    /// Takes stream bytes; returns how many.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<usize, SdpError> {
        match self {
            Self::Enhanced(stream) => stream.write(bytes),
            Self::Basic(basic) => basic.stream.write(bytes),
        }
    }

    /// Gives stream bytes: `Some(0)` at the end, `None` if there are none yet.
    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<Option<usize>, SdpError> {
        match self {
            Self::Enhanced(stream) => stream.read(out),
            Self::Basic(basic) => basic.stream.read(out),
        }
    }

    /// Returns bytes for the socket. [`sent`](Self::sent) follows.
    pub(super) fn outgoing(&mut self) -> [&[u8]; 2] {
        match self {
            Self::Enhanced(stream) => stream.outgoing(),
            Self::Basic(basic) => basic.outgoing(),
        }
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        match self {
            Self::Enhanced(stream) => stream.sent(bytes),
            Self::Basic(basic) => basic.writer.consume(bytes),
        }
    }

    /// Returns memory for bytes of the socket. It is empty while the application has to read first.
    pub(super) fn receive_room(&mut self) -> &mut [u8] {
        match self {
            Self::Enhanced(stream) => stream.receive_room(),
            Self::Basic(basic) => basic.reader.room(),
        }
    }

    pub(super) fn received(&mut self, bytes: usize) -> Result<(), SdpError> {
        match self {
            Self::Enhanced(stream) => stream.received(bytes),
            Self::Basic(basic) => basic.received(bytes),
        }
    }

    pub(super) fn shutdown(&mut self) {
        match self {
            Self::Enhanced(stream) => stream.shutdown(),
            Self::Basic(basic) => basic.stream.shutdown(),
        }
    }

    /// Returns true if anything that was written has not left.
    pub(super) fn has_unsent(&self) -> bool {
        match self {
            Self::Enhanced(stream) => stream.has_outgoing(),
            Self::Basic(basic) => basic.stream.has_unsent() || !basic.writer.is_empty(),
        }
    }

    /// Returns the milliseconds until a small message that waits has to leave.
    pub(super) fn wait_ms(&self) -> Option<u64> {
        match self {
            Self::Enhanced(_) => None,
            Self::Basic(basic) => {
                basic.stream.next_deadline_ms().map(|deadline| deadline.saturating_sub(basic.now_ms()))
            }
        }
    }

    /// Returns the copies of stream bytes by this process, those into and out of frames included.
    pub(super) fn ledger(&self) -> CopyLedger {
        match self {
            Self::Enhanced(stream) => stream.ledger(),
            Self::Basic(basic) => {
                let own = basic.stream.ledger();
                CopyLedger {
                    send_copied: own.send_copied + basic.writer.copied(),
                    receive_copied: own.receive_copied + basic.reader.copied(),
                    ..own
                }
            }
        }
    }

    /// Returns the messages sent so far.
    pub(super) fn messages(&self) -> u32 {
        match self {
            Self::Enhanced(stream) => stream.messages(),
            Self::Basic(basic) => basic.writer.frames(),
        }
    }
}

impl BasicOverFrames {
    fn now_ms(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }

    /// Moves due messages from their private buffers into frames.
    fn outgoing(&mut self) -> [&[u8]; 2] {
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
        self.writer.parts()
    }

    /// Moves whole frames into private buffers.
    fn received(&mut self, bytes: usize) -> Result<(), SdpError> {
        self.reader.fill(bytes);
        while let Some(frame) = self.reader.next_frame()? {
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
            self.stream.received(frame.message_bytes)?;
            self.reader.free(frame);
        }
        Ok(())
    }
}
