//! A second reading of the protocol: an observer that judges both directions by the written rules alone.
//!
//! It shares no code with the engine: it decodes bytes by their offsets and keeps its own books.
#![allow(dead_code, reason = "each test program uses a part")]

/// Message ids by their numbers.
pub(crate) mod mid {
    pub(crate) const DIS_CONN: u8 = 0x02;
    pub(crate) const ABORT_CONN: u8 = 0x03;
    pub(crate) const SEND_SM: u8 = 0x04;
    pub(crate) const RDMA_RD_COMPL: u8 = 0x06;
    pub(crate) const SRC_AVAIL_CANCEL: u8 = 0x08;
    pub(crate) const CH_RCV_BUF: u8 = 0x0b;
    pub(crate) const CH_RCV_BUF_ACK: u8 = 0x0c;
    pub(crate) const SINK_AVAIL: u8 = 0xfd;
    pub(crate) const SRC_AVAIL: u8 = 0xfe;
    pub(crate) const DATA: u8 = 0xff;
}

/// Books of one side.
#[derive(Clone, Default)]
struct Side {
    next_mseq: u32,
    last_delivered: u32,
    /// Acknowledgement and buffers of the last message delivered to this side.
    peer_ack: u32,
    peer_bufs: u32,
    /// Payload that the peer's buffers take.
    peer_payload: u32,
    has_closed: bool,
    has_reset: bool,
    /// Advertised bytes that the peer has not answered for, as this side knows it.
    advertised: Option<u32>,
    /// Advertised bytes of the peer, as this side knows it.
    offered: Option<u32>,
    pub(crate) payload_sent: u64,
    pub(crate) messages: u64,
    pub(crate) kinds: std::collections::BTreeMap<u8, u64>,
}

/// Observer of a connection.
#[derive(Clone)]
pub(crate) struct Reading {
    sides: [Side; 2],
    has_credits: bool,
    bufs_max: u32,
}

fn word(message: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(message[at..at + 4].try_into().expect("four bytes"))
}

impl Reading {
    /// Starts behind the hellos: `bufs` buffers of `bytes` bytes on both sides.
    pub(crate) fn new(bufs: u32, bytes: u32, has_credits: bool) -> Reading {
        let side = Side { next_mseq: 1, peer_bufs: bufs, peer_payload: bytes - 16, ..Side::default() };
        Reading { sides: [side.clone(), side], has_credits, bufs_max: bufs }
    }

    pub(crate) fn count(&self, side: usize, mid: u8) -> u64 {
        self.sides[side].kinds.get(&mid).copied().unwrap_or(0)
    }

    pub(crate) fn messages(&self, side: usize) -> u64 {
        self.sides[side].messages
    }

    /// Credits of a side by the formula: mseqack − next mseq + 1 + bufs.
    pub(crate) fn credits(&self, side: usize) -> i64 {
        let side = &self.sides[side];
        i64::from(side.peer_ack) - i64::from(side.next_mseq) + 1 + i64::from(side.peer_bufs)
    }

    /// Judges a message that `side` sends.
    pub(crate) fn sent(&mut self, side: usize, message: &[u8]) -> Result<(), String> {
        let credits = self.credits(side);
        let books = &mut self.sides[side];
        let (kind, flags, bufs) = (message[0], message[1], u32::from(message[2]) << 8 | u32::from(message[3]));
        let fail = |why: &str| Err(format!("side {side} sends {kind:#04x}: {why}"));
        if word(message, 4) as usize != message.len() {
            return fail("len is not the length");
        }
        if word(message, 8) != books.next_mseq {
            return fail("mseq is not the next one");
        }
        if word(message, 12) != books.last_delivered && self.has_credits {
            return fail("mseqack is not the last message received");
        }
        let known = if self.has_credits { 0 } else { 0x08 };
        if flags & !known != 0 {
            return fail("unknown flags");
        }
        let body = message.len() - 16;
        let payload = match kind {
            mid::DATA => body,
            mid::SRC_AVAIL => body - 16,
            _ => 0,
        };
        if self.has_credits {
            if bufs > self.bufs_max {
                return fail("more buffers than there are");
            }
            let is_update = kind == mid::DATA && payload == 0;
            let least = if is_update {
                1
            } else if kind == mid::DATA || kind == mid::SRC_AVAIL {
                3
            } else {
                2
            };
            if credits < least {
                return Err(format!("side {side} sends {kind:#04x} with {credits} credits"));
            }
            if body as u32 > books.peer_payload {
                return fail("more than a receive buffer of the peer");
            }
        }
        if books.has_closed && (payload > 0 || matches!(kind, mid::DIS_CONN | mid::SRC_AVAIL)) {
            return fail("payload behind a half close");
        }
        if books.has_reset {
            return fail("a message behind a reset");
        }
        if books.advertised.is_some() && (payload > 0 || matches!(kind, mid::SRC_AVAIL | mid::DIS_CONN)) {
            return fail("payload behind an unanswered advertisement");
        }
        match kind {
            mid::DATA | mid::SINK_AVAIL => {}
            mid::DIS_CONN => books.has_closed = true,
            mid::ABORT_CONN => books.has_reset = true,
            mid::SRC_AVAIL => {
                let len = word(message, 16);
                if payload as u32 > len {
                    return fail("more payload than it advertises");
                }
                books.advertised = (payload as u32 != len).then_some(len - payload as u32);
            }
            mid::RDMA_RD_COMPL => match books.offered {
                Some(left) if word(message, 16) <= left && word(message, 16) > 0 => {
                    books.offered = (left > word(message, 16)).then_some(left - word(message, 16));
                }
                _ => return fail("completes more than was offered"),
            },
            mid::SEND_SM => {
                if books.offered.take().is_none() {
                    return fail("refuses what was not offered");
                }
            }
            mid::SRC_AVAIL_CANCEL | mid::CH_RCV_BUF | mid::CH_RCV_BUF_ACK => {}
            _ => return fail("a message that is never sent"),
        }
        books.next_mseq += 1;
        books.payload_sent += payload as u64;
        books.messages += 1;
        *books.kinds.entry(kind).or_default() += 1;
        Ok(())
    }

