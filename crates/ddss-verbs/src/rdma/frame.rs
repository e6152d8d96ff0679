//! Frames between two DDSS nodes: one send of the adapter each.
//!
//! ```text
//!  0      1       2         4       8
//! +------+-------+---------+-------+------------------------------------------------------------------+
//! | kind | flags | credits |  key  | message: the bytes; immediate: 8 bytes; credits: nothing         |
//! |  u8  |  u8   |   u16   |  u32  | atomic: ticket u32, operation u32, address u64, first u64, second u64 |
//! |      |       |         |       | answer: ticket u32, fault 4×u8, value u64                        |
//! +------+-------+---------+-------+------------------------------------------------------------------+
//! ```
//!
//! Little-endian. `credits` counts the receive slots that were posted again since the last frame. `key` names the
//! window to invalidate (flag 2), or the target of an atomic. Flag 1 is *solicited*. A *credits* frame costs no credit
//! itself: spare slots cover the few that can be in flight.
//!
//! Flag 4 on *credits*: the sender leaves atomics on its words to its adapter. The connecting side sends *credits*
//! first.
//!
//! The private data of a connection begins with `0xDD`, the version, flags and the length of the hello, because
//! InfiniBand's manager pads it. The upper four bits of the flags are the limit of messages: how often 512 bytes are
//! doubled. A request over InfiniBand has no room for this preamble: there the 56 bytes are the hello, or, with *flow
//! control* set (a bit that is carried and means nothing to the adapter), a shorter hello and its length at the end.

use crate::limits::MESSAGE_BYTES_DEFAULT;
use crate::terminate_code::TerminateCode;

/// Bytes of the header of a frame.
pub(super) const HEADER_BYTES: usize = 8;
/// Bytes of the longest frame without the bytes of a message.
pub(super) const HEAD_BYTES_MAX: usize = HEADER_BYTES + 32;
/// Private data of an InfiniBand request, which is always padded to this length.
pub(super) const REQUEST_BYTES: usize = 56;
/// Bytes of the preamble of a hello.
pub(super) const PREAMBLE_BYTES: usize = 4;

const MAGIC: u8 = 0xdd;
const VERSION: u8 = 1;
const SOLICITED: u8 = 1;
const INVALIDATES: u8 = 2;
const ADAPTER_ATOMICS: u8 = 4;
/// Bits of the flags of a preamble below the limit of messages.
const LIMIT_SHIFT: u8 = 4;

/// Operation of an atomic on a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtomicOp {
    CompareSwap { compare: u64, swap: u64 },
    FetchAdd { add: u64 },
}

/// A frame without its credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Message { bytes: &'a [u8], solicited: bool, invalidate: Option<u32> },
    Immediate { data: [u8; 8], solicited: bool },
    Atomic { ticket: u32, key: u32, address: u64, change: AtomicOp },
    Answer { ticket: u32, result: Result<u64, TerminateCode> },
    Credits { adapter_atomics: bool },
}

impl Frame<'_> {
    /// Returns true if the frame uses one of the peer's receive credits.
    pub(super) fn costs_credit(&self) -> bool {
        !matches!(self, Frame::Credits { .. })
    }

    /// Returns the bytes of a message, which stand behind the rest of the frame.
    pub(super) fn payload(&self) -> &[u8] {
        match self {
            Frame::Message { bytes, .. } => bytes,
            _ => &[],
        }
    }

    /// Encodes the frame without its [payload](Self::payload); returns its length.
    pub(super) fn encode(&self, credits: u16, out: &mut [u8; HEAD_BYTES_MAX]) -> usize {
        let (mut flags, mut key) = (0, 0_u32);
        let body = &mut out[HEADER_BYTES..];
        let (kind, bytes) = match *self {
            Frame::Message { solicited, invalidate, .. } => {
                flags |= if solicited { SOLICITED } else { 0 };
                if let Some(window) = invalidate {
                    (flags, key) = (flags | INVALIDATES, window);
                }
                (1, 0)
            }
            Frame::Immediate { data, solicited } => {
                flags |= if solicited { SOLICITED } else { 0 };
                body[..8].copy_from_slice(&data);
                (2, 8)
            }
            Frame::Atomic { ticket, key: window, address, change } => {
                key = window;
                let (operation, first, second) = match change {
                    AtomicOp::CompareSwap { compare, swap } => (1_u32, compare, swap),
                    AtomicOp::FetchAdd { add } => (2, add, 0),
                };
                body[..4].copy_from_slice(&ticket.to_le_bytes());
                body[4..8].copy_from_slice(&operation.to_le_bytes());
                for (index, word) in [address, first, second].into_iter().enumerate() {
                    body[8 + index * 8..][..8].copy_from_slice(&word.to_le_bytes());
                }
                (3, 32)
            }
            Frame::Answer { ticket, result } => {
                body[..4].copy_from_slice(&ticket.to_le_bytes());
                let (fault, value) = match result {
                    Ok(value) => ([0; 4], value),
                    Err(fault) => ([1, fault.layer, fault.kind, fault.code], 0),
                };
                body[4..8].copy_from_slice(&fault);
                body[8..16].copy_from_slice(&value.to_le_bytes());
                (4, 16)
            }
            Frame::Credits { adapter_atomics } => {
                flags |= if adapter_atomics { ADAPTER_ATOMICS } else { 0 };
                (5, 0)
            }
        };
        out[0] = kind;
        out[1] = flags;
        out[2..4].copy_from_slice(&credits.to_le_bytes());
        out[4..8].copy_from_slice(&key.to_le_bytes());
        HEADER_BYTES + bytes
    }
}

