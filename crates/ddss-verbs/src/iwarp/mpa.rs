//! MPA (RFC 5044, 6581): start frames, their negotiation, and the frames of the stream.
//!
//! ```text
//! start:  key (16) | M C R S 0 0 0 0 | revision (1) | length (2) | private data (length)
//!         revision 2, S set: private data starts with
//!         A B ird(14) | C D ord(14)          A peer to peer, ready by B send, C write, D read
//! frame:  length (2) | ULPDU (length) | 0..3 padding | CRC32c (4, least significant byte first)
//! sealed: length (2) | ULPDU (length), encrypted | tag (16), over the length too
//! ```
//!
//! With markers, each 512 bytes of the stream, counted from the first frame, are preceded by `0 (2) | distance back to
//! the start of the frame (2)`.

use crate::iwarp::config::{IwarpConfig, Revision};
use crate::sealing::TAG_BYTES;
use crate::sys::crc;
use crate::terminate_code::TerminateCode;

/// Bytes of a start frame without its private data.
pub(crate) const START_BYTES: usize = 20;
/// Maximum private data of a start frame.
pub(crate) const PRIVATE_BYTES_MAX: usize = 512;
/// Bytes between markers.
pub(crate) const MARKER_SPACING: u64 = 512;
/// Bytes of a marker.
pub(crate) const MARKER_BYTES: usize = 4;
/// Bytes of the longest frame, without markers.
pub(crate) const FRAME_BYTES_MAX: usize = frame_bytes(u16::MAX as usize);

const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";
const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;

const PEER_TO_PEER: u16 = 0x8000;
const READY_BY_SEND: u16 = 0x4000;
const READY_BY_WRITE: u16 = 0x8000;
const READY_BY_READ: u16 = 0x4000;
const LIMIT_MASK: u16 = 0x3fff;

/// Returns the length of a frame with a ULPDU of `ulpdu` bytes, without markers.
pub(crate) const fn frame_bytes(ulpdu: usize) -> usize {
    (2 + ulpdu).next_multiple_of(4) + 4
}

/// Returns the length of a sealed frame with a ULPDU of `ulpdu` bytes. It has no markers, no padding and no CRC.
pub(crate) const fn sealed_frame_bytes(ulpdu: usize) -> usize {
    2 + ulpdu + TAG_BYTES
}

/// Direction of a start frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartKind {
    Request,
    Reply,
}

/// Ready-to-receive message of the connecting side, when both sides may send first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadyMessage {
    Send,
    Write,
    Read,
}

/// Fields that revision 2 adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Enhanced {
    pub(crate) ird: u16,
    pub(crate) ord: u16,
    pub(crate) peer_to_peer: bool,
    pub(crate) by_send: bool,
    pub(crate) by_write: bool,
    pub(crate) by_read: bool,
}

/// A parsed start frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StartFrame<'a> {
    pub(crate) markers: bool,
    pub(crate) crc: bool,
    pub(crate) reject: bool,
    pub(crate) revision: u8,
    pub(crate) enhanced: Option<Enhanced>,
    pub(crate) private: &'a [u8],
}

/// Error of a malformed start frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartError {
    Key,
    Revision,
    TooLong,
    Flags,
    TooShort,
}

impl<'a> StartFrame<'a> {
    /// Parses a start frame at the front of a stream; returns the frame and its length. `None` if more bytes are
    /// needed.
    pub(crate) fn parse(bytes: &'a [u8], side: StartKind) -> Result<Option<(StartFrame<'a>, usize)>, StartError> {
        let key = match side {
            StartKind::Request => REQUEST_KEY,
            StartKind::Reply => REPLY_KEY,
        };
        // A foreign protocol is detected at the first wrong byte, not after twenty.
        let available = bytes.len().min(key.len());
        if bytes[..available] != key[..available] {
            return Err(StartError::Key);
        }
        let Some((head, rest)) = bytes.split_first_chunk::<START_BYTES>() else { return Ok(None) };
        let (flags, revision) = (head[16], head[17]);
        let private_bytes = usize::from(u16::from_be_bytes([head[18], head[19]]));
        if private_bytes > PRIVATE_BYTES_MAX {
            return Err(StartError::TooLong);
        }
        if side == StartKind::Request && flags & REJECT != 0 {
            return Err(StartError::Flags);
        }
        if revision == 0 || revision > 2 {
            return Err(StartError::Revision);
        }
        let Some(mut private) = rest.get(..private_bytes) else { return Ok(None) };
        let mut enhanced = None;
        if revision == 2 && flags & ENHANCED != 0 {
            let Some((head, rest)) = private.split_first_chunk::<4>() else { return Err(StartError::TooShort) };
            enhanced = Some(Enhanced::parse(*head));
            private = rest;
        }
        let start = StartFrame {
            markers: flags & MARKERS != 0,
            crc: flags & CRC != 0,
            reject: flags & REJECT != 0,
            revision,
            enhanced,
            private,
        };
        Ok(Some((start, START_BYTES + private_bytes)))
    }

