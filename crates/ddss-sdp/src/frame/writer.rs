//! Send side of the integrated buffer.

use crate::codec::HEADER_BYTES;
use crate::error::SdpError;
use crate::frame::layout::{
    self, CHECKSUM_BYTES, FRAME_BYTES_MAX, Framing, LENGTH_BYTES, PREFIX_BYTES, SEND_HEADER_BYTES, frame_bytes,
};
use crate::frame::read_request::ReadRequest;
use crate::limits::SEAL_AHEAD_BYTES;

/// Ring of frames that wait for a socket.
///
/// Payload is copied around the gaps for markers. The last frame is open: bytes can be appended until the socket
/// takes its first byte. [`parts`](Self::parts) seals it in place: length, padding, markers and checksum.
pub struct FrameWriter {
    ring: Box<[u8]>,
    framing: Framing,
    /// Position of the first byte that the socket has not taken.
    head: u64,
    /// Position behind the last sealed byte, or the start of an open frame.
    tail: u64,
    last: Option<LastFrame>,
    /// Number of the next message; DDP counts from one.
    number: u32,
    /// Number of the next read request.
    read_number: u32,
    copied: u64,
}

/// Last frame, none of whose bytes the socket has taken.
#[derive(Clone, Copy)]
struct LastFrame {
    start: u64,
    /// Bytes before the padding, markers not counted.
    content: usize,
    is_sealed: bool,
}

impl FrameWriter {
    /// Makes an empty ring. The stream starts with its first frame.
    ///
    /// # Errors
    /// The size is outside the limits or no multiple of 512.
    pub fn new(ring_bytes: usize, framing: Framing) -> Result<FrameWriter, SdpError> {
        layout::check_ring(ring_bytes)?;
        let ring = vec![0; ring_bytes].into_boxed_slice();
        Ok(FrameWriter { ring, framing, head: 0, tail: 0, last: None, number: 1, read_number: 1, copied: 0 })
    }

    /// Seals the last frame and opens a new one with `header`. Returns false, and changes nothing, if a frame without
    /// payload does not fit.
    pub fn open(&mut self, header: &[u8; HEADER_BYTES]) -> bool {
        let start = self.sealed_end();
        if self.content_max(start) < PREFIX_BYTES {
            return false;
        }
        self.seal();
        self.last = Some(LastFrame { start, content: PREFIX_BYTES, is_sealed: false });
        self.put(start, LENGTH_BYTES, &layout::send_header(self.number));
        self.put(start, LENGTH_BYTES + SEND_HEADER_BYTES, header);
        self.number = self.number.wrapping_add(1);
        true
    }

    /// Seals the last frame and adds a read request. Returns false, and changes nothing, if it does not fit.
    pub fn request_read(&mut self, request: &ReadRequest) -> bool {
        let (start, body) = (self.sealed_end(), request.encode());
        let content = LENGTH_BYTES + SEND_HEADER_BYTES + body.len();
        if self.content_max(start) < content {
            return false;
        }
        self.seal();
        self.last = Some(LastFrame { start, content, is_sealed: false });
        self.put(start, LENGTH_BYTES, &layout::request_header(self.read_number));
        self.put(start, LENGTH_BYTES + SEND_HEADER_BYTES, &body);
        self.read_number = self.read_number.wrapping_add(1);
        self.seal();
        // Nothing can be appended to it.
        self.last = None;
        true
    }

    /// Returns the payload that a new frame would have room for.
    #[must_use]
    pub fn room_for_new(&self) -> usize {
        self.content_max(self.sealed_end()).saturating_sub(PREFIX_BYTES)
    }

    /// Returns the payload that the open frame has room for. Zero if no frame is open.
    #[must_use]
    pub fn room(&self) -> usize {
        self.last.map_or(0, |last| self.content_max(last.start).saturating_sub(last.content))
    }

    /// Returns the payload of the open frame. `None` if the socket has taken a part of the last frame.
    #[must_use]
    pub fn open_payload(&self) -> Option<usize> {
        self.last.map(|last| last.content - PREFIX_BYTES)
    }