/// Decodes a frame and its credits. `None` if it is malformed, or its message has more than `message_bytes_max` bytes.
pub(super) fn decode(bytes: &[u8], message_bytes_max: usize) -> Option<(Frame<'_>, u16)> {
    let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let [kind, flags, credits @ .., k0, k1, k2, k3] = *header;
    let (credits, key) = (u16::from_le_bytes(credits), u32::from_le_bytes([k0, k1, k2, k3]));
    let solicited = flags & SOLICITED != 0;
    let word = |at: usize| Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?));
    let half = |at: usize| Some(u32::from_le_bytes(body.get(at..at + 4)?.try_into().ok()?));
    let frame = match (kind, body.len()) {
        (1, length) if length <= message_bytes_max => {
            Frame::Message { bytes: body, solicited, invalidate: (flags & INVALIDATES != 0).then_some(key) }
        }
        (2, 8) => Frame::Immediate { data: body.try_into().ok()?, solicited },
        (3, 32) => {
            let change = match half(4)? {
                1 => AtomicOp::CompareSwap { compare: word(16)?, swap: word(24)? },
                2 => AtomicOp::FetchAdd { add: word(16)? },
                _ => return None,
            };
            Frame::Atomic { ticket: half(0)?, key, address: word(8)?, change }
        }
        (4, 16) => {
            let result = match body[4] {
                0 => Ok(word(8)?),
                _ => Err(TerminateCode { layer: body[5], kind: body[6], code: body[7] }),
            };
            Frame::Answer { ticket: half(0)?, result }
        }
        (5, 0) => Frame::Credits { adapter_atomics: flags & ADAPTER_ATOMICS != 0 },
        _ => return None,
    };
    Some((frame, credits))
}

/// Parameters that a side states while it connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Preamble {
    /// The side leaves atomics on its words to its adapter.
    pub(super) adapter_atomics: bool,
    /// Bytes of the longest message: a limit that a fabric can have.
    pub(super) message_bytes_max: usize,
}

impl Preamble {
    /// Builds the private data of a connection, with a hello.
    pub(super) fn encode(self, hello: &[u8]) -> Vec<u8> {
        let bytes = u8::try_from(hello.len()).expect("the caller checks the length of a hello");
        let doublings = (self.message_bytes_max / MESSAGE_BYTES_DEFAULT).ilog2() as u8;
        let mut out = vec![MAGIC, VERSION, u8::from(self.adapter_atomics) | doublings << LIMIT_SHIFT, bytes];
        out.extend_from_slice(hello);
        out
    }
}

/// Builds the private data of a request over InfiniBand; returns whether its flow control bit is set.
pub(super) fn request(hello: &[u8]) -> (Vec<u8>, bool) {
    let mut out = hello.to_vec();
    if hello.len() >= REQUEST_BYTES {
        return (out, false);
    }
    out.resize(REQUEST_BYTES - 1, 0);
    out.push(u8::try_from(hello.len()).expect("it was just compared"));
    (out, true)
}

/// Extracts the hello of such a request. `None` if it is malformed.
pub(super) fn parse_request(data: &[u8], flow_control: bool) -> Option<&[u8]> {
    let data = data.get(..REQUEST_BYTES)?;
    if flow_control {
        data.get(..usize::from(*data.last()?)).filter(|hello| hello.len() < REQUEST_BYTES)
    } else {
        Some(data)
    }
}