    /// Encodes the frame.
    pub(crate) fn encode(&self, side: StartKind, out: &mut Vec<u8>) {
        out.extend_from_slice(if side == StartKind::Request { REQUEST_KEY } else { REPLY_KEY });
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.push(
            flag(self.markers, MARKERS)
                | flag(self.crc, CRC)
                | flag(self.reject, REJECT)
                | flag(self.enhanced.is_some(), ENHANCED),
        );
        out.push(self.revision);
        let bytes = self.private.len() + self.enhanced.map_or(0, |_| 4);
        assert!(bytes <= PRIVATE_BYTES_MAX, "the caller checks the length of a hello");
        out.extend_from_slice(&(bytes as u16).to_be_bytes());
        if let Some(enhanced) = self.enhanced {
            out.extend_from_slice(&enhanced.encode());
        }
        out.extend_from_slice(self.private);
    }
}

impl Enhanced {
    fn parse(bytes: [u8; 4]) -> Self {
        let ird = u16::from_be_bytes([bytes[0], bytes[1]]);
        let ord = u16::from_be_bytes([bytes[2], bytes[3]]);
        Self {
            ird: ird & LIMIT_MASK,
            ord: ord & LIMIT_MASK,
            peer_to_peer: ird & PEER_TO_PEER != 0,
            by_send: ird & READY_BY_SEND != 0,
            by_write: ord & READY_BY_WRITE != 0,
            by_read: ord & READY_BY_READ != 0,
        }
    }

    fn encode(self) -> [u8; 4] {
        let flag = |set: bool, flag: u16| if set { flag } else { 0 };
        let ird = self.ird & LIMIT_MASK | flag(self.peer_to_peer, PEER_TO_PEER) | flag(self.by_send, READY_BY_SEND);
        let ord = self.ord & LIMIT_MASK | flag(self.by_write, READY_BY_WRITE) | flag(self.by_read, READY_BY_READ);
        let ([a, b], [c, d]) = (ird.to_be_bytes(), ord.to_be_bytes());
        [a, b, c, d]
    }

    fn ready(self) -> Option<ReadyMessage> {
        if self.by_write {
            Some(ReadyMessage::Write)
        } else if self.by_read {
            Some(ReadyMessage::Read)
        } else if self.by_send {
            Some(ReadyMessage::Send)
        } else {
            None
        }
    }
}

/// Parameters that both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NegotiatedTerms {
    pub(crate) crc: bool,
    /// The peer requested markers in the frames that it receives.
    pub(crate) markers_out: bool,
    /// This side requested markers.
    pub(crate) markers_in: bool,
    /// Reads and atomics of the peer that may be in flight.
    pub(crate) ird: u16,
    /// Local reads and atomics that may be in flight.
    pub(crate) ord: u16,
    /// Ready-to-receive message that the connecting side sends first.
    pub(crate) ready: Option<ReadyMessage>,
}

