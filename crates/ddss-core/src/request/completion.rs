//! Completion of a request, and its layout in one ring entry.
//!
//! ```text
//!        0          4      6       8           16        24          32                      64
//!       +----------+------+-------+-----------+---------+-----------+-----------------------+
//!       | sequence | end  | flags |  request  | version | timestamp |  up to 32 bytes       |
//!       | the ring | 2×u8 |  u16  |    u64    |   u64   |    u64    |  of data              |
//!       +----------+------+-------+-----------+---------+-----------+-----------------------+
//! ```

use crate::limits::INLINE_REPLY_BYTES_MAX;
use crate::model::coherence::Model;
use crate::model::spec::encode_row_bytes;
use crate::model::table::TableLayout;
use crate::{Entry, Outcome, RequestId, SegmentId, Timestamp, Version};

/// Completion of one request. Each request has exactly one. After it, the daemon does not touch the request's arena
/// range any more; a client that stopped waiting earlier keeps that range until then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Id of the request.
    pub request: RequestId,
    /// Outcome of the request.
    pub outcome: Outcome,
    /// True if the bytes of a get are in `data` rather than in the arena.
    pub inline: bool,
    /// True if the wait goes on without a place in the ring. [`Operation::Collect`](crate::Operation::Collect) brings
    /// its other completion, with the same request id.
    pub parked: bool,
    /// Version that was read or made.
    pub version: Version,
    /// Timestamp of that version.
    pub timestamp: Timestamp,
    /// Inline data.
    pub data: [u8; INLINE_REPLY_BYTES_MAX],
}

const FLAG_INLINE: u64 = 1;
const FLAG_PARKED: u64 = 2;

impl Completion {
    /// Makes a completion without further data.
    pub const fn bare(request: RequestId, outcome: Outcome) -> Self {
        Self {
            request,
            outcome,
            inline: false,
            parked: false,
            version: Version(0),
            timestamp: Timestamp(0),
            data: [0; INLINE_REPLY_BYTES_MAX],
        }
    }

    /// Encodes the completion as a ring entry.
    #[inline]
    pub fn encode(&self) -> Entry {
        let end = u16::from_le_bytes(self.outcome.to_bytes()) as u64;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| self.data[at + i]));
        let flags = if self.inline { FLAG_INLINE } else { 0 } | if self.parked { FLAG_PARKED } else { 0 };
        [
            end << 32 | flags << 48,
            self.request.0,
            self.version.0,
            self.timestamp.0,
            word(0),
            word(8),
            word(16),
            word(24),
        ]
    }

    /// Returns true if an entry says that its request is parked.
    #[inline]
    pub const fn is_parked(entry: &Entry) -> bool {
        entry[0] >> 48 & FLAG_PARKED != 0
    }

    /// Decodes a copied entry.
    #[inline]
    pub fn decode(entry: &Entry) -> Self {
        let mut data = [0; INLINE_REPLY_BYTES_MAX];
        for (chunk, word) in data.chunks_exact_mut(8).zip(&entry[4..]) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        Self {
            request: RequestId(entry[1]),
            outcome: Outcome::from_bytes(((entry[0] >> 32) as u16).to_le_bytes()),
            inline: entry[0] >> 48 & FLAG_INLINE != 0,
            parked: Self::is_parked(entry),
            version: Version(entry[2]),
            timestamp: Timestamp(entry[3]),
            data,
        }
    }
}

/// Segment that an allocate or open returned, in the data of its completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenedSegment {
    /// Id of the segment.
    pub segment: SegmentId,
    /// Size in bytes.
    pub bytes: u64,
    /// Place of its header in this node's memory, if it is at home here, for local reads.
    pub at: Option<u64>,
    /// Coherence model.
    pub model: Model,
    /// Bytes of one row of a table; 0 for a plain segment.
    pub row_bytes: u32,
}

impl OpenedSegment {
    /// Encodes as completion data.
    ///
    /// ```text
    ///  0         8       16         24      25         26        28      32
    /// +---------+-------+----------+-------+----------+---------+-------+
    /// | segment | bytes | at, or ~0| model | reserved | row / 8 | param |
    /// +---------+-------+----------+-------+----------+---------+-------+
    /// ```
    pub fn encode(&self) -> [u8; INLINE_REPLY_BYTES_MAX] {
        let mut data = [0; INLINE_REPLY_BYTES_MAX];
        let (kind, parameter) = self.model.to_parts();
        data[..8].copy_from_slice(&self.segment.to_bits().to_le_bytes());
        data[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        data[16..24].copy_from_slice(&self.at.unwrap_or(u64::MAX).to_le_bytes());
        data[24] = kind;
        data[26..28].copy_from_slice(&encode_row_bytes(self.row_bytes).to_le_bytes());
        data[28..32].copy_from_slice(&parameter.to_le_bytes());
        data
    }

    /// Decodes completion data.
    pub fn decode(data: &[u8; INLINE_REPLY_BYTES_MAX]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| data[at + i]));
        Self {
            segment: SegmentId::from_bits(word(0)),
            bytes: word(8),
            at: Some(word(16)).filter(|&at| at != u64::MAX),
            // An unknown model of a later release falls back to the strictest, so that the daemon is asked.
            model: Model::from_parts(data[24], (word(24) >> 32) as u32).unwrap_or_default(),
            row_bytes: u32::from((word(24) >> 16) as u16) * TableLayout::ROW_UNIT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;

    #[test]
    fn completion_round_trips() {
        // If this broke, a client would see another outcome than the real one.
        let opened = OpenedSegment {
            segment: SegmentId::from_bits(99),
            bytes: 4096,
            at: Some(1 << 50),
            model: Model::Delta(u32::MAX),
            row_bytes: TableLayout::ROW_BYTES_MAX,
        };
        let completion = Completion {
            request: RequestId(7),
            outcome: Outcome::Indeterminate(Failure::TimedOut),
            inline: true,
            parked: true,
            version: Version(3),
            timestamp: Timestamp(4),
            data: opened.encode(),
        };
        let mut entry = completion.encode();
        entry[0] |= 0xffff_ffff;
        let back = Completion::decode(&entry);
        assert_eq!(back, completion);
        assert_eq!(OpenedSegment::decode(&back.data), opened);
        let far = OpenedSegment { at: None, ..opened };
        assert_eq!(OpenedSegment::decode(&far.encode()), far);
    }
}
