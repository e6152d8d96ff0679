//! What a node writes down of each segment at home with it, so that its next daemon finds it again.
//!
//! ```text
//!   0       8         16      24                 48    52    56     58       60         64               192   256
//!  +-------+---------+-------+------------------+-----+-----+------+--------+----------+----------------+------+
//!  | state | segment | place | spec, as encoded | uid | gid | mode | length | reserved | name           | 0    |
//!  +-------+---------+-------+------------------+-----+-----+------+--------+----------+----------------+------+
//! ```
//!
//! The first word behind the name is the id under which others know the segment, if that is another node's: the segment
//! was taken over from there, or is a mirror of it.
//!
//! There is one record for each index that a segment can have. The state is written last when a segment comes and
//! first when it goes: a record that says *live* is whole. The id stays when the segment is gone, so that no other
//! segment ever gets it.

use super::segment::{Name, Permissions, Principal};
use super::spec::Spec;
use crate::limits::NAME_BYTES_MAX;
use crate::{Failure, SegmentId};

/// One segment, as it is written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Which: the index where it is written down, in this life.
    pub segment: SegmentId,
    /// The id under which everybody knows it: the same, unless another node was its first home.
    pub known_as: SegmentId,
    /// Where its header is.
    pub at: u64,
    /// Its name.
    pub name: Name,
    /// What was asked for.
    pub spec: Spec,
    /// Who may.
    pub permissions: Permissions,
}

impl Record {
    /// Bytes of one record.
    pub const BYTES: usize = 256;
    /// Where the state is.
    pub const STATE_OFFSET: usize = 0;
    /// Where the id is.
    pub const SEGMENT_OFFSET: usize = 8;
    /// The state of an index that is free.
    pub const FREE: u64 = 0;
    /// The state of an index with a segment.
    pub const LIVE: u64 = 1;
    const NAME_AT: usize = 64;
    const KNOWN_AS_AT: usize = Self::NAME_AT + NAME_BYTES_MAX;

    /// As bytes; the state is left at [`FREE`](Self::FREE) for whoever writes them.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        let name = self.name.as_str().as_bytes();
        out[8..16].copy_from_slice(&self.segment.to_bits().to_le_bytes());
        out[16..24].copy_from_slice(&self.at.to_le_bytes());
        out[24..48].copy_from_slice(&self.spec.encode());
        out[48..52].copy_from_slice(&self.permissions.owner.uid.to_le_bytes());
        out[52..56].copy_from_slice(&self.permissions.owner.gid.to_le_bytes());
        out[56..58].copy_from_slice(&self.permissions.mode.to_le_bytes());
        out[58..60].copy_from_slice(&(name.len() as u16).to_le_bytes());
        out[Self::NAME_AT..Self::NAME_AT + name.len()].copy_from_slice(name);
        if self.known_as != self.segment {
            out[Self::KNOWN_AS_AT..][..8].copy_from_slice(&self.known_as.to_bits().to_le_bytes());
        }
        out
    }

    /// Reads and checks what was written; the state is for the caller to look at.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self, Failure> {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let spec = std::array::from_fn(|i| bytes[24 + i]);
        let (owner, rest) = (word(48), word(56));
        let length = usize::from((rest >> 16) as u16);
        let mode = rest as u16;
        if length > NAME_BYTES_MAX || mode & !0o777 != 0 {
            return Err(Failure::Malformed);
        }
        let known_as = if word(Self::KNOWN_AS_AT) == 0 { word(8) } else { word(Self::KNOWN_AS_AT) };
        Ok(Self {
            segment: SegmentId::from_bits(word(8)),
            known_as: SegmentId::from_bits(known_as),
            at: word(16),
            name: Name::from_bytes(&bytes[Self::NAME_AT..Self::NAME_AT + length])?,
            spec: Spec::decode(&spec)?,
            permissions: Permissions { owner: Principal { uid: owner as u32, gid: (owner >> 32) as u32 }, mode },
        })
    }
}

const _: () = assert!(Record::KNOWN_AS_AT + 8 <= Record::BYTES);
const _: () = assert!(24 + Spec::ENCODED_BYTES == 48);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, NodeId};

    #[test]
    fn a_segment_is_read_back_as_it_was_written_down() {
        // If this broke, a restarted node would give a segment to somebody else, or lose it.
        let record = Record {
            segment: SegmentId::new(NodeId(3), 7, 9),
            known_as: SegmentId::new(NodeId(3), 7, 9),
            at: 1 << 48 | 8192,
            name: Name::new(&"ä".repeat(NAME_BYTES_MAX / 2)).unwrap(),
            spec: Spec { model: Model::Delta(4), ..Spec::new(100) },
            permissions: Permissions { owner: Principal { uid: 1, gid: u32::MAX }, mode: 0o604 },
        };
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Ok(record));
        let taken_over = Record { known_as: SegmentId::new(NodeId(1), 2, 3), ..record };
        assert_eq!(Record::decode(&taken_over.encode()), Ok(taken_over));
        for (at, value) in [(59, 1), (57, 0xff), (64, 0xff), (40, 99)] {
            let mut wrong = bytes;
            wrong[at] = value;
            assert!(Record::decode(&wrong).is_err(), "byte {at}");
        }
    }
}
