//! Calls that fit into their ring entry: a get whose bytes return in the completion, and a put whose bytes are in the
//! request, both without options. Nearly every call is of this kind, so one comparison recognises them. All others go
//! to [`Request::decode`](crate::Request::decode).

use super::operation::ArenaRange;
use super::request::{FLAG_INLINE, OP_GET, OP_PUT};
use crate::limits::{INLINE_REPLY_BYTES_MAX, INLINE_REQUEST_BYTES_MAX};
use crate::{Entry, SegmentId};

/// Returns the high half of an inline call's first word: no model, and only the inline flag.
const fn word(op: u8) -> u64 {
    op as u64 | (FLAG_INLINE as u64) << 16
}

/// Get with its bytes in the completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InlineGet {
    /// Segment to read.
    pub segment: SegmentId,
    /// Offset of the first byte.
    pub offset: u64,
    /// Destination in the arena, if it were not inline.
    pub into: ArenaRange,
}

impl InlineGet {
    /// Returns the call in `entry`, or `None` if the entry holds another one.
    #[inline(always)]
    pub fn of(entry: &Entry) -> Option<Self> {
        if entry[0] >> 32 != word(OP_GET) || entry[4] > INLINE_REPLY_BYTES_MAX as u64 || entry[6] != 0 {
            return None;
        }
        let into = ArenaRange { slot: (entry[5] >> 32) as u32, bytes: entry[4] as u32 };
        Some(Self { segment: SegmentId::from_bits(entry[2]), offset: entry[3], into })
    }
}

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
        if entry[0] >> 32 != word(OP_PUT) || entry[4] > INLINE_REQUEST_BYTES_MAX as u64 {
            return None;
        }
        let (bytes, words) = (entry[4] as u8, [entry[6], entry[7]]);
        Some(Self { segment: SegmentId::from_bits(entry[2]), offset: entry[3], bytes, words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, Operation, Payload, PutConditions, ReadOptions, Request, RequestId, Version};

    const SEGMENT: SegmentId = SegmentId::from_bits(1 << 48);

    fn get(bytes: u32, inline: bool, options: ReadOptions) -> Entry {
        let into = ArenaRange { slot: 3, bytes };
        let mut entry =
            Request::new(RequestId(1), Operation::Get { segment: SEGMENT, offset: 5, into, inline, options }).encode();
        entry[0] |= 0xdead_beef;
        entry
    }

    #[test]
    fn inline_decoder_matches_request_decoder() {
        // If this broke, an inline call would read or write another place than the client asked for.
        let into = ArenaRange { slot: 3, bytes: 32 };
        assert_eq!(
            InlineGet::of(&get(32, true, ReadOptions::default())),
            Some(InlineGet { segment: SEGMENT, offset: 5, into })
        );
        let from = Payload::inline(b"seven b").unwrap();
        let conditions = PutConditions::default();
        let put = Request::new(RequestId(1), Operation::Put { segment: SEGMENT, offset: 5, from, conditions }).encode();
        let small = InlinePut::of(&put).unwrap();
        assert_eq!((small.segment, small.offset, small.bytes), (SEGMENT, 5, 7));
        assert_eq!(small.words[0].to_le_bytes()[..7], *b"seven b");
        assert!(InlineGet::of(&put).is_none() && InlinePut::of(&get(8, true, ReadOptions::default())).is_none());
    }

    #[test]
    fn call_with_options_is_not_inline() {
        // If this broke, a get of an old version would return the newest, and a conditional put would commit without
        // its condition.
        let requested_model = Some(Model::Strict);
        assert_eq!(InlineGet::of(&get(8, false, ReadOptions::default())), None);
        assert_eq!(InlineGet::of(&get(8, true, ReadOptions { requested_model, version: None })), None);
        assert_eq!(
            InlineGet::of(&get(8, true, ReadOptions { requested_model: None, version: Some(Version(0)) })),
            None
        );
        let put = |conditions| {
            let from = Payload::inline(b"8 bytes!").unwrap();
            Request::new(RequestId(1), Operation::Put { segment: SEGMENT, offset: 5, from, conditions }).encode()
        };
        assert_eq!(InlinePut::of(&put(PutConditions { requested_model, ..PutConditions::default() })), None);
        for lie in 0..64 {
            let (mut get, mut put) = (get(8, true, ReadOptions::default()), put(PutConditions::default()));
            get[4] |= 1 << lie;
            put[4] |= 1 << lie;
            let small = |entry| InlineGet::of(entry).is_some() || InlinePut::of(entry).is_some();
            assert_eq!(small(&get), Request::decode(&get).is_ok(), "{lie}");
            assert_eq!(small(&put), Request::decode(&put).is_ok(), "{lie}");
        }
    }
}
