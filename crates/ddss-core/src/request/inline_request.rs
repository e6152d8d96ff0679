//! Calls that are so small that their ring entry holds all there is: a get whose bytes come back in the answer, a put whose
//! bytes are in the request, both of what nothing special is asked. Nearly every call is one of them, so they are recognised by
//! one comparison; whatever is not exactly that is read by [`Request::decode`](crate::Request::decode).

use super::operation::ArenaRange;
use super::request::{FLAG_INLINE, OP_GET, OP_PUT};
use crate::limits::{INLINE_REPLY_BYTES_MAX, INLINE_REQUEST_BYTES_MAX};
use crate::{Entry, SegmentId};

/// What the high half of an entry's first word says: no model, and no flag but that the bytes go along.
const fn word(op: u8) -> u64 {
    op as u64 | (FLAG_INLINE as u64) << 16
}

/// A get of a few bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InlineGet {
    pub(crate) segment: SegmentId,
    pub(crate) offset: u64,
    /// Where they would go in the arena.
    pub(crate) into: ArenaRange,
}

impl InlineGet {
    #[inline(always)]
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
        if entry[0] >> 32 != word(OP_GET) || entry[4] > INLINE_REPLY_BYTES_MAX as u64 || entry[6] != 0 {
            return None;
        }
        let into = ArenaRange { slot: (entry[5] >> 32) as u32, bytes: entry[4] as u32 };
        Some(Self { segment: SegmentId::from_bits(entry[2]), offset: entry[3], into })
    }
}

/// A put of a few bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InlinePut {
    pub(crate) segment: SegmentId,
    pub(crate) offset: u64,
    pub(crate) bytes: u8,
    /// Those behind `bytes` are whatever they are.
    pub(crate) words: [u64; 2],
}

impl InlinePut {
    #[inline(always)]
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
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

    fn get(bytes: u32, inline: bool, look: ReadOptions) -> Entry {
        let into = ArenaRange { slot: 3, bytes };
        let mut entry =
            Request::new(RequestId(1), Operation::Get { segment: SEGMENT, offset: 5, into, inline, look }).encode();
        entry[0] |= 0xdead_beef;
        entry
    }

    #[test]
    fn what_is_small_is_read_as_the_long_way_reads_it() {
        // If this broke, a small call would read or write another place than the one that was asked for.
        let into = ArenaRange { slot: 3, bytes: 32 };
        assert_eq!(
            InlineGet::of(&get(32, true, ReadOptions::default())),
            Some(InlineGet { segment: SEGMENT, offset: 5, into })
        );
        let from = Payload::inline(b"seven b").unwrap();
        let terms = PutConditions::default();
        let put = Request::new(RequestId(1), Operation::Put { segment: SEGMENT, offset: 5, from, terms }).encode();
        let small = InlinePut::of(&put).unwrap();
        assert_eq!((small.segment, small.offset, small.bytes), (SEGMENT, 5, 7));
        assert_eq!(small.words[0].to_le_bytes()[..7], *b"seven b");
        assert!(InlineGet::of(&put).is_none() && InlinePut::of(&get(8, true, ReadOptions::default())).is_none());
    }

    #[test]
    fn what_asks_for_more_is_not_small() {
        // If this broke, a get of an old version would bring the newest, and a put under a condition would commit without it.
        let asks = Some(Model::Strict);
        assert_eq!(InlineGet::of(&get(8, false, ReadOptions::default())), None);
        assert_eq!(InlineGet::of(&get(8, true, ReadOptions { asks, version: None })), None);
        assert_eq!(InlineGet::of(&get(8, true, ReadOptions { asks: None, version: Some(Version(0)) })), None);
        let put = |terms| {
            let from = Payload::inline(b"8 bytes!").unwrap();
            Request::new(RequestId(1), Operation::Put { segment: SEGMENT, offset: 5, from, terms }).encode()
        };
        assert_eq!(InlinePut::of(&put(PutConditions { asks, ..PutConditions::default() })), None);
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
