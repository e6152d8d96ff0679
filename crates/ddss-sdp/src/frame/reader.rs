//! Receive side of the integrated buffer.

use crate::codec::HEADER_BYTES;
use crate::error::SdpError;
use crate::frame::layout::{
    self, CHECKSUM_BYTES, FRAME_BYTES_MAX, Framing, HEAD_BYTES, LENGTH_BYTES, MARKER_BYTES, PREFIX_BYTES,
    SEND_HEADER_BYTES, frame_bytes,
};
use crate::frame::read_request::{REQUEST_BYTES, ReadRequest};

/// Ring of bytes from a socket, from which messages are read in place, around the markers.
pub struct FrameReader {
    ring: Box<[u8]>,
    framing: Framing,
    /// Position of the first byte that is still needed.
    head: u64,
    /// Position behind the last checked frame.
    checked: u64,
    /// Position behind the last received byte.
    tail: u64,
    number: u32,
    /// Number of the next read request. `None` if the stream has none.
    read_number: Option<u32>,
    copied: u64,
}

/// A complete, checked frame in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    start: u64,
    end: u64,
    /// Bytes of the message in the frame, its header included.
    pub message_bytes: usize,
}

impl FrameReader {
    /// Makes an empty ring. The stream starts with its first frame.
    ///
    /// # Errors
    /// The size is outside the limits or no multiple of 512.
    pub fn new(ring_bytes: usize, framing: Framing) -> Result<FrameReader, SdpError> {
        layout::check_ring(ring_bytes)?;
        let ring = vec![0; ring_bytes].into_boxed_slice();
        Ok(FrameReader { ring, framing, head: 0, checked: 0, tail: 0, number: 1, read_number: None, copied: 0 })
    }

    /// Lets the peer send read requests.
    #[must_use]
    pub fn with_read_requests(self) -> FrameReader {
        FrameReader { read_number: Some(1), ..self }
    }

    /// Returns memory for bytes from the socket. It is empty while the ring is full.
    pub fn room(&mut self) -> &mut [u8] {
        let free = self.ring.len() - (self.tail - self.head) as usize;
        let at = (self.tail % self.ring.len() as u64) as usize;
        let bytes = free.min(self.ring.len() - at);
        &mut self.ring[at..at + bytes]
    }

    /// Adds bytes that the socket wrote into [`room`](Self::room).
    ///
    /// # Panics
    /// There was less room.
    pub fn fill(&mut self, bytes: usize) {
        assert!(bytes <= self.room().len(), "a socket cannot write more than it was given");
        self.tail += bytes as u64;
    }

