//! Enhanced stream: one buffer for stream and fabric, appending, flow control left to the receiver.

use crate::codec::{Body, Flags, HEADER_BYTES, Header, SOURCE_BYTES};
use crate::engine::control::{Acknowledgement, Control};
use crate::engine::handshake::{StreamConfig, Terms};
use crate::error::SdpError;
use crate::frame::{Frame, FrameReader, FrameWriter, Framing};
use crate::ledger::CopyLedger;
use crate::limits::HELD_LOOK_BYTES;

/// Stream on integrated buffers.
///
/// The caller sends the bytes of [`outgoing`](Self::outgoing) and lets the socket write into
/// [`receive_room`](Self::receive_room). There is no timer: a write is appended to the last frame while none of its
/// bytes has left. If the room is empty the caller stops receiving, and the fabric's flow control stops the peer.
///
/// Without [`StreamConfig::no_delay`] a caller that continues to write sends
/// [`outgoing_after_write`](Self::outgoing_after_write): small writes share a frame while the peer has not acknowledged
/// the messages before them.
pub struct EnhancedStream {
    control: Control,
    writer: FrameWriter,
    reader: FrameReader,
    /// Header of the last frame, as long as its first byte has not left.
    open: Option<OpenMessage>,
    /// Bytes already read of the first frame's payload.
    read_of_first: usize,
    /// Unread stream bytes.
    readable: usize,
    hold: Hold,
    ledger: CopyLedger,
    failed: Option<SdpError>,
}

/// Small writes that wait for an acknowledgement, as in the specification.
struct Hold {
    is_allowed: bool,
    /// Bytes written since the caller last looked for an acknowledgement.
    unlooked: usize,
}

/// Message in the last frame.
#[derive(Clone, Copy)]
struct OpenMessage {
    header: Header,
    /// True if stream bytes can be appended.
    is_appendable: bool,
}

impl EnhancedStream {
    /// Makes the stream of a new connection. `outbound` and `inbound` are what the fabric agreed on for frames.
    ///
    /// # Errors
    /// A setting is outside its limits.
    pub fn new(
        config: &StreamConfig,
        terms: &Terms,
        outbound: Framing,
        inbound: Framing,
    ) -> Result<EnhancedStream, SdpError> {
        config.check()?;
        Ok(EnhancedStream {
            control: Control::new(terms, config.buffers),
            writer: FrameWriter::new(config.ring_bytes, outbound)?,
            reader: FrameReader::new(config.ring_bytes, inbound)?,
            open: None,
            read_of_first: 0,
            readable: 0,
            hold: Hold { is_allowed: !config.no_delay, unlooked: 0 },
            ledger: CopyLedger::default(),
            failed: None,
        })
    }