    /// Notes a message that arrives at `side`.
    pub(crate) fn delivered(&mut self, side: usize, message: &[u8]) {
        let books = &mut self.sides[side];
        books.last_delivered = word(message, 8);
        books.peer_ack = word(message, 12);
        books.peer_bufs = u32::from(message[2]) << 8 | u32::from(message[3]);
        let body = message.len() - 16;
        match message[0] {
            mid::SRC_AVAIL => {
                let left = word(message, 16) - (body as u32 - 16);
                books.offered = (left > 0).then_some(left);
            }
            mid::SEND_SM => books.advertised = None,
            mid::RDMA_RD_COMPL => {
                let left = books.advertised.map(|left| left - word(message, 16));
                books.advertised = left.filter(|left| *left > 0);
            }
            mid::CH_RCV_BUF_ACK => books.peer_payload = books.peer_payload.max(word(message, 16)),
            _ => {}
        }
    }
}

/// Cuts a stream of MPA frames into messages, byte for byte.
#[derive(Default)]
pub(crate) struct PlainDecoder {
    markers: bool,
    crc: bool,
    position: u64,
    frame: Vec<u8>,
    /// The bytes of `frame` with its markers.
    raw: Vec<u8>,
    marker: Vec<u8>,
    number: u32,
}

impl PlainDecoder {
    pub(crate) fn new(markers: bool, crc: bool) -> PlainDecoder {
        PlainDecoder { markers, crc, ..PlainDecoder::default() }
    }

    /// Takes bytes; returns the messages that are complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        for byte in bytes {
            let is_marker = self.markers && self.position % 512 < 4;
            self.position += 1;
            self.raw.push(*byte);
            if is_marker {
                self.marker.push(*byte);
                if self.marker.len() == 4 {
                    let distance = (self.raw.len() - 4) as u16;
                    assert_eq!(self.marker, [0, 0, (distance >> 8) as u8, distance as u8], "a marker points back");
                    self.marker.clear();
                }
                continue;
            }
            self.frame.push(*byte);
            messages.extend(self.complete());
        }
        messages
    }

    fn complete(&mut self) -> Option<Vec<u8>> {
        let [high, low, ..] = self.frame[..] else { return None };
        let ulpdu = usize::from(high) << 8 | usize::from(low);
        let padding = (4 - (2 + ulpdu) % 4) % 4;
        if self.frame.len() < 2 + ulpdu + padding + 4 {
            return None;
        }
        let (covered, sum) = self.raw.split_at(self.raw.len() - 4);
        let expected = if self.crc { crc32c::crc32c(covered) } else { 0 };
        assert_eq!(sum, expected.to_le_bytes(), "the checksum covers frame and markers");
        self.number += 1;
        let head = &self.frame[2..20];
        assert_eq!((head[0], head[1]), (0x41, 0x43), "the last segment of a send");
        assert_eq!(head[10..14], self.number.to_be_bytes(), "messages are numbered from one");
        assert!(head[2..10].iter().chain(&head[14..18]).all(|byte| *byte == 0), "queue 0, offset 0");
        let message = self.frame[20..2 + ulpdu].to_vec();
        self.frame.clear();
        self.raw.clear();
        Some(message)
    }
}