impl NegotiatedTerms {
    /// Builds the request of the connecting side.
    pub(crate) fn request<'a>(config: &IwarpConfig, hello: &'a [u8]) -> StartFrame<'a> {
        let enhanced = (config.revision == Revision::Two).then_some(Enhanced {
            ird: config.reads_inbound.min(LIMIT_MASK - 1),
            ord: config.reads_outbound.min(LIMIT_MASK - 1),
            peer_to_peer: true,
            by_send: false,
            by_write: true,
            by_read: true,
        });
        StartFrame {
            markers: config.markers,
            crc: config.crc,
            reject: false,
            revision: if config.revision == Revision::Two { 2 } else { 1 },
            enhanced,
            private: hello,
        }
    }

    /// Builds the reply of the accepting side to `request`, and the parameters that then apply.
    pub(crate) fn negotiate<'a>(
        config: &IwarpConfig,
        request: &StartFrame<'_>,
        hello: &'a [u8],
    ) -> Result<(StartFrame<'a>, NegotiatedTerms), TerminateCode> {
        let mut terms = NegotiatedTerms {
            crc: config.crc || request.crc,
            markers_out: request.markers,
            markers_in: config.markers,
            ird: config.reads_inbound,
            ord: config.reads_outbound,
            ready: None,
        };
        let enhanced = match request.enhanced {
            None => None,
            Some(theirs) => {
                if theirs.peer_to_peer {
                    terms.ready = Some(theirs.ready().ok_or(TerminateCode::MPA_RTR)?);
                }
                terms.ord = terms.ord.min(theirs.ird);
                Some(Enhanced {
                    ird: terms.ird.min(LIMIT_MASK - 1),
                    ord: terms.ord.min(LIMIT_MASK - 1),
                    peer_to_peer: theirs.peer_to_peer,
                    by_send: terms.ready == Some(ReadyMessage::Send),
                    by_write: terms.ready == Some(ReadyMessage::Write),
                    by_read: terms.ready == Some(ReadyMessage::Read),
                })
            }
        };
        let reply = StartFrame {
            markers: config.markers,
            crc: terms.crc,
            reject: false,
            revision: request.revision,
            enhanced,
            private: hello,
        };
        Ok((reply, terms))
    }

    /// Returns the parameters of the connecting side after the reply.
    pub(crate) fn from_reply(config: &IwarpConfig, reply: &StartFrame<'_>) -> Result<NegotiatedTerms, TerminateCode> {
        let mut terms = NegotiatedTerms {
            crc: config.crc || reply.crc,
            markers_out: reply.markers,
            markers_in: config.markers,
            ird: config.reads_inbound,
            ord: config.reads_outbound,
            ready: None,
        };
        if let Some(theirs) = reply.enhanced {
            if theirs.peer_to_peer {
                terms.ready = Some(theirs.ready().ok_or(TerminateCode::MPA_RTR)?);
            }
            if terms.ready == Some(ReadyMessage::Send) {
                // Never offered, because it would use one of the peer's receive buffers.
                return Err(TerminateCode::MPA_RTR);
            }
            terms.ord = terms.ord.min(theirs.ird);
            if theirs.ord != LIMIT_MASK && theirs.ord > terms.ird {
                return Err(TerminateCode::MPA_IRD);
            }
        }
        Ok(terms)
    }

    /// Builds the reply that rejects a request.
    pub(crate) fn reject<'a>(revision: u8, reason: &'a [u8]) -> StartFrame<'a> {
        StartFrame { markers: false, crc: false, reject: true, revision, enhanced: None, private: reason }
    }
}

/// A complete frame at the front of a stream, its checksum not yet verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    bytes: &'a [u8],
    ulpdu_bytes: usize,
}

impl<'a> Frame<'a> {
    /// Finds a frame without markers at the front. `None` if more bytes are needed.
    #[inline]
    pub(crate) fn take(bytes: &'a [u8]) -> Option<Self> {
        let head = bytes.first_chunk::<2>()?;
        let ulpdu_bytes = usize::from(u16::from_be_bytes(*head));
        let bytes = bytes.get(..frame_bytes(ulpdu_bytes))?;
        Some(Self { bytes, ulpdu_bytes })
    }

    /// Returns the length of the frame in the stream.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(crate) fn ulpdu(&self) -> &'a [u8] {
        &self.bytes[2..2 + self.ulpdu_bytes]
    }

    /// Returns true if the checksum is correct.
    #[inline]
    pub(crate) fn has_valid_crc(&self) -> bool {
        let (covered, sum) = self.bytes.split_at(self.bytes.len() - 4);
        crc::checksum(covered).to_le_bytes() == *sum
    }

    /// Returns true if the checksum is correct, with the payload summed by the caller. The payload starts at `at` in
    /// the ULPDU, and `sum_payload` continues a checksum over it.
    pub(crate) fn has_valid_crc_with(&self, at: usize, sum_payload: impl FnOnce(u32, &[u8]) -> u32) -> bool {
        let (covered, sum) = self.bytes.split_at(self.bytes.len() - 4);
        let (head, rest) = covered.split_at(2 + at);
        let (payload, padding) = rest.split_at(self.ulpdu_bytes - at);
        let value = sum_payload(crc::checksum(head), payload);
        crc::append(value, padding).to_le_bytes() == *sum
    }
}

/// A complete sealed frame at the front of a stream, not yet opened.
pub(crate) struct SealedFrame<'a> {
    /// Length of the ULPDU, as it travels.
    pub(crate) length: &'a [u8],
    pub(crate) ulpdu: &'a mut [u8],
    pub(crate) tag: &'a [u8; TAG_BYTES],
}

impl<'a> SealedFrame<'a> {
    /// Finds a sealed frame at the front. `None` if more bytes are needed.
    pub(crate) fn take(bytes: &'a mut [u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk_mut::<2>()?;
        let (ulpdu, rest) = rest.split_at_mut_checked(usize::from(u16::from_be_bytes(*length)))?;
        Some(Self { length, ulpdu, tag: rest.first_chunk()? })
    }
}

