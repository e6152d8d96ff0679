//! RDMAP (RFC 5040) and its extensions (RFC 7306): the operation of a message.
//!
//! ```text
//! control:          V V 0 0 | opcode (4 bits)
//! read request:     sink STag (4) | sink offset (8) | length (4) | source STag (4) | source offset (8)
//! atomic request:   0, kind (4) | id (4) | STag (4) | offset (8) | operand (8) | mask (8) | compare (8) | mask (8)
//! atomic response:  id (4) | previous value (8)
//! terminate:        layer, type (1) | code (1) | M D R 0 (1) | 0 (1) | length (2) | DDP header | read request
//! ```

use crate::iwarp::ddp::{TAGGED_BYTES, UNTAGGED_BYTES};
use crate::terminate_code::TerminateCode;

/// Bytes of a read request.
pub(crate) const READ_BYTES: usize = 28;
/// Bytes of an atomic request.
pub(crate) const ATOMIC_BYTES: usize = 52;
/// Bytes of an atomic response.
pub(crate) const ATOMIC_REPLY_BYTES: usize = 12;
/// Bytes of the longest terminate message.
pub(crate) const TERMINATE_BYTES_MAX: usize = 4 + 2 + UNTAGGED_BYTES + READ_BYTES;

const VERSION: u8 = 0x40;
const VERSION_MASK: u8 = 0xc0;
const OPCODE_MASK: u8 = 0x0f;

/// Operation code of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Write,
    ReadRequest,
    ReadResponse,
    Send { solicited: bool, invalidate: bool },
    Terminate,
    Immediate { solicited: bool },
    AtomicRequest,
    AtomicResponse,
}

impl Opcode {
    /// Decodes the control byte.
    #[inline]
    pub(crate) fn parse(control: u8) -> Result<Self, TerminateCode> {
        if control & VERSION_MASK != VERSION {
            return Err(TerminateCode::RDMAP_VERSION);
        }
        Ok(match control & OPCODE_MASK {
            0 => Opcode::Write,
            1 => Opcode::ReadRequest,
            2 => Opcode::ReadResponse,
            3 => Opcode::Send { solicited: false, invalidate: false },
            4 => Opcode::Send { solicited: false, invalidate: true },
            5 => Opcode::Send { solicited: true, invalidate: false },
            6 => Opcode::Send { solicited: true, invalidate: true },
            7 => Opcode::Terminate,
            8 => Opcode::Immediate { solicited: false },
            9 => Opcode::Immediate { solicited: true },
            10 => Opcode::AtomicRequest,
            11 => Opcode::AtomicResponse,
            _ => return Err(TerminateCode::RDMAP_OPCODE),
        })
    }

    /// Encodes the control byte.
    #[inline]
    pub(crate) fn control(self) -> u8 {
        VERSION
            | match self {
                Opcode::Write => 0,
                Opcode::ReadRequest => 1,
                Opcode::ReadResponse => 2,
                Opcode::Send { solicited: false, invalidate: false } => 3,
                Opcode::Send { solicited: false, invalidate: true } => 4,
                Opcode::Send { solicited: true, invalidate: false } => 5,
                Opcode::Send { solicited: true, invalidate: true } => 6,
                Opcode::Terminate => 7,
                Opcode::Immediate { solicited: false } => 8,
                Opcode::Immediate { solicited: true } => 9,
                Opcode::AtomicRequest => 10,
                Opcode::AtomicResponse => 11,
            }
    }
}

/// The body of a read request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadRequest {
    pub(crate) sink_key: u32,
    pub(crate) sink_address: u64,
    pub(crate) bytes: u32,
    pub(crate) source_key: u32,
    pub(crate) source_address: u64,
}

impl ReadRequest {
    #[inline]
    pub(crate) fn parse(body: &[u8; READ_BYTES]) -> Self {
        Self {
            sink_key: word(body, 0),
            sink_address: long(body, 4),
            bytes: word(body, 12),
            source_key: word(body, 16),
            source_address: long(body, 20),
        }
    }

    #[inline]
    pub(crate) fn encode(self) -> [u8; READ_BYTES] {
        let mut out = [0; READ_BYTES];
        out[0..4].copy_from_slice(&self.sink_key.to_be_bytes());
        out[4..12].copy_from_slice(&self.sink_address.to_be_bytes());
        out[12..16].copy_from_slice(&self.bytes.to_be_bytes());
        out[16..20].copy_from_slice(&self.source_key.to_be_bytes());
        out[20..28].copy_from_slice(&self.source_address.to_be_bytes());
        out
    }
}

/// Operation of an atomic on a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomicKind {
    /// Adds. A set bit in the mask is the highest bit of a field: no carry leaves it.
    FetchAdd { add: u64, mask: u64 },
    /// Compares under one mask and swaps under the other.
    CompareSwap { swap: u64, swap_mask: u64, compare: u64, compare_mask: u64 },
}

impl AtomicKind {
    /// Returns the new value of the word, or `None` if it does not change.
    #[inline]
    pub(crate) fn apply(self, old: u64) -> Option<u64> {
        match self {
            AtomicKind::FetchAdd { add, mask: 0 } => Some(old.wrapping_add(add)),
            AtomicKind::FetchAdd { add, mask } => Some(add_in_fields(old, add, mask)),
            AtomicKind::CompareSwap { swap, swap_mask, compare, compare_mask } => {
                ((old ^ compare) & compare_mask == 0).then_some((old & !swap_mask) | (swap & swap_mask))
            }
        }
    }
}