/// Extracts the preamble and the hello from DDSS private data. `None` for foreign private data.
pub(super) fn parse_preamble(data: &[u8]) -> Option<(Preamble, &[u8])> {
    let ([magic, version, flags, bytes], rest) = data.split_first_chunk::<PREAMBLE_BYTES>()?;
    let hello = rest.get(..usize::from(*bytes))?;
    let message_bytes_max = MESSAGE_BYTES_DEFAULT << (flags >> LIMIT_SHIFT);
    (*magic == MAGIC && *version == VERSION)
        .then_some((Preamble { adapter_atomics: flags & 1 != 0, message_bytes_max }, hello))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_encoding() {
        // If this failed, two nodes would misunderstand each other.
        let long = [7; MESSAGE_BYTES_DEFAULT];
        let change = AtomicOp::CompareSwap { compare: u64::MAX, swap: 3 };
        for frame in [
            Frame::Message { bytes: &long, solicited: true, invalidate: Some(0xfeed_f00d) },
            Frame::Message { bytes: b"", solicited: false, invalidate: None },
            Frame::Immediate { data: *b"8 bytes!", solicited: true },
            Frame::Atomic { ticket: 9, key: 77, address: 1 << 60, change },
            Frame::Atomic { ticket: 9, key: 77, address: 8, change: AtomicOp::FetchAdd { add: 5 } },
            Frame::Answer { ticket: u32::MAX, result: Ok(u64::MAX) },
            Frame::Answer { ticket: 0, result: Err(TerminateCode::RDMAP_RIGHTS) },
            Frame::Credits { adapter_atomics: true },
            Frame::Credits { adapter_atomics: false },
        ] {
            let mut head = [0xaa; HEAD_BYTES_MAX];
            let bytes = frame.encode(513, &mut head);
            let out = [&head[..bytes], frame.payload()].concat();
            assert_eq!(decode(&out, MESSAGE_BYTES_DEFAULT), Some((frame, 513)));
            let is_long = frame.payload().len() == MESSAGE_BYTES_DEFAULT;
            assert_eq!(decode(&out, MESSAGE_BYTES_DEFAULT - 1).is_none(), is_long, "one byte more than the limit");
            for cut in 0..HEADER_BYTES {
                assert_eq!(decode(&out[..cut], MESSAGE_BYTES_DEFAULT), None);
            }
        }
    }

    #[test]
    fn malformed_frames_are_rejected() {
        // If this failed, a faulty peer could make this node read outside the frame, or act on garbage.
        let mut out = [0; HEADER_BYTES + 2 * MESSAGE_BYTES_DEFAULT];
        for kind in 0..=255 {
            for bytes in 0..out.len() {
                out[0] = kind;
                if decode(&out[..bytes], MESSAGE_BYTES_DEFAULT).is_some() {
                    assert!((1..=5).contains(&kind), "kind {kind} with {bytes} bytes");
                    assert!(bytes <= HEADER_BYTES + MESSAGE_BYTES_DEFAULT, "kind {kind} with {bytes} bytes");
                }
            }
        }
        let mut out = [0; HEAD_BYTES_MAX];
        let change = AtomicOp::FetchAdd { add: 1 };
        let bytes = Frame::Atomic { ticket: 1, key: 1, address: 8, change }.encode(0, &mut out);
        out[HEADER_BYTES + 4] = 9;
        assert_eq!(decode(&out[..bytes], MESSAGE_BYTES_DEFAULT), None, "an unknown operation");
        assert_eq!(decode(&out[..bytes - 1], MESSAGE_BYTES_DEFAULT), None);
    }

    #[test]
    fn infiniband_request_carries_every_length() {
        // If this failed, the hello that authenticates a node would not fit, or would be altered.
        for bytes in 0..=REQUEST_BYTES {
            let hello = vec![0xdd; bytes];
            let (data, flow_control) = request(&hello);
            assert_eq!(data.len(), REQUEST_BYTES);
            assert_eq!(parse_request(&data, flow_control), Some(&hello[..]));
        }
        assert_eq!(parse_request(&[0; 20], true), None);
        assert_eq!(parse_request(&[0xff; 56], true), None);
    }

    #[test]
    fn hello_survives_padding_and_foreign_data_is_rejected() {
        // If this failed, a node would read zeros behind a hello, or accept foreign private data.
        let short = Preamble { adapter_atomics: true, message_bytes_max: MESSAGE_BYTES_DEFAULT };
        let mut data = short.encode(b"hello");
        assert_eq!(data[2], 1, "the limit of every node before there were others");
        data.resize(56, 0);
        assert_eq!(parse_preamble(&data), Some((short, &b"hello"[..])));
        let long = Preamble { adapter_atomics: false, message_bytes_max: 64 << 10 };
        assert_eq!(parse_preamble(&long.encode(b"")), Some((long, &b""[..])));
        for foreign in [&b""[..], b"DDSSpeer", &[0xdd, 1, 0], &[0xdd, 1, 0, 9, 1], &[0xdd, 2, 0, 0]] {
            assert_eq!(parse_preamble(foreign), None);
        }
    }
}