    /// Copies bytes into the send ring, around the gaps; returns how many fitted.
    ///
    /// # Errors
    /// The stream was reset, or this side has closed its direction.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, SdpError> {
        self.check_writable()?;
        let mut done = 0;
        while done < bytes.len() {
            let flags = if self.hold.is_allowed { Flags::ACK_WANTED } else { Flags::default() };
            if !self.is_appendable() && !self.open_message(&Body::Data(0), flags, 1) {
                break;
            }
            let taken = self.writer.append(&bytes[done..]);
            done += taken;
            if taken == 0 {
                self.close_message();
            }
        }
        self.ledger.written += done as u64;
        self.hold.unlooked += done;
        Ok(done)
    }

    /// Reads bytes; `Some(0)` means the end of the stream, `None` that nothing has arrived yet.
    ///
    /// # Errors
    /// The stream was reset, or the peer broke the protocol.
    pub fn read(&mut self, out: &mut [u8]) -> Result<Option<usize>, SdpError> {
        self.check()?;
        let mut done = 0;
        while done < out.len() && self.readable > 0 {
            self.free_frames();
            let Some(first) = self.reader.first() else { break };
            let (start, bytes) = self.payload_of(first);
            let wanted = (bytes - self.read_of_first).min(out.len() - done);
            let taken = self.reader.copy_payload(first, start + self.read_of_first, &mut out[done..done + wanted]);
            self.read_of_first += taken;
            self.readable -= taken;
            done += taken;
        }
        self.free_frames();
        self.ledger.read += done as u64;
        if done > 0 || out.is_empty() {
            return Ok(Some(done));
        }
        if self.control.acknowledgement == Acknowledgement::Owed {
            self.control.acknowledgement = Acknowledgement::Due;
        }
        Ok(self.control.close.is_peer_closed.then_some(0))
    }

    /// Returns bytes to send now, in one or two slices; [`sent`](Self::sent) has to follow before any other call. The
    /// caller repeats both until there are none, or the socket takes no more.
    /// Nothing can be appended to a frame whose first byte left.
    pub fn outgoing(&mut self) -> [&[u8]; 2] {
        if self.failed.is_none() {
            self.send_pending();
        }
        self.complete_header();
        self.writer.parts()
    }

    /// Returns the bytes of [`outgoing`](Self::outgoing) that leave behind a write. A last message that
    /// [waits](Self::is_holding) stays behind: the caller sends it before it waits for anything.
    pub fn outgoing_after_write(&mut self) -> [&[u8]; 2] {
        if self.is_holding() { self.writer.parts_before_open() } else { self.outgoing() }
    }

    /// Returns true if the last message can grow, and the peer has not acknowledged the ones before it.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.hold.is_allowed
            && self.is_appendable()
            && self.control.unacknowledged() > 1
            && self.control.pending.peek(false, false).is_none()
    }

    /// Returns true if an acknowledgement may have arrived for enough held bytes to be worth a read of the socket.
    pub fn take_look(&mut self) -> bool {
        let is_due = self.hold.unlooked >= HELD_LOOK_BYTES && self.is_holding();
        if is_due {
            self.hold.unlooked = 0;
        }
        is_due
    }

    /// Returns true if there is something to send.
    #[must_use]
    pub fn has_outgoing(&self) -> bool {
        !self.writer.is_empty() || self.control.pending.peek(true, false).is_some()
    }

    /// Removes bytes that the socket took.
    ///
    /// # Panics
    /// The socket took more than it was given.
    pub fn sent(&mut self, bytes: usize) {
        self.writer.consume(bytes);
        if self.writer.open_payload().is_none() {
            self.open = None;
        }
    }

    /// Returns memory for bytes from the socket. It is empty while the application has to read first.
    pub fn receive_room(&mut self) -> &mut [u8] {
        self.reader.room()
    }

    /// Handles `bytes` bytes that the socket wrote into [`receive_room`](Self::receive_room).
    ///
    /// # Errors
    /// The peer broke the protocol. The stream is then at its end.
    ///
    /// # Panics
    /// There was less room.
    pub fn received(&mut self, bytes: usize) -> Result<(), SdpError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.reader.fill(bytes);
        let result = self.receive_frames();
        if let Err(error) = result {
            self.failed = Some(error);
        }
        result
    }

    /// Closes the direction of this side behind everything written.
    pub fn shutdown(&mut self) {
        self.control.shutdown();
    }

    /// Resets the stream.
    pub fn abort(&mut self) {
        self.control.abort();
    }

    /// Returns true if both sides have closed, or the stream was reset: the connection can be closed once nothing
    /// waits.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.control.is_finished()
    }

    /// Returns the copies made so far.
    #[must_use]
    pub fn ledger(&self) -> CopyLedger {
        CopyLedger { send_copied: self.writer.copied(), receive_copied: self.reader.copied(), ..self.ledger }
    }

    /// Returns the messages sent so far.
    #[must_use]
    pub fn messages(&self) -> u32 {
        self.writer.frames()
    }

    /// Returns the plan.
    #[must_use]
    pub fn plan(&self) -> crate::Plan {
        self.control.plan
    }

    fn check(&self) -> Result<(), SdpError> {
        match self.failed {
            Some(error) => Err(error),
            None if self.control.close.is_reset => Err(SdpError::Reset),
            None => Ok(()),
        }
    }

    fn check_writable(&self) -> Result<(), SdpError> {
        self.check()?;
        self.control.check_writable()
    }

    fn is_appendable(&self) -> bool {
        self.open.is_some_and(|open| open.is_appendable) && self.writer.room() > 0
    }

    fn close_message(&mut self) {
        if let Some(open) = &mut self.open {
            open.is_appendable = false;
        }
    }

    /// Opens a frame for a message. Returns false if it and `more` bytes do not fit.
    fn open_message(&mut self, body: &Body, flags: Flags, more: usize) -> bool {
        let (fixed, fixed_bytes) = body.encode_fixed();
        if self.writer.room_for_new() < fixed_bytes + more {
            return false;
        }
        self.complete_header();
        let header = self.control.header(body, flags, u16::MAX);
        let is_open = self.writer.open(&header.encode());
        debug_assert!(is_open, "the room was checked");
        self.writer.append_body(&fixed[..fixed_bytes]);
        self.open = Some(OpenMessage { header, is_appendable: matches!(body, Body::Data(_)) });
        true
    }

    /// Writes the final header of the last message.
    fn complete_header(&mut self) {
        if let (Some(open), Some(payload)) = (&mut self.open, self.writer.open_payload())
            && open.header.body_bytes() != payload
        {
            self.control.refresh(&mut open.header, payload, u16::MAX);
            self.writer.set_header(&open.header.encode());
        }
    }

    /// Moves messages without payload into the ring, as many as fit.
    fn send_pending(&mut self) {
        while self.writer.room_for_new() >= SOURCE_BYTES {
            let Some(body) = self.control.next_pending(true) else { break };
            self.open_message(&body, Flags::default(), 0);
        }
        let is_due = self.control.acknowledgement == Acknowledgement::Due && !self.control.is_finished();
        if is_due && self.open_message(&Body::Data(0), Flags::default(), SOURCE_BYTES) {
            self.close_message();
        }
    }

    fn receive_frames(&mut self) -> Result<(), SdpError> {
        while let Some(frame) = self.reader.next_frame()? {
            let mut message = [0; HEADER_BYTES + SOURCE_BYTES];
            let known = self.reader.copy_message(frame, 0, &mut message);
            let (head, fixed) = message[..known].split_at(HEADER_BYTES.min(known));
            let head = head.first_chunk().ok_or(SdpError::FrameLength(frame.message_bytes))?;
            let header = Header::decode(head)?;
            if header.len as usize != frame.message_bytes {
                return Err(SdpError::MessageLength { mid: header.kind.mid(), len: header.len });
            }
            let body = Body::decode(&header, fixed)?;
            self.control.receive(&header, &body)?;
            if let Body::ChRcvBuf(_) = body {
                // The ring takes every message that a frame can carry.
                let payload = crate::limits::FRAME_PAYLOAD_MAX as u32;
                self.control.pending.receive_buffer_ack = Some(payload);
            }
            self.readable += body.payload_bytes();
        }
        self.free_frames();
        Ok(())
    }

    /// Returns start and length of the stream bytes in a frame, from the end of the header. The frame was checked when
    /// it arrived, and the ring belongs to this stream.
    fn payload_of(&self, frame: Frame) -> (usize, usize) {
        let mut head = [0; HEADER_BYTES];
        self.reader.copy_message(frame, 0, &mut head);
        let Ok(header) = Header::decode(&head) else { return (0, 0) };
        let start = match header.kind {
            crate::codec::MessageKind::Data => 0,
            crate::codec::MessageKind::SrcAvail => SOURCE_BYTES,
            _ => return (0, 0),
        };
        (start, header.body_bytes() - start)
    }

    /// Frees frames without unread bytes at the front.
    fn free_frames(&mut self) {
        while let Some(first) = self.reader.first() {
            let (_, bytes) = self.payload_of(first);
            if self.read_of_first < bytes {
                break;
            }
            self.reader.free(first);
            self.read_of_first = 0;
        }
    }
}
