//! Frames of read responses. Their payload never enters a ring: the socket takes it from the memory of its owner, and
//! places it in that of the reader.

use std::ops::Range;

use crate::error::SdpError;
use crate::frame::layout::{
    self, CHECKSUM_BYTES, FRAME_BYTES_MAX, Framing, HEAD_BYTES, MARKER_BYTES, SPACING, TAGGED_HEADER_BYTES, frame_bytes,
};
use crate::frame::reader::FrameReader;
use crate::frame::writer::FrameWriter;
use crate::limits::FRAME_PAYLOAD_MAX;

/// Bytes behind the payload at most: padding and checksum.
const TRAILER_BYTES_MAX: usize = 3 + CHECKSUM_BYTES;
/// Markers in a frame at most.
const MARKERS_MAX: usize = FRAME_BYTES_MAX / (SPACING - MARKER_BYTES) + 2;
/// Tagged segment, version 1 of DDP.
const TAGGED: u8 = 0x81;
const LAST: u8 = 0x40;
/// Read response, version 1 of RDMAP.
const READ_RESPONSE: u8 = 0x42;

/// Segment of a read response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Key of the reader's memory, from the request.
    pub key: u32,
    /// Place of the first byte in the reader's memory.
    pub offset: u64,
    /// Bytes of the payload.
    pub bytes: usize,
    /// True if the segment completes the response.
    pub is_last: bool,
}

impl Segment {
    /// Payload of a segment at most.
    pub const BYTES_MAX: usize = FRAME_PAYLOAD_MAX;

    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut out = [0; HEAD_BYTES];
        out[..2].copy_from_slice(&((TAGGED_HEADER_BYTES + self.bytes) as u16).to_be_bytes());
        out[2] = TAGGED | if self.is_last { LAST } else { 0 };
        out[3] = READ_RESPONSE;
        out[4..8].copy_from_slice(&self.key.to_be_bytes());
        out[8..].copy_from_slice(&self.offset.to_be_bytes());
        out
    }

    /// Returns `None` if the head is not that of a tagged segment.
    pub(crate) fn decode(head: &[u8; HEAD_BYTES]) -> Option<Result<Segment, SdpError>> {
        let [l0, l1, control, opcode, k0, k1, k2, k3, offset @ ..] = *head;
        if control & TAGGED != TAGGED {
            return None;
        }
        let bytes = usize::from(u16::from_be_bytes([l0, l1]));
        if control & !LAST != TAGGED || opcode != READ_RESPONSE {
            return Some(Err(SdpError::ReadResponse));
        }
        if bytes <= TAGGED_HEADER_BYTES || bytes - TAGGED_HEADER_BYTES > Self::BYTES_MAX {
            return Some(Err(SdpError::FrameLength(bytes)));
        }
        Some(Ok(Segment {
            key: u32::from_be_bytes([k0, k1, k2, k3]),
            offset: u64::from_be_bytes(offset),
            bytes: bytes - TAGGED_HEADER_BYTES,
            is_last: control & LAST != 0,
        }))
    }
}

/// Part of a frame that lies side by side.
enum Piece {
    Marker,
    Head,
    Payload,
    Trailer,
}

/// Parts of the frame of a segment, in the order of the stream.
struct Pieces {
    markers: bool,
    payload: usize,
    position: u64,
    at: usize,
}

impl Iterator for Pieces {
    type Item = (Piece, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let (head, end) = (HEAD_BYTES, HEAD_BYTES + self.payload);
        let all = frame_bytes(end);
        if self.at == all {
            return None;
        }
        let into_block = (self.position % SPACING as u64) as usize;
        if self.markers && into_block == 0 {
            self.position += MARKER_BYTES as u64;
            return Some((Piece::Marker, MARKER_BYTES));
        }
        let run = if self.markers { SPACING - into_block } else { all };
        let section_end = [head, end, all].into_iter().find(|section_end| self.at < *section_end).unwrap_or(all);
        let bytes = run.min(section_end - self.at);
        self.at += bytes;
        self.position += bytes as u64;
        let piece = match section_end {
            _ if section_end == head => Piece::Head,
            _ if section_end == end => Piece::Payload,
            _ => Piece::Trailer,
        };
        Some((piece, bytes))
    }
}