    /// Checks the next frame; `None` if more bytes are needed.
    ///
    /// # Errors
    /// The length, the header, a marker or the checksum is wrong.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, SdpError> {
        let start = self.checked;
        if self.framing.within(start, LENGTH_BYTES - 1) >= self.tail {
            return Ok(None);
        }
        let content = LENGTH_BYTES + self.length_field(start);
        let bytes = frame_bytes(content);
        if content < PREFIX_BYTES || bytes > FRAME_BYTES_MAX {
            return Err(SdpError::FrameLength(content - LENGTH_BYTES));
        }
        let end = self.framing.end(start, bytes);
        if end > self.tail {
            return Ok(None);
        }
        for position in self.framing.markers_between(start, end) {
            let at = (position % self.ring.len() as u64) as usize;
            let mut marker = [0; MARKER_BYTES];
            marker.copy_from_slice(&self.ring[at..at + MARKER_BYTES]);
            // The last two bits are reserved.
            marker[3] &= !3;
            if marker[2..] != layout::marker(start, position)[2..] {
                return Err(SdpError::Marker(position));
            }
        }
        if let Some(checksum) = self.framing.checksum {
            let mut field = [0; CHECKSUM_BYTES];
            self.get(start, bytes - CHECKSUM_BYTES, &mut field);
            if field != layout::sum(checksum, &self.ring, start, (end - start) as usize - CHECKSUM_BYTES) {
                return Err(SdpError::Checksum(start));
            }
        }
        let mut header = [0; SEND_HEADER_BYTES];
        self.get(start, LENGTH_BYTES, &mut header);
        if header == layout::send_header(self.number) {
            self.number = self.number.wrapping_add(1);
        } else if let Some(number) = &mut self.read_number
            && header == layout::request_header(*number)
            && content == LENGTH_BYTES + SEND_HEADER_BYTES + REQUEST_BYTES
        {
            *number = number.wrapping_add(1);
        } else {
            return Err(SdpError::FrameHeader(self.number));
        }
        self.checked = end;
        Ok(Some(Frame { start, end, message_bytes: content - LENGTH_BYTES - SEND_HEADER_BYTES }))
    }

    /// Returns the first checked frame that is still needed.
    #[must_use]
    pub fn first(&self) -> Option<Frame> {
        if self.head == self.checked {
            return None;
        }
        let start = self.head;
        let content = LENGTH_BYTES + self.length_field(start);
        let end = self.framing.end(start, frame_bytes(content));
        Some(Frame { start, end, message_bytes: content - LENGTH_BYTES - SEND_HEADER_BYTES })
    }

    /// Returns the read request in a frame. `None` if it is a message.
    #[must_use]
    pub fn read_request(&self, frame: Frame) -> Option<ReadRequest> {
        let mut queue = [0];
        self.get(frame.start, LENGTH_BYTES + 9, &mut queue);
        let mut body = [0; REQUEST_BYTES];
        (queue == [1] && self.copy_message(frame, 0, &mut body) == body.len()).then(|| ReadRequest::decode(&body))
    }

    /// Returns the bytes that complete the head of the next frame, or the frame if its head has arrived. A caller that
    /// receives no more than this finds the payload of a read response in the socket.
    #[must_use]
    pub fn missing(&self) -> usize {
        let start = self.checked;
        let head = self.framing.within(start, HEAD_BYTES - 1) + 1;
        let needed = if self.tail < head {
            head
        } else {
            let bytes = frame_bytes(LENGTH_BYTES + self.length_field(start)).min(FRAME_BYTES_MAX);
            self.framing.end(start, bytes).max(head)
        };
        needed.saturating_sub(self.tail) as usize
    }

    /// Copies bytes of a message, from its byte `at`; returns how many there were.
    pub fn copy_message(&self, frame: Frame, at: usize, out: &mut [u8]) -> usize {
        let bytes = out.len().min(frame.message_bytes.saturating_sub(at));
        self.get(frame.start, LENGTH_BYTES + SEND_HEADER_BYTES + at, &mut out[..bytes]);
        bytes
    }

    /// Copies payload to the application and counts it.
    pub fn copy_payload(&mut self, frame: Frame, at: usize, out: &mut [u8]) -> usize {
        let bytes = self.copy_message(frame, HEADER_BYTES + at, out);
        self.copied += bytes as u64;
        bytes
    }

    /// Frees the first frame.
    ///
    /// # Panics
    /// The frame is not the first one.
    pub fn free(&mut self, frame: Frame) {
        assert!(frame.start == self.head && frame.end <= self.checked, "frames are freed in order");
        self.head = frame.end;
    }

    /// Returns the payload bytes copied out of the ring.
    #[must_use]
    pub fn copied(&self) -> u64 {
        self.copied
    }

    pub(crate) fn framing(&self) -> Framing {
        self.framing
    }

    /// Returns the first bytes of the next frame, markers not counted, once they have arrived.
    pub(crate) fn head_of_next(&self) -> Option<[u8; HEAD_BYTES]> {
        let mut head = [0; HEAD_BYTES];
        let is_there = self.framing.within(self.checked, HEAD_BYTES - 1) < self.tail;
        is_there.then(|| {
            self.get(self.checked, 0, &mut head);
            head
        })
    }

    /// Returns the start of the next frame and the bytes that have arrived, markers counted.
    pub(crate) fn unchecked(&self) -> (u64, usize) {
        (self.checked, (self.tail - self.checked) as usize)
    }

    /// Copies bytes that lie side by side.
    pub(crate) fn copy_raw(&self, position: u64, out: &mut [u8]) {
        let at = (position % self.ring.len() as u64) as usize;
        out.copy_from_slice(&self.ring[at..at + out.len()]);
    }

    /// Leaves out the next frame, of `bytes` bytes, which arrived another way.
    pub(crate) fn skip(&mut self, bytes: usize) {
        debug_assert!(self.head == self.checked, "frames in the ring were freed before");
        self.checked += bytes as u64;
        (self.head, self.tail) = (self.checked, self.checked);
    }

    fn length_field(&self, start: u64) -> usize {
        let mut field = [0; LENGTH_BYTES];
        self.get(start, 0, &mut field);
        usize::from(u16::from_be_bytes(field))
    }

    /// Copies bytes of the frame at `start`, from its byte `at`, around the markers.
    fn get(&self, start: u64, mut at: usize, mut out: &mut [u8]) {
        while !out.is_empty() {
            let position = self.framing.within(start, at);
            let taken = out.len().min(self.framing.run(position, self.ring.len()));
            let (piece, rest) = out.split_at_mut(taken);
            let place = (position % self.ring.len() as u64) as usize;
            piece.copy_from_slice(&self.ring[place..place + taken]);
            at += taken;
            out = rest;
        }
    }
}
