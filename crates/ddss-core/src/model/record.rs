//! Record that a node stores for each segment, so that its next daemon restores it.
//!
//! ```text
//!   0       8         16      24                 48    52    56     58       60      64     192           200
//!  +-------+---------+-------+------------------+-----+-----+------+--------+-------+------+-------------+
//!  | state | segment | place | spec, as encoded | uid | gid | mode | length | epoch | name | 0 or its id |
//!  +-------+---------+-------+------------------+-----+-----+------+--------+-------+------+-------------+
//! ```
//!
//! The word behind the name is the global id, if it is another node's: the segment was taken over from there, or is a
//! replica of it.
//!
//! There is one record for each slot. The state is written last on creation and first on release: a record that says
//! *live* is whole. The id stays after the release, so that no other segment ever gets it.

use super::segment::{Name, Permissions, Principal};
use super::spec::Spec;
use crate::limits::NAME_BYTES_MAX;
use crate::{Failure, SegmentId};

/// Persistent description of one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Slot and generation of the record.
    pub segment: SegmentId,
    /// Global id: the same, unless another node was its first home.
    pub known_as: SegmentId,
    /// Place of its header.
    pub at: u64,
    /// Its name.
    pub name: Name,
    /// Its specification.
    pub spec: Spec,
    /// Its permissions.
    pub permissions: Permissions,
    /// Epoch in which this node took the segment over and became its home; otherwise 0.
    pub epoch: u32,
}

impl Record {
    /// Bytes of one record.
    pub const BYTES: usize = Self::KNOWN_AS_AT + 8;
    /// Offset of the state.
    pub const STATE_OFFSET: usize = 0;
    /// Offset of the id.
    pub const SEGMENT_OFFSET: usize = 8;
    /// State of a free slot.
    pub const FREE: u64 = 0;
    /// State of a slot with a segment.
    pub const LIVE: u64 = 1;
    const NAME_AT: usize = 64;
    const KNOWN_AS_AT: usize = Self::NAME_AT + NAME_BYTES_MAX;

    /// Encodes the record. The state stays [`FREE`](Self::FREE); the writer sets it last.
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
        out[60..64].copy_from_slice(&self.epoch.to_le_bytes());
        out[Self::NAME_AT..Self::NAME_AT + name.len()].copy_from_slice(name);
        if self.known_as != self.segment {
            out[Self::KNOWN_AS_AT..][..8].copy_from_slice(&self.known_as.to_bits().to_le_bytes());
        }
        out
    }

    /// Decodes and checks a record; the caller checks the state.
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
            epoch: (rest >> 32) as u32,
        })
    }
}

const _: () = assert!(Record::BYTES.is_multiple_of(8));
const _: () = assert!(24 + Spec::ENCODED_BYTES == 48);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, NodeId};

    #[test]
    fn record_round_trips() {
        // If this broke, a restarted node would give a segment to another user, or lose it.
        let record = Record {
            segment: SegmentId::new(NodeId(3), 7, 9),
            known_as: SegmentId::new(NodeId(3), 7, 9),
            at: 1 << 48 | 8192,
            name: Name::new(&"ä".repeat(NAME_BYTES_MAX / 2)).unwrap(),
            spec: Spec { model: Model::Delta(4), ..Spec::new(100) },
            permissions: Permissions { owner: Principal { uid: 1, gid: u32::MAX }, mode: 0o604 },
            epoch: 0,
        };
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Ok(record));
        let taken_over = Record { known_as: SegmentId::new(NodeId(1), 2, 3), epoch: u32::MAX, ..record };
        assert_eq!(Record::decode(&taken_over.encode()), Ok(taken_over));
        for (at, value) in [(59, 1), (57, 0xff), (64, 0xff), (40, 99)] {
            let mut wrong = bytes;
            wrong[at] = value;
            assert!(Record::decode(&wrong).is_err(), "byte {at}");
        }
    }
}