/// Takes a complete frame with markers from the front and stores its ULPDU in `ulpdu`. `position` is the stream
/// position of `bytes`. Returns the bytes that the frame takes, or `None` if more are needed.
pub(crate) fn take_marked_frame(
    bytes: &[u8],
    position: u64,
    crc: bool,
    ulpdu: &mut Vec<u8>,
) -> Result<Option<usize>, TerminateCode> {
    ulpdu.clear();
    let mut at = 0;
    let mut wanted = 2;
    let mut is_length_known = false;
    while ulpdu.len() < wanted {
        if (position + at as u64).is_multiple_of(MARKER_SPACING) {
            let Some(marker) = bytes.get(at..at + MARKER_BYTES) else { return Ok(None) };
            // The last two bits are reserved and count as zero.
            if usize::from(u16::from_be_bytes([marker[2], marker[3] & !3])) != at & 0xffff {
                return Err(TerminateCode::MPA_FRAME);
            }
            at += MARKER_BYTES;
        }
        let to_marker = (MARKER_SPACING - (position + at as u64) % MARKER_SPACING) as usize;
        let chunk = (wanted - ulpdu.len()).min(to_marker);
        let Some(piece) = bytes.get(at..at + chunk) else { return Ok(None) };
        ulpdu.extend_from_slice(piece);
        at += chunk;
        if !is_length_known && ulpdu.len() == 2 {
            wanted = frame_bytes(usize::from(u16::from_be_bytes([ulpdu[0], ulpdu[1]])));
            is_length_known = true;
        }
    }
    let covered = at - 4;
    if crc && crc::checksum(&bytes[..covered]).to_le_bytes() != bytes[covered..at] {
        return Err(TerminateCode::MPA_CRC);
    }
    let length = usize::from(u16::from_be_bytes([ulpdu[0], ulpdu[1]]));
    ulpdu.truncate(2 + length);
    ulpdu.drain(..2);
    Ok(Some(at))
}

/// Returns the bytes that a frame with a ULPDU of `ulpdu` bytes takes at stream position `position`, markers included.
pub(crate) const fn marked_frame_bytes(ulpdu: usize, position: u64) -> usize {
    let bytes = frame_bytes(ulpdu);
    let to_first = ((MARKER_SPACING - position % MARKER_SPACING) % MARKER_SPACING) as usize;
    if bytes <= to_first {
        return bytes;
    }
    let between = MARKER_SPACING as usize - MARKER_BYTES;
    bytes + MARKER_BYTES * (1 + (bytes - to_first - 1) / between)
}

/// A frame with markers that is built in place. Bytes are copied once, around the gaps for markers.
pub(crate) struct MarkedFrame<'a> {
    out: &'a mut [u8],
    /// Stream position of the frame. Every frame is a multiple of four bytes, so no marker splits its CRC.
    position: u64,
    at: usize,
}

impl<'a> MarkedFrame<'a> {
    /// Begins a frame that fills `out`, of the length that [`marked_frame_bytes`] returned.
    pub(crate) fn new(out: &'a mut [u8], position: u64) -> Self {
        debug_assert!(position.is_multiple_of(4), "a marker would split a word of the frame");
        Self { out, position, at: 0 }
    }

