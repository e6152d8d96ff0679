//! DDP (RFC 5041): the header that names the buffer of a segment.
//!
//! ```text
//! tagged:    T L 0 0 0 0 V V | rdmap (1) | STag (4) | target offset (8) | payload
//! untagged:  0 L 0 0 0 0 V V | rdmap (1) | for rdmap (4) | queue (4) | sequence (4) | offset (4) | payload
//! ```

use crate::terminate_code::TerminateCode;

/// Bytes of a tagged header.
pub(crate) const TAGGED_BYTES: usize = 14;
/// Bytes of an untagged header.
pub(crate) const UNTAGGED_BYTES: usize = 18;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;
const VERSION: u8 = 1;

/// Queue numbers of untagged messages.
pub(crate) mod queue {
    pub(crate) const SEND: u32 = 0;
    pub(crate) const REQUEST: u32 = 1;
    pub(crate) const TERMINATE: u32 = 2;
    pub(crate) const ATOMIC: u32 = 3;
}

/// A parsed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    Tagged(Tagged),
    Untagged(Untagged),
}

/// The header of a tagged segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tagged {
    pub(crate) last: bool,
    pub(crate) rdmap: u8,
    pub(crate) key: u32,
    pub(crate) address: u64,
}

/// The header of an untagged segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Untagged {
    pub(crate) last: bool,
    pub(crate) rdmap: u8,
    pub(crate) word: u32,
    pub(crate) queue: u32,
    pub(crate) sequence: u32,
    pub(crate) offset: u32,
}

impl Header {
    /// Parses the header of a ULPDU; returns the header and its length.
    #[inline]
    pub(crate) fn parse(ulpdu: &[u8]) -> Result<(Header, usize), TerminateCode> {
        let Some(&control) = ulpdu.first() else { return Err(TerminateCode::MPA_FRAME) };
        let tagged = control & TAGGED != 0;
        let last = control & LAST != 0;
        if control & VERSION_MASK != VERSION {
            return Err(if tagged { TerminateCode::DDP_TAGGED_VERSION } else { TerminateCode::DDP_UNTAGGED_VERSION });
        }
        if tagged {
            let Some(head) = ulpdu.first_chunk::<TAGGED_BYTES>() else { return Err(TerminateCode::MPA_FRAME) };
            let [_, rdmap, a, b, c, d, address @ ..] = *head;
            let key = u32::from_be_bytes([a, b, c, d]);
            let address = u64::from_be_bytes(address);
            Ok((Header::Tagged(Tagged { last, rdmap, key, address }), TAGGED_BYTES))
        } else {
            let Some(head) = ulpdu.first_chunk::<UNTAGGED_BYTES>() else { return Err(TerminateCode::MPA_FRAME) };
            let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let header =
                Untagged { last, rdmap: head[1], word: word(2), queue: word(6), sequence: word(10), offset: word(14) };
            Ok((Header::Untagged(header), UNTAGGED_BYTES))
        }
    }
}

impl Tagged {
    #[inline]
    pub(crate) fn encode(self) -> [u8; TAGGED_BYTES] {
        let mut out = [0; TAGGED_BYTES];
        out[0] = TAGGED | VERSION | if self.last { LAST } else { 0 };
        out[1] = self.rdmap;
        out[2..6].copy_from_slice(&self.key.to_be_bytes());
        out[6..14].copy_from_slice(&self.address.to_be_bytes());
        out
    }
}

impl Untagged {
    #[inline]
    pub(crate) fn encode(self) -> [u8; UNTAGGED_BYTES] {
        let mut out = [0; UNTAGGED_BYTES];
        out[0] = VERSION | if self.last { LAST } else { 0 };
        out[1] = self.rdmap;
        out[2..6].copy_from_slice(&self.word.to_be_bytes());
        out[6..10].copy_from_slice(&self.queue.to_be_bytes());
        out[10..14].copy_from_slice(&self.sequence.to_be_bytes());
        out[14..18].copy_from_slice(&self.offset.to_be_bytes());
        out
    }
}