/// Adds without a carry out of the bits in `tops`, which are added separately without carry.
fn add_in_fields(old: u64, add: u64, tops: u64) -> u64 {
    let below = (old & !tops).wrapping_add(add & !tops);
    below ^ ((old ^ add) & tops)
}

/// The body of an atomic request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtomicRequest {
    pub(crate) id: u32,
    pub(crate) key: u32,
    pub(crate) address: u64,
    pub(crate) kind: AtomicKind,
}

const FETCH_ADD: u32 = 0;
const COMPARE_SWAP: u32 = 2;

impl AtomicRequest {
    pub(crate) fn parse(body: &[u8; ATOMIC_BYTES]) -> Result<Self, TerminateCode> {
        let kind = match word(body, 0) & 0xf {
            FETCH_ADD => AtomicKind::FetchAdd { add: long(body, 20), mask: long(body, 28) },
            COMPARE_SWAP => AtomicKind::CompareSwap {
                swap: long(body, 20),
                swap_mask: long(body, 28),
                compare: long(body, 36),
                compare_mask: long(body, 44),
            },
            _ => return Err(TerminateCode::RDMAP_OPCODE),
        };
        Ok(Self { id: word(body, 4), key: word(body, 8), address: long(body, 12), kind })
    }

    pub(crate) fn encode(self) -> [u8; ATOMIC_BYTES] {
        let (code, operands) = match self.kind {
            AtomicKind::FetchAdd { add, mask } => (FETCH_ADD, [add, mask, 0, 0]),
            AtomicKind::CompareSwap { swap, swap_mask, compare, compare_mask } => {
                (COMPARE_SWAP, [swap, swap_mask, compare, compare_mask])
            }
        };
        let mut out = [0; ATOMIC_BYTES];
        out[0..4].copy_from_slice(&code.to_be_bytes());
        out[4..8].copy_from_slice(&self.id.to_be_bytes());
        out[8..12].copy_from_slice(&self.key.to_be_bytes());
        out[12..20].copy_from_slice(&self.address.to_be_bytes());
        for (index, operand) in operands.into_iter().enumerate() {
            out[20 + index * 8..28 + index * 8].copy_from_slice(&operand.to_be_bytes());
        }
        out
    }
}

/// The body of an atomic response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtomicReply {
    pub(crate) id: u32,
    pub(crate) value: u64,
}

impl AtomicReply {
    pub(crate) fn parse(body: &[u8; ATOMIC_REPLY_BYTES]) -> Self {
        Self { id: word(body, 0), value: long(body, 4) }
    }

    pub(crate) fn encode(self) -> [u8; ATOMIC_REPLY_BYTES] {
        let mut out = [0; ATOMIC_REPLY_BYTES];
        out[0..4].copy_from_slice(&self.id.to_be_bytes());
        out[4..12].copy_from_slice(&self.value.to_be_bytes());
        out
    }
}

/// The request that a terminate message names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamedSegment {
    /// Queue of the message, if it was untagged.
    pub(crate) queue: u32,
    /// Message sequence number.
    pub(crate) sequence: u32,
}

/// The parsed fields of a terminate message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terminate {
    pub(crate) fault: TerminateCode,
    pub(crate) named_segment: Option<NamedSegment>,
}

const HAS_LENGTH: u8 = 0x80;
const HAS_DDP: u8 = 0x40;
const HAS_RDMAP: u8 = 0x20;

impl Terminate {
    /// Parses a terminate message. `None` if it is too short.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let (head, rest) = body.split_first_chunk::<4>()?;
        let fault = TerminateCode { layer: head[0] >> 4, kind: head[0] & 0xf, code: head[1] };
        let mut named_segment = None;
        if head[2] & HAS_DDP != 0
            && let Some(header) = rest.get(2..2 + UNTAGGED_BYTES)
            && header[0] & 0x80 == 0
        {
            let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            named_segment = Some(NamedSegment { queue: word(6), sequence: word(10) });
        }
        Some(Self { fault, named_segment })
    }

    /// Encodes a terminate message that names a segment, or none. The segment is its ULPDU as far as it has arrived,
    /// and its length.
    pub(crate) fn encode(
        fault: TerminateCode,
        named_segment: Option<(&[u8], usize)>,
        out: &mut [u8; TERMINATE_BYTES_MAX],
    ) -> usize {
        out[0] = (fault.layer << 4) | fault.kind;
        out[1] = fault.code;
        let Some((ulpdu, length)) = named_segment else { return 4 };
        let tagged = ulpdu.first().is_some_and(|control| control & 0x80 != 0);
        let header = if tagged { TAGGED_BYTES } else { UNTAGGED_BYTES };
        let Some(ddp) = ulpdu.get(..header) else { return 4 };
        out[2] = HAS_LENGTH | HAS_DDP;
        out[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        out[6..6 + header].copy_from_slice(ddp);
        let is_read = !tagged && ddp[1] & OPCODE_MASK == 1;
        if is_read && let Some(read) = ulpdu.get(header..header + READ_BYTES) {
            out[2] |= HAS_RDMAP;
            out[6 + header..6 + header + READ_BYTES].copy_from_slice(read);
            return 6 + header + READ_BYTES;
        }
        6 + header
    }
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}

#[inline]
fn long(bytes: &[u8], at: usize) -> u64 {
    let mut long = [0; 8];
    long.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(long)
}