    /// Copies bytes.
    pub(crate) fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = self.run().min(bytes.len());
            let (piece, rest) = bytes.split_at(taken);
            self.out[self.at..self.at + taken].copy_from_slice(piece);
            self.at += taken;
            bytes = rest;
        }
    }

    /// Copies `bytes` bytes from `offset` of a memory that other processes change: `read` copies from an offset to a
    /// slice. An aligned word of eight bytes is read whole, also where a marker splits it in the frame.
    pub(crate) fn put_words(&mut self, offset: usize, bytes: usize, mut read: impl FnMut(usize, &mut [u8])) {
        let end = offset + bytes;
        let mut from = offset;
        while from < end {
            let run = self.run();
            if run >= end - from {
                read(from, &mut self.out[self.at..self.at + end - from]);
                self.at += end - from;
                return;
            }
            let whole = run.saturating_sub((from + run) % 8);
            if whole > 0 {
                read(from, &mut self.out[self.at..self.at + whole]);
                self.at += whole;
                from += whole;
            }
            if whole < run {
                let mut word = [0; 8];
                let word = &mut word[..(8 - from % 8).min(end - from)];
                read(from, word);
                self.put(word);
                from += word.len();
            }
        }
    }

    /// Writes the CRC, which covers the markers, behind all other bytes.
    pub(crate) fn finish(mut self, crc: bool) {
        self.run();
        let (covered, field) = self.out.split_at_mut(self.at);
        let sum = if crc { crc::checksum(covered) } else { 0 };
        field.copy_from_slice(&sum.to_le_bytes());
    }

    /// Writes the marker that is due, if any; returns the bytes before the next one.
    fn run(&mut self) -> usize {
        if (self.position + self.at as u64).is_multiple_of(MARKER_SPACING) {
            let [high, low] = (self.at as u16).to_be_bytes();
            self.out[self.at..self.at + MARKER_BYTES].copy_from_slice(&[0, 0, high, low]);
            self.at += MARKER_BYTES;
        }
        (MARKER_SPACING - (self.position + self.at as u64) % MARKER_SPACING) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a frame first without markers, then copies it word by word with a marker before each 512 bytes.
    fn plain_encoder(ulpdu: &[u8], position: usize, crc: bool) -> Vec<u8> {
        let mut frame = (ulpdu.len() as u16).to_be_bytes().to_vec();
        frame.extend(ulpdu);
        frame.resize(frame.len().next_multiple_of(4), 0);
        let mut out: Vec<u8> = Vec::new();
        for word in frame.chunks(4).map(Some).chain([None]) {
            if (position + out.len()).is_multiple_of(512) {
                let distance = (out.len() as u16).to_be_bytes();
                out.extend([0, 0, distance[0], distance[1]]);
            }
            out.extend(word.unwrap_or_default());
        }
        let sum = if crc { crc32c::crc32c(&out) } else { 0 };
        out.extend(sum.to_le_bytes());
        out
    }

    #[test]
    fn marked_frame_equals_the_plain_encoder_at_every_start_and_length() {
        // If this failed, a peer that follows the markers would find payload where a marker should be.
        let source: Vec<u8> = (0..66_000_u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 21) as u8).collect();
        for position in (0..512).step_by(4) {
            for bytes in (0..1100).step_by(if position % 64 == 0 { 1 } else { 13 }).chain([30_000, 65_535]) {
                let offset = position / 4 % 9;
                let ulpdu = &source[offset..offset + bytes];
                let header = bytes.min(14);
                let expected = plain_encoder(ulpdu, position, true);
                let mut out = vec![0xee; marked_frame_bytes(bytes, position as u64)];
                let mut frame = MarkedFrame::new(&mut out, position as u64);
                frame.put(&(bytes as u16).to_be_bytes());
                frame.put(&ulpdu[..header]);
                frame.put_words(offset + header, bytes - header, |at, to| {
                    to.copy_from_slice(&source[at..at + to.len()]);
                });
                frame.put(&[0; 3][..(4 - (2 + bytes) % 4) % 4]);
                frame.finish(true);
                assert!(out == expected, "{bytes} bytes at {position}");
            }
        }
    }

    #[test]
    fn markers_split_no_word_of_the_source() {
        // If this failed, a reader could see half of an aligned word that another process changes.
        for position in (0..512).step_by(4) {
            for offset in 0..16 {
                for bytes in (0..40).chain([508, 511, 1024, 2000]) {
                    let mut out = vec![0; marked_frame_bytes(bytes, position)];
                    let mut at = offset;
                    let mut frame = MarkedFrame::new(&mut out, position);
                    frame.put(&[0; 2]);
                    frame.put_words(offset, bytes, |from, to| {
                        assert_eq!(from, at, "in order, without a gap");
                        assert!(from == offset || from.is_multiple_of(8));
                        at += to.len();
                        assert!(at == offset + bytes || at.is_multiple_of(8));
                    });
                    assert_eq!(at, offset + bytes);
                }
            }
        }
    }

    #[test]
    fn connecting_side_chooses_the_revision() {
        // If this failed, a node configured for the older revision could not connect to one with the newer revision.
        let config = |revision| IwarpConfig { revision, ..IwarpConfig::default() };
        for (asks, answers) in [(Revision::Two, Revision::One), (Revision::One, Revision::Two)] {
            let request = NegotiatedTerms::request(&config(asks), b"hello");
            let (reply, there) = NegotiatedTerms::negotiate(&config(answers), &request, b"yes").unwrap();
            assert_eq!(reply.revision, request.revision);
            assert_eq!(reply.enhanced.is_some(), asks == Revision::Two, "both sides state read limits or neither does");
            let here = NegotiatedTerms::from_reply(&config(asks), &reply).unwrap();
            assert_eq!((here.ready, here.ord), (there.ready, there.ird));
        }
    }
}