/// Bytes of a frame other than its payload.
struct Frame {
    framing: Framing,
    start: u64,
    payload: usize,
    head: [u8; HEAD_BYTES],
    markers: [u8; MARKERS_MAX * MARKER_BYTES],
    trailer: [u8; TRAILER_BYTES_MAX],
    /// Bytes that the socket has sent or received.
    done: usize,
}

impl Frame {
    fn new(framing: Framing, start: u64, payload: usize) -> Frame {
        let (markers, trailer) = ([0; MARKERS_MAX * MARKER_BYTES], [0; TRAILER_BYTES_MAX]);
        Frame { framing, start, payload, head: [0; HEAD_BYTES], markers, trailer, done: 0 }
    }

    fn pieces(&self) -> Pieces {
        Pieces { markers: self.framing.markers, payload: self.payload, position: self.start, at: 0 }
    }

    /// Returns the bytes of the whole frame.
    fn bytes(&self) -> usize {
        (self.framing.end(self.start, frame_bytes(HEAD_BYTES + self.payload)) - self.start) as usize
    }

    /// Returns the slices of the frame in the order of the stream.
    fn slices<'a>(&'a self, mut payload: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let (mut head, mut markers, mut trailer) = (&self.head[..], &self.markers[..], &self.trailer[..]);
        self.pieces().map(move |(piece, bytes)| {
            let section = match piece {
                Piece::Head => &mut head,
                Piece::Marker => &mut markers,
                Piece::Payload => &mut payload,
                Piece::Trailer => &mut trailer,
            };
            let (slice, rest) = section.split_at(bytes);
            *section = rest;
            slice
        })
    }

    /// Returns the memory of the frame in the order of the stream.
    fn slices_mut<'a>(&'a mut self, mut payload: &'a mut [u8]) -> impl Iterator<Item = &'a mut [u8]> {
        let pieces = self.pieces();
        let (mut head, mut markers, mut trailer) = (&mut self.head[..], &mut self.markers[..], &mut self.trailer[..]);
        pieces.map(move |(piece, bytes)| {
            let section = match piece {
                Piece::Head => &mut head,
                Piece::Marker => &mut markers,
                Piece::Payload => &mut payload,
                Piece::Trailer => &mut trailer,
            };
            let (slice, rest) = std::mem::take(section).split_at_mut(bytes);
            *section = rest;
            slice
        })
    }

    /// Returns the checksum that the frame should have, with its payload. `None` if frames have none.
    fn checksum(&self, payload: &[u8]) -> Option<[u8; CHECKSUM_BYTES]> {
        let checksum = self.framing.checksum?;
        let mut rest = self.bytes() - CHECKSUM_BYTES;
        let mut sum = 0;
        for slice in self.slices(payload) {
            let covered = &slice[..slice.len().min(rest)];
            sum = checksum(sum, covered);
            rest -= covered.len();
        }
        Some(sum.to_le_bytes())
    }

    /// Returns the place of the checksum in the trailer.
    fn checksum_field(&self) -> Range<usize> {
        let content = HEAD_BYTES + self.payload;
        let padding = content.next_multiple_of(4) - content;
        padding..padding + CHECKSUM_BYTES
    }

    /// Returns each marker's position with its place among the markers.
    fn marker_positions(&self) -> impl Iterator<Item = (usize, u64)> + use<> {
        let end = self.start + self.bytes() as u64;
        self.framing.markers_between(self.start, end).enumerate().map(|(number, at)| (number * MARKER_BYTES, at))
    }
}

/// Segment that leaves from memory which the caller has borrowed.
pub struct OutgoingSegment(Box<Frame>);

impl OutgoingSegment {
    /// Makes the frame of a segment behind everything in `writer`, which skips it. `None` if something waits there.
    ///
    /// # Panics
    /// The payload has another length, or more than [`Segment::BYTES_MAX`] bytes.
    #[must_use]
    pub fn new(writer: &mut FrameWriter, segment: Segment, payload: &[u8]) -> Option<OutgoingSegment> {
        assert!((1..=Segment::BYTES_MAX).contains(&payload.len()) && payload.len() == segment.bytes);
        if !writer.is_empty() {
            return None;
        }
        let mut frame = Frame::new(writer.framing(), writer.position(), segment.bytes);
        frame.head = segment.encode();
        for (place, position) in frame.marker_positions() {
            frame.markers[place..place + MARKER_BYTES].copy_from_slice(&layout::marker(frame.start, position));
        }
        let (sum, field) = (frame.checksum(payload), frame.checksum_field());
        frame.trailer[field].copy_from_slice(&sum.unwrap_or_default());
        writer.skip(frame.bytes());
        Some(OutgoingSegment(Box::new(frame)))
    }

