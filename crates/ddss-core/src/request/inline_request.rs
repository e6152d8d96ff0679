//! Puts that fit into their ring entry, without options. Nearly every put is of this kind, so one comparison recognises
//! it. All other calls go to [`Request::decode`](crate::Request::decode).

use super::request::{FLAG_INLINE, OP_PUT};
use crate::limits::INLINE_REQUEST_BYTES_MAX;
use crate::{Entry, SegmentId};

/// High half of such a put's first word: no model, and only the inline flag.
const INLINE_PUT: u64 = OP_PUT as u64 | (FLAG_INLINE as u64) << 16;

/// Put with its bytes in the entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InlinePut {
    /// Segment to write.
    pub segment: SegmentId,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u8,
    /// New bytes; those beyond `bytes` are undefined.
    pub words: [u64; 2],
}

impl InlinePut {
    /// Returns the call in `entry`, or `None` if the entry holds another one.
    #[inline(always)]
    pub fn of(entry: &Entry) -> Option<Self> {
        if entry[0] >> 32 != INLINE_PUT || entry[4] > INLINE_REQUEST_BYTES_MAX as u64 {
            return None;
        }
        let (bytes, words) = (entry[4] as u8, [entry[6], entry[7]]);
        Some(Self { segment: SegmentId::from_bits(entry[2]), offset: entry[3], bytes, words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ArenaRange, Model, Operation, Payload, PutConditions, ReadOptions, Request, RequestId};

    const SEGMENT: SegmentId = SegmentId::from_bits(1 << 48);

    fn put(bytes: &[u8], conditions: PutConditions) -> Entry {
        let from = Payload::inline(bytes).unwrap();
        let mut entry =
            Request::new(RequestId(1), Operation::Put { segment: SEGMENT, offset: 5, from, conditions }).encode();
        entry[0] |= 0xdead_beef;
        entry
    }

    #[test]
    fn inline_decoder_matches_request_decoder() {
        // If this broke, an inline put would write another place than the client asked for.
        let small = InlinePut::of(&put(b"seven b", PutConditions::default())).unwrap();
        assert_eq!((small.segment, small.offset, small.bytes), (SEGMENT, 5, 7));
        assert_eq!(small.words[0].to_le_bytes()[..7], *b"seven b");
        let (into, options) = (ArenaRange { slot: 3, bytes: 8 }, ReadOptions::default());
        let get = Operation::Get { segment: SEGMENT, offset: 5, into, inline: true, options };
        assert_eq!(InlinePut::of(&Request::new(RequestId(1), get).encode()), None);
    }

    #[test]
    fn call_with_options_is_not_inline() {
        // If this broke, a conditional put would commit without its condition.
        let requested_model = Some(Model::Strict);
        assert_eq!(
            InlinePut::of(&put(b"8 bytes!", PutConditions { requested_model, ..PutConditions::default() })),
            None
        );
        for lie in 0..64 {
            let mut put = put(b"8 bytes!", PutConditions::default());
            put[4] |= 1 << lie;
            assert_eq!(InlinePut::of(&put).is_some(), Request::decode(&put).is_ok(), "{lie}");
        }
    }
}
