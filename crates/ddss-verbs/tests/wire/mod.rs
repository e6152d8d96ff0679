//! Independent implementation of the RFCs, written without reading that of the crate: encodes and decodes byte by byte,
//! slowly and plainly. It shares no code with the crate.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

pub(crate) mod accepting;
pub(crate) mod connecting;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ddss_verbs::{Fabric, Iwarp};

use crate::common::{Node, OwnedEvent, WAIT_MAX};

/// CRC-32C bit by bit (RFC 3385, RFC 3720 appendix B.4).
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = 0xffff_ffff_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    crc ^ 0xffff_ffff
}

/// A DDP segment with its RDMAP control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Tagged { last: bool, opcode: u8, stag: u32, offset: u64, payload: Vec<u8> },
    Untagged { last: bool, opcode: u8, word: u32, queue: u32, number: u32, offset: u32, payload: Vec<u8> },
}

impl Segment {
    pub(crate) fn opcode(&self) -> u8 {
        match self {
            Segment::Tagged { opcode, .. } | Segment::Untagged { opcode, .. } => *opcode,
        }
    }

    pub(crate) fn payload(&self) -> &[u8] {
        match self {
            Segment::Tagged { payload, .. } | Segment::Untagged { payload, .. } => payload,
        }
    }

    /// Encodes the ULPDU.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Segment::Tagged { last, opcode, stag, offset, payload } => {
                out.push(0x80 | if *last { 0x40 } else { 0 } | 1);
                out.push(0x40 | opcode);
                out.extend(stag.to_be_bytes());
                out.extend(offset.to_be_bytes());
                out.extend(payload);
            }
            Segment::Untagged { last, opcode, word, queue, number, offset, payload } => {
                out.push(if *last { 0x40 } else { 0 } | 1);
                out.push(0x40 | opcode);
                for field in [word, queue, number, offset] {
                    out.extend(field.to_be_bytes());
                }
                out.extend(payload);
            }
        }
        out
    }

    pub(crate) fn parse(ulpdu: &[u8]) -> Segment {
        let control = ulpdu[0];
        assert_eq!(control & 0x3c, 0, "reserved bits are zero");
        assert_eq!(control & 3, 1, "DDP version 1");
        assert_eq!(ulpdu[1] & 0x30, 0, "reserved bits are zero");
        assert_eq!(ulpdu[1] >> 6, 1, "RDMAP version 1");
        let last = control & 0x40 != 0;
        let opcode = ulpdu[1] & 0xf;
        if control & 0x80 != 0 {
            let payload = ulpdu[14..].to_vec();
            Segment::Tagged { last, opcode, stag: number(&ulpdu[2..6]) as u32, offset: number(&ulpdu[6..14]), payload }
        } else {
            let field = |at: usize| number(&ulpdu[at..at + 4]) as u32;
            Segment::Untagged {
                last,
                opcode,
                word: field(2),
                queue: field(6),
                number: field(10),
                offset: field(14),
                payload: ulpdu[18..].to_vec(),
            }
        }
    }
}

/// Decodes a big-endian number.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Builds a frame without markers.
pub(crate) fn frame(ulpdu: &[u8], crc: bool) -> Vec<u8> {
    let mut out = (ulpdu.len() as u16).to_be_bytes().to_vec();
    out.extend(ulpdu);
    while !out.len().is_multiple_of(4) {
        out.push(0);
    }
    let sum = if crc { crc32c(&out) } else { 0 };
    out.extend(sum.to_le_bytes());
    out
}

/// Builds a frame with markers, byte by byte. `position` is its place in the stream, counted from the first frame. A
/// marker precedes the first byte of each 512: zero, and the distance back to the start of the frame in 16 bits. The
/// length excludes markers, and the checksum covers them.
pub(crate) fn marked(ulpdu: &[u8], position: u64, crc: bool) -> Vec<u8> {
    let mark = |out: &mut Vec<u8>| {
        if (position + out.len() as u64).is_multiple_of(512) {
            let back = out.len() as u16;
            out.extend([0, 0]);
            out.extend(back.to_be_bytes());
        }
    };
    let mut content = (ulpdu.len() as u16).to_be_bytes().to_vec();
    content.extend(ulpdu);
    while !content.len().is_multiple_of(4) {
        content.push(0);
    }
    let mut out = Vec::new();
    for byte in content {
        mark(&mut out);
        out.push(byte);
    }
    mark(&mut out);
    let sum = if crc { crc32c(&out) } else { 0 };
    out.extend(sum.to_le_bytes());
    out
}

/// Builds a start frame.
pub(crate) fn start(request: bool, flags: u8, revision: u8, private: &[u8]) -> Vec<u8> {
    let mut out = if request { b"MPA ID Req Frame" } else { b"MPA ID Rep Frame" }.to_vec();
    out.extend([flags, revision]);
    out.extend((private.len() as u16).to_be_bytes());
    out.extend(private);
    out
}