    /// Appends payload to the open frame; returns the number of bytes that fitted.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let taken = self.append_body(bytes);
        self.copied += taken as u64;
        taken
    }

    /// Appends bytes that are not stream bytes, such as the fields of a message.
    pub fn append_body(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        if let Some(last) = &mut self.last
            && taken > 0
        {
            let (start, at) = (last.start, last.content);
            last.content += taken;
            last.is_sealed = false;
            self.tail = start;
            self.put(start, at, &bytes[..taken]);
        }
        taken
    }

    /// Replaces the header of the open frame.
    pub fn set_header(&mut self, header: &[u8; HEADER_BYTES]) {
        if let Some(last) = &mut self.last {
            let start = last.start;
            last.is_sealed = false;
            self.tail = start;
            self.put(start, LENGTH_BYTES + SEND_HEADER_BYTES, header);
        }
    }

    /// Returns true if there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head == self.sealed_end()
    }

    /// Returns bytes that wait, in one or two slices: the open frame, which it seals, and everything in front of it.
    /// The open frame stays behind while [`SEAL_AHEAD_BYTES`] wait in front of it. Nothing else stays behind.
    pub fn parts(&mut self) -> [&[u8]; 2] {
        if self.last.is_none_or(|last| last.start - self.head < SEAL_AHEAD_BYTES) {
            self.seal();
        }
        layout::slices(&self.ring, self.head, (self.tail - self.head) as usize)
    }

    /// Returns bytes that wait in front of the open frame, which stays open.
    #[must_use]
    pub fn parts_before_open(&self) -> [&[u8]; 2] {
        let end = self.last.map_or(self.tail, |last| last.start);
        layout::slices(&self.ring, self.head, (end - self.head) as usize)
    }

    /// Removes bytes that the socket has taken. Nothing can be appended to a frame whose first byte has left.
    ///
    /// # Panics
    /// The socket took more than [`parts`](Self::parts) returned.
    pub fn consume(&mut self, bytes: usize) {
        assert!(bytes as u64 <= self.tail - self.head, "a socket cannot take more than it was given");
        self.head += bytes as u64;
        if self.last.is_some_and(|last| last.start < self.head) {
            self.last = None;
        }
    }

    /// Returns the payload bytes copied into the ring.
    #[must_use]
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// Returns the frames begun so far.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.number.wrapping_sub(1)
    }

    pub(crate) fn framing(&self) -> Framing {
        self.framing
    }

    /// Returns the position of the next frame of an empty ring.
    pub(crate) fn position(&self) -> u64 {
        self.tail
    }

    /// Leaves out bytes that reach the socket another way.
    pub(crate) fn skip(&mut self, bytes: usize) {
        debug_assert!(self.is_empty(), "bytes that wait leave before those that bypass the ring");
        self.tail += bytes as u64;
        self.head = self.tail;
        self.last = None;
    }

    /// Returns the position behind the last frame, as if it were sealed.
    fn sealed_end(&self) -> u64 {
        match self.last {
            Some(last) if !last.is_sealed => self.framing.end(last.start, frame_bytes(last.content)),
            _ => self.tail,
        }
    }

    /// Returns the content that a frame can have that starts at `start`.
    fn content_max(&self, start: u64) -> usize {
        let limit = self.head + self.ring.len() as u64;
        let room = self.framing.content_before(limit).saturating_sub(self.framing.content_before(start));
        let bytes = room.min(FRAME_BYTES_MAX as u64) as usize;
        (bytes & !3).saturating_sub(CHECKSUM_BYTES)
    }

    /// Completes the last frame in place.
    fn seal(&mut self) {
        let Some(LastFrame { start, content, is_sealed: false }) = self.last else { return };
        let bytes = frame_bytes(content);
        self.put(start, 0, &((content - LENGTH_BYTES) as u16).to_be_bytes());
        self.put(start, content, &[0; 3][..bytes - CHECKSUM_BYTES - content]);
        let end = self.framing.end(start, bytes);
        for position in self.framing.markers_between(start, end) {
            let at = (position % self.ring.len() as u64) as usize;
            self.ring[at..at + layout::MARKER_BYTES].copy_from_slice(&layout::marker(start, position));
        }
        let covered = (end - start) as usize - CHECKSUM_BYTES;
        let sum = self
            .framing
            .checksum
            .map_or([0; CHECKSUM_BYTES], |checksum| layout::sum(checksum, &self.ring, start, covered));
        self.put(start, bytes - CHECKSUM_BYTES, &sum);
        self.tail = end;
        self.last = Some(LastFrame { start, content, is_sealed: true });
    }

    /// Copies bytes into the frame at `start`, from its byte `at`, around the gaps.
    fn put(&mut self, start: u64, mut at: usize, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let position = self.framing.within(start, at);
            let taken = bytes.len().min(self.framing.run(position, self.ring.len()));
            let (piece, rest) = bytes.split_at(taken);
            let place = (position % self.ring.len() as u64) as usize;
            self.ring[place..place + taken].copy_from_slice(piece);
            at += taken;
            bytes = rest;
        }
    }
}