    /// Returns the slices that the socket has not taken.
    pub fn unsent<'a>(&'a self, payload: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut done = self.0.done;
        self.0.slices(payload).filter_map(move |slice| {
            let taken = done.min(slice.len());
            done -= taken;
            Some(&slice[taken..]).filter(|slice| !slice.is_empty())
        })
    }

    /// Removes bytes that the socket took. Returns true once it has the whole frame.
    ///
    /// # Panics
    /// The socket took more than it was given.
    pub fn sent(&mut self, bytes: usize) -> bool {
        self.0.done += bytes;
        assert!(self.0.done <= self.0.bytes(), "a socket cannot take more than it was given");
        self.0.done == self.0.bytes()
    }
}

/// Segment that arrives in memory which the caller has borrowed.
pub struct IncomingSegment {
    frame: Box<Frame>,
    segment: Segment,
}

impl IncomingSegment {
    /// Begins to receive the segment whose head is the last thing in `reader`. `None` if there is none.
    ///
    /// # Errors
    /// The head is malformed, or bytes behind it are in the ring already.
    pub fn new(reader: &FrameReader) -> Result<Option<IncomingSegment>, SdpError> {
        let Some(head) = reader.head_of_next() else { return Ok(None) };
        let Some(segment) = Segment::decode(&head).transpose()? else { return Ok(None) };
        let (start, received) = reader.unchecked();
        let mut frame = Frame::new(reader.framing(), start, segment.bytes);
        if received != (frame.framing.within(start, HEAD_BYTES - 1) + 1 - start) as usize {
            return Err(SdpError::ReadResponse);
        }
        (frame.head, frame.done) = (head, received);
        for (place, position) in frame.marker_positions().take_while(|(_, at)| *at < start + received as u64) {
            reader.copy_raw(position, &mut frame.markers[place..place + MARKER_BYTES]);
        }
        Ok(Some(IncomingSegment { frame: Box::new(frame), segment }))
    }

    /// Returns the head of the segment.
    #[must_use]
    pub fn segment(&self) -> Segment {
        self.segment
    }

    /// Returns the memory that the socket has not filled. `payload` is that of the segment.
    ///
    /// # Panics
    /// The payload has another length.
    pub fn unfilled<'a>(&'a mut self, payload: &'a mut [u8]) -> impl Iterator<Item = &'a mut [u8]> {
        assert_eq!(payload.len(), self.segment.bytes);
        let mut done = self.frame.done;
        self.frame.slices_mut(payload).filter_map(move |slice| {
            let taken = done.min(slice.len());
            done -= taken;
            Some(&mut slice[taken..]).filter(|slice| !slice.is_empty())
        })
    }

    /// Adds bytes that the socket filled. Returns true once the frame is complete.
    ///
    /// # Panics
    /// The socket filled more than it was given.
    pub fn filled(&mut self, bytes: usize) -> bool {
        self.frame.done += bytes;
        assert!(self.frame.done <= self.frame.bytes(), "a socket cannot write more than it was given");
        self.frame.done == self.frame.bytes()
    }

    /// Checks the complete frame. `reader` continues behind it.
    ///
    /// # Errors
    /// A marker or the checksum is wrong.
    ///
    /// # Panics
    /// The frame is not complete.
    pub fn check(&self, reader: &mut FrameReader, payload: &[u8]) -> Result<(), SdpError> {
        let frame = &*self.frame;
        assert_eq!(frame.done, frame.bytes());
        for (place, position) in frame.marker_positions() {
            let wanted = layout::marker(frame.start, position);
            let got = &frame.markers[place..place + MARKER_BYTES];
            // The last two bits are reserved.
            if got[2] != wanted[2] || got[3] & !3 != wanted[3] {
                return Err(SdpError::Marker(position));
            }
        }
        if frame.checksum(payload).is_some_and(|sum| sum != frame.trailer[frame.checksum_field()]) {
            return Err(SdpError::Checksum(frame.start));
        }
        reader.skip(frame.bytes());
        Ok(())
    }
}