pub(crate) const MARKERS: u8 = 0x80;
pub(crate) const CRC: u8 = 0x40;
pub(crate) const REJECT: u8 = 0x20;
pub(crate) const ENHANCED: u8 = 0x10;

/// Polls after which no more bytes are expected.
const POLLS_MAX: usize = 1000;

/// Sends bytes in pieces, each of which arrives alone, because the fabric checks a silent connection only now and
/// then.
pub(crate) fn feed(node: &mut Node<Iwarp>, wire: &mut Wire, bytes: &[u8], piece: usize) {
    for piece in bytes.chunks(piece) {
        wire.send(piece);
        for _ in 0..POLLS_MAX {
            node.poll();
            if node.fabric.has_moved_bytes() || node.seen.iter().any(|seen| matches!(seen, OwnedEvent::Closed { .. })) {
                break;
            }
        }
    }
}

/// A plain socket that sends and receives iWARP frames.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    pub(crate) inbox: Vec<u8>,
    /// Bytes since the start frame.
    pub(crate) position: u64,
    pub(crate) crc: bool,
    /// This side requested markers.
    pub(crate) markers: bool,
    /// The fabric requested markers.
    pub(crate) marks: bool,
    /// Bytes of the frames that were built for the fabric.
    pub(crate) sent: u64,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, inbox: Vec::new(), position: 0, crc: true, markers: false, marks: false, sent: 0 }
    }

    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::new(TcpStream::connect(address).unwrap())
    }

    pub(crate) fn accept(listener: &TcpListener) -> Self {
        let start = Instant::now();
        listener.set_nonblocking(true).unwrap();
        loop {
            if let Ok((stream, _)) = listener.accept() {
                return Self::new(stream);
            }
            assert!(start.elapsed() < WAIT_MAX, "no connection arrived");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends bytes. False if the other side is closed.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        let mut left = bytes;
        let start = Instant::now();
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(count) => left = &left[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    assert!(start.elapsed() < WAIT_MAX, "the other side takes nothing");
                }
                Err(_) => return false,
            }
        }
        true
    }

    /// Builds the next frame, as the fabric requires it. It has to be sent as well, because markers count from its
    /// end.
    pub(crate) fn frame(&mut self, ulpdu: &[u8]) -> Vec<u8> {
        let frame = if self.marks { marked(ulpdu, self.sent, self.crc) } else { frame(ulpdu, self.crc) };
        self.sent += frame.len() as u64;
        frame
    }

    pub(crate) fn segment(&mut self, segment: &Segment) -> bool {
        let frame = self.frame(&segment.bytes());
        self.send(&frame)
    }

    /// Receives all available bytes. False if the stream has ended.
    pub(crate) fn receive(&mut self) -> bool {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => self.inbox.extend(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
    }

    /// Takes the next bytes, if all of them are there.
    pub(crate) fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        if self.inbox.len() < count {
            return None;
        }
        Some(self.inbox.drain(..count).collect())
    }

    /// Takes a start frame: flags, revision, private data.
    pub(crate) fn start(&mut self, request: bool) -> Option<(u8, u8, Vec<u8>)> {
        if self.inbox.len() < 20 {
            return None;
        }
        let key = if request { b"MPA ID Req Frame" } else { b"MPA ID Rep Frame" };
        assert_eq!(&self.inbox[..16], key);
        let length = number(&self.inbox[18..20]) as usize;
        let whole = self.take(20 + length)?;
        Some((whole[16], whole[17], whole[20..].to_vec()))
    }

    /// Takes the next frame, with every field checked.
    pub(crate) fn next(&mut self) -> Option<Segment> {
        // Removes markers one by one, by the stream position.
        let mut plain = Vec::new();
        let mut at = 0;
        let mut wanted = 2;
        while plain.len() < wanted {
            if self.markers && (self.position + at as u64).is_multiple_of(512) {
                let marker = self.inbox.get(at..at + 4)?;
                assert_eq!(number(&marker[..2]), 0, "a marker starts with zeros");
                assert_eq!(number(&marker[2..]) as usize, at, "a marker points back to the start of its frame");
                at += 4;
            }
            plain.push(*self.inbox.get(at)?);
            at += 1;
            if plain.len() == 2 {
                let length = number(&plain) as usize;
                wanted = (2 + length).div_ceil(4) * 4 + 4;
            }
        }
        let length = number(&plain[..2]) as usize;
        let sum = &plain[wanted - 4..];
        if self.crc {
            assert_eq!(sum, crc32c(&self.inbox[..at - 4]).to_le_bytes(), "the CRC covers the frame and its markers");
        } else {
            assert_eq!(sum, [0; 4], "an unused CRC is zero");
        }
        assert!(plain[2 + length..wanted - 4].iter().all(|byte| *byte == 0), "padding is zero");
        let segment = Segment::parse(&plain[2..2 + length]);
        self.inbox.drain(..at);
        self.position += at as u64;
        Some(segment)
    }
}
