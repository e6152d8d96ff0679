//! What a client asks for, and how it lies in one ring entry.
//!
//! ```text
//!   0          4    5    6       8         16        24       32       40        44     48      56       64
//!  +----------+----+----+-------+---------+---------+--------+--------+---------+------+-------+--------+
//!  | sequence | op | 0  | flags | request | segment | offset | length | timeout | slot | first | second |
//!  | the ring | u8 | u8 |  u16  |   u64   |   u64   |  u64   |  u64   | u32, µs | u32  |  u64  |  u64   |
//!  +----------+----+----+-------+---------+---------+--------+--------+---------+------+-------+--------+
//! ```
//!
//! The bytes of a small put are in `first` and `second`. The entry is copied out of shared memory once; this module
//! turns the copy into a [`Request`] that cannot be wrong, or refuses it.

use crate::failure::Failure;
use crate::limits::{
    ARENA_SLOT_BYTES, INLINE_REPLY_BYTES_MAX, INLINE_REQUEST_BYTES_MAX, LEASE_MAX_US, NAME_BYTES_MAX,
    TIMEOUT_DEFAULT_US, TIMEOUT_MAX_US, TRANSFER_BYTES_MAX,
};
use crate::segment::Spec;
use crate::{Entry, RequestId, SegmentId, Version};

/// A run of bytes in the arena of the client that asks. The daemon checks it against the arena's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaRange {
    /// The first slot.
    pub slot: u32,
    /// Bytes from the start of that slot.
    pub bytes: u32,
}

impl ArenaRange {
    /// The first byte, counted from the start of the arena.
    pub const fn offset(&self) -> u64 {
        self.slot as u64 * ARENA_SLOT_BYTES as u64
    }
    /// Whether it lies inside an arena of that size.
    pub const fn fits(&self, arena_bytes: u64) -> bool {
        self.offset() + self.bytes as u64 <= arena_bytes
    }
}

/// Where the bytes of a put are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// In the request itself.
    Inline {
        /// The bytes; zero beyond `length`.
        bytes: [u8; INLINE_REQUEST_BYTES_MAX],
        /// How many count.
        length: u8,
    },
    /// In the client's arena.
    Arena(ArenaRange),
}

impl Payload {
    /// The bytes as part of a request, if there are few enough.
    pub fn inline(bytes: &[u8]) -> Option<Self> {
        let mut held = [0; INLINE_REQUEST_BYTES_MAX];
        held.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Payload::Inline { bytes: held, length: bytes.len() as u8 })
    }

    /// How many bytes.
    pub const fn length(&self) -> u32 {
        match self {
            Payload::Inline { length, .. } => *length as u32,
            Payload::Arena(range) => range.bytes,
        }
    }
}

/// One thing that a client wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Nothing: a round trip.
    Null,
    /// Make a segment; [`Spec`] and name lie in the arena.
    Allocate {
        /// Where the specification and, behind it, the name are.
        spec_and_name: ArenaRange,
    },
    /// Find a segment; the name lies in the arena.
    Open {
        /// Where the name is.
        name: ArenaRange,
    },
    /// Take a segment away.
    Release {
        /// Which.
        segment: SegmentId,
    },
    /// Read bytes. Up to [`INLINE_REPLY_BYTES_MAX`] may come in the completion.
    Get {
        /// Which.
        segment: SegmentId,
        /// From where.
        offset: u64,
        /// How many, and where they go.
        into: ArenaRange,
        /// Whether the completion may carry them instead.
        inline: bool,
    },
    /// Write bytes.
    Put {
        /// Which.
        segment: SegmentId,
        /// To where.
        offset: u64,
        /// From where.
        from: Payload,
        /// Under what conditions.
        terms: Terms,
    },
    /// Change one aligned word, and tell what was there before.
    Atomic {
        /// Which.
        segment: SegmentId,
        /// Where.
        offset: u64,
        /// How.
        change: Change,
    },
    /// Wait until the segment's version is above this one.
    Await {
        /// Which.
        segment: SegmentId,
        /// Above which version.
        above: Version,
    },
    /// Take the segment's lock; the completion carries the token.
    Lock {
        /// Which.
        segment: SegmentId,
        /// How.
        wish: LockWish,
    },
    /// Let the lock go.
    Unlock {
        /// Which.
        segment: SegmentId,
        /// The token that came with it.
        token: LockToken,
    },
}

impl Operation {
    /// Whether it leaves nothing behind when nobody waits for its end: a look, or a lock, which is given back.
    pub const fn is_harmless(&self) -> bool {
        match self {
            Operation::Null
            | Operation::Open { .. }
            | Operation::Get { .. }
            | Operation::Await { .. }
            | Operation::Lock { .. } => true,
            Operation::Allocate { .. }
            | Operation::Release { .. }
            | Operation::Put { .. }
            | Operation::Atomic { .. }
            | Operation::Unlock { .. } => false,
        }
    }
}

/// Under what conditions a put commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Terms {
    /// Only on this version.
    pub version: Option<Version>,
    /// Only while this lock is held.
    pub token: Option<LockToken>,
}

impl Terms {
    /// As the two words that travel: version and token, zero where there is none (the flags say which).
    const fn to_words(self) -> (u64, u64) {
        let version = if let Some(version) = self.version { version.0 } else { 0 };
        let token = if let Some(token) = self.token { token.0 } else { 0 };
        (version, token)
    }
}

/// A lock that was granted: a number that no other grant of this home has, greater than all before. Zero is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LockToken(pub u64);

/// What kind of lock is asked for, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockWish {
    /// Together with others that ask for the same, or alone.
    pub shared: bool,
    /// Only if it is free now.
    pub no_wait: bool,
    /// How long it is held at the most, in microseconds.
    pub lease_us: u32,
}

/// A change of one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Add, wrapping around.
    Add(u64),
    /// Put this there.
    Swap(u64),
    /// Put `new` there if `expected` is there.
    CompareSwap {
        /// What has to be there.
        expected: u64,
        /// What will be there.
        new: u64,
    },
}

impl Change {
    /// What will be in the word, if that is not what is there already and stays.
    pub const fn apply(self, old: u64) -> Option<u64> {
        match self {
            Change::Add(add) => Some(old.wrapping_add(add)),
            Change::Swap(new) => Some(new),
            Change::CompareSwap { expected, new } if expected == old => Some(new),
            Change::CompareSwap { .. } => None,
        }
    }

    /// As a kind and two words.
    pub const fn to_parts(self) -> (u8, u64, u64) {
        match self {
            Change::Add(add) => (1, add, 0),
            Change::Swap(new) => (2, new, 0),
            Change::CompareSwap { expected, new } => (3, expected, new),
        }
    }

    /// The change of that kind, if there is one.
    pub const fn from_parts(kind: u8, first: u64, second: u64) -> Result<Self, Failure> {
        match kind {
            1 => Ok(Change::Add(first)),
            2 => Ok(Change::Swap(first)),
            3 => Ok(Change::CompareSwap { expected: first, new: second }),
            _ => Err(Failure::Malformed),
        }
    }
}

/// A checked request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Comes back in the completion.
    pub id: RequestId,
    /// How long the client waits, in microseconds.
    pub timeout_us: u32,
    /// What it wants.
    pub operation: Operation,
}

const OP_NULL: u8 = 1;
const OP_ALLOCATE: u8 = 2;
const OP_OPEN: u8 = 3;
const OP_RELEASE: u8 = 4;
const OP_GET: u8 = 5;
const OP_PUT: u8 = 6;
const OP_ATOMIC: u8 = 7;
const OP_AWAIT: u8 = 8;
const OP_LOCK: u8 = 9;
const OP_UNLOCK: u8 = 10;

/// The bytes are in the entry, or may come in the completion.
const FLAG_INLINE: u16 = 1;
/// `first` is the version that a put is for.
const FLAG_VERSION: u16 = 2;
/// `second` is the token that a put is made under.
const FLAG_TOKEN: u16 = 4;
/// A lock that others may share.
const FLAG_SHARED: u16 = 8;
/// A lock only if it is free.
const FLAG_NO_WAIT: u16 = 16;

/// A request that could not be read: what to answer, and to which of the client's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The request id as it stood there.
    pub id: RequestId,
    /// Why.
    pub failure: Failure,
}

impl Request {
    /// A request with the usual deadline.
    pub const fn new(id: RequestId, operation: Operation) -> Self {
        Self { id, timeout_us: TIMEOUT_DEFAULT_US, operation }
    }

    /// As a ring entry; the ring puts its sequence into the low half of the first word.
    pub fn encode(&self) -> Entry {
        let mut entry = [0; 8];
        entry[1] = self.id.0;
        let mut slot = 0;
        let mut flags = 0;
        let op = match self.operation {
            Operation::Null => OP_NULL,
            Operation::Allocate { spec_and_name: range } | Operation::Open { name: range } => {
                entry[4] = range.bytes as u64;
                slot = range.slot;
                if matches!(self.operation, Operation::Open { .. }) { OP_OPEN } else { OP_ALLOCATE }
            }
            Operation::Release { segment } => {
                entry[2] = segment.to_bits();
                OP_RELEASE
            }
            Operation::Get { segment, offset, into, inline } => {
                (entry[2], entry[3], entry[4]) = (segment.to_bits(), offset, into.bytes as u64);
                slot = into.slot;
                flags = if inline { FLAG_INLINE } else { 0 };
                OP_GET
            }
            Operation::Put { segment, offset, from, terms } => {
                (entry[2], entry[3], entry[4]) = (segment.to_bits(), offset, from.length() as u64);
                match from {
                    Payload::Arena(range) => {
                        slot = range.slot;
                        (entry[6], entry[7]) = terms.to_words();
                        flags = if terms.version.is_some() { FLAG_VERSION } else { 0 };
                        flags |= if terms.token.is_some() { FLAG_TOKEN } else { 0 };
                    }
                    Payload::Inline { bytes, .. } => {
                        debug_assert!(terms == Terms::default(), "a put with terms has its bytes in the arena");
                        flags = FLAG_INLINE;
                        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
                        (entry[6], entry[7]) = (word(0), word(8));
                    }
                }
                OP_PUT
            }
            Operation::Atomic { segment, offset, change } => {
                let (kind, first, second) = change.to_parts();
                (entry[2], entry[3], entry[4]) = (segment.to_bits(), offset, kind.into());
                (entry[6], entry[7]) = (first, second);
                OP_ATOMIC
            }
            Operation::Await { segment, above } => {
                (entry[2], entry[6]) = (segment.to_bits(), above.0);
                OP_AWAIT
            }
            Operation::Lock { segment, wish } => {
                (entry[2], entry[6]) = (segment.to_bits(), wish.lease_us.into());
                flags = if wish.shared { FLAG_SHARED } else { 0 } | if wish.no_wait { FLAG_NO_WAIT } else { 0 };
                OP_LOCK
            }
            Operation::Unlock { segment, token } => {
                (entry[2], entry[6]) = (segment.to_bits(), token.0);
                OP_UNLOCK
            }
        };
        entry[0] = (op as u64) << 32 | (flags as u64) << 48;
        entry[5] = self.timeout_us as u64 | (slot as u64) << 32;
        entry
    }

    /// Reads a copied entry and believes none of it.
    #[inline]
    pub fn decode(entry: &Entry) -> Result<Self, Refused> {
        let id = RequestId(entry[1]);
        let refuse = |failure| Refused { id, failure };
        let timeout_us = match entry[5] as u32 {
            0 => TIMEOUT_DEFAULT_US,
            wanted => wanted.min(TIMEOUT_MAX_US),
        };
        let operation = Self::decode_operation(entry).map_err(refuse)?;
        Ok(Self { id, timeout_us, operation })
    }

    #[inline]
    fn decode_operation(entry: &Entry) -> Result<Operation, Failure> {
        let flags = (entry[0] >> 48) as u16;
        let segment = SegmentId::from_bits(entry[2]);
        let offset = entry[3];
        let bytes = u32::try_from(entry[4]).map_err(|_| Failure::TooLarge)?;
        let range = ArenaRange { slot: (entry[5] >> 32) as u32, bytes };
        let inline = flags & FLAG_INLINE != 0;
        let op = (entry[0] >> 32) as u8;
        let known = match op {
            OP_GET => FLAG_INLINE,
            OP_PUT if inline => FLAG_INLINE,
            OP_PUT => FLAG_VERSION | FLAG_TOKEN,
            OP_LOCK => FLAG_SHARED | FLAG_NO_WAIT,
            _ => 0,
        };
        if flags & !known != 0 || (entry[0] >> 40) as u8 != 0 {
            return Err(Failure::Malformed);
        }
        match op {
            OP_NULL => Ok(Operation::Null),
            OP_ALLOCATE if bytes as usize <= Spec::ENCODED_BYTES + NAME_BYTES_MAX => {
                Ok(Operation::Allocate { spec_and_name: range })
            }
            OP_OPEN if bytes as usize <= NAME_BYTES_MAX => Ok(Operation::Open { name: range }),
            OP_ALLOCATE | OP_OPEN => Err(Failure::BadName),
            OP_RELEASE => Ok(Operation::Release { segment }),
            OP_GET | OP_PUT if bytes as usize > TRANSFER_BYTES_MAX => Err(Failure::TooLarge),
            OP_GET if inline && bytes as usize > INLINE_REPLY_BYTES_MAX => Err(Failure::Malformed),
            OP_GET => Ok(Operation::Get { segment, offset, into: range, inline }),
            OP_PUT if inline && bytes as usize > INLINE_REQUEST_BYTES_MAX => Err(Failure::Malformed),
            OP_PUT if inline => {
                let mut held = [0; INLINE_REQUEST_BYTES_MAX];
                held[..8].copy_from_slice(&entry[6].to_le_bytes());
                held[8..].copy_from_slice(&entry[7].to_le_bytes());
                held[bytes as usize..].fill(0);
                let from = Payload::Inline { bytes: held, length: bytes as u8 };
                Ok(Operation::Put { segment, offset, from, terms: Terms::default() })
            }
            OP_PUT => {
                let version = (flags & FLAG_VERSION != 0).then_some(Version(entry[6]));
                let token = (flags & FLAG_TOKEN != 0).then_some(LockToken(entry[7]));
                let from = Payload::Arena(range);
                Ok(Operation::Put { segment, offset, from, terms: Terms { version, token } })
            }
            OP_ATOMIC if !offset.is_multiple_of(8) => Err(Failure::Unaligned),
            OP_ATOMIC => {
                let kind = u8::try_from(bytes).map_err(|_| Failure::Malformed)?;
                let change = Change::from_parts(kind, entry[6], entry[7])?;
                Ok(Operation::Atomic { segment, offset, change })
            }
            OP_AWAIT => Ok(Operation::Await { segment, above: Version(entry[6]) }),
            OP_LOCK => {
                let lease_us = u32::try_from(entry[6]).unwrap_or(u32::MAX).clamp(1, LEASE_MAX_US);
                let (shared, no_wait) = (flags & FLAG_SHARED != 0, flags & FLAG_NO_WAIT != 0);
                Ok(Operation::Lock { segment, wish: LockWish { shared, no_wait, lease_us } })
            }
            OP_UNLOCK => Ok(Operation::Unlock { segment, token: LockToken(entry[6]) }),
            _ => Err(Failure::Unsupported),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn operations() -> impl Strategy<Value = Operation> {
        let segment = any::<u64>().prop_map(SegmentId::from_bits);
        let range = |most: usize| (any::<u32>(), 0..=most as u32).prop_map(|(slot, bytes)| ArenaRange { slot, bytes });
        prop_oneof![
            Just(Operation::Null),
            range(Spec::ENCODED_BYTES + NAME_BYTES_MAX).prop_map(|spec_and_name| Operation::Allocate { spec_and_name }),
            range(NAME_BYTES_MAX).prop_map(|name| Operation::Open { name }),
            segment.clone().prop_map(|segment| Operation::Release { segment }),
            (segment.clone(), any::<u64>(), range(INLINE_REPLY_BYTES_MAX), any::<bool>())
                .prop_map(|(segment, offset, into, inline)| Operation::Get { segment, offset, into, inline }),
            (segment.clone(), any::<u64>(), range(TRANSFER_BYTES_MAX)).prop_map(|(segment, offset, range)| {
                Operation::Put { segment, offset, from: Payload::Arena(range), terms: Terms::default() }
            }),
            (segment.clone(), any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(segment, offset, a, b)| {
                let from = Payload::Arena(ArenaRange { slot: 1, bytes: 9 });
                let terms = Terms { version: Some(Version(a)), token: Some(LockToken(b)) };
                Operation::Put { segment, offset, from, terms }
            }),
            (segment.clone(), 0..1_000_000u64, 1..=3u8, any::<u64>(), any::<u64>()).prop_map(
                |(segment, word, kind, a, b)| {
                    let b = if kind == 3 { b } else { 0 };
                    let change = Change::from_parts(kind, a, b).expect("a good kind");
                    Operation::Atomic { segment, offset: word * 8, change }
                }
            ),
            (segment.clone(), any::<u64>())
                .prop_map(|(segment, above)| Operation::Await { segment, above: Version(above) }),
            (segment.clone(), any::<bool>(), any::<bool>(), 1..=LEASE_MAX_US).prop_map(
                |(segment, shared, no_wait, lease_us)| {
                    Operation::Lock { segment, wish: LockWish { shared, no_wait, lease_us } }
                }
            ),
            (segment.clone(), any::<u64>())
                .prop_map(|(segment, token)| { Operation::Unlock { segment, token: LockToken(token) } }),
            (segment, any::<u64>(), any::<[u8; 16]>(), 0..=16u8).prop_map(|(segment, offset, mut bytes, length)| {
                bytes[length as usize..].fill(0);
                Operation::Put { segment, offset, from: Payload::Inline { bytes, length }, terms: Terms::default() }
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_request_survives_the_ring(operation in operations(), id in any::<u64>(), timeout_us in 1..=TIMEOUT_MAX_US) {
            // If this broke, a put could land somewhere else than where the client said.
            let request = Request { id: RequestId(id), timeout_us, operation };
            let mut entry = request.encode();
            entry[0] |= 0xffff_ffff; // the ring's half is nobody else's business
            prop_assert_eq!(Request::decode(&entry), Ok(request));
        }

        #[test]
        fn no_entry_makes_the_reader_panic(entry in any::<[u64; 8]>()) {
            // If this broke, a lying client could end the daemon.
            if let Ok(request) = Request::decode(&entry) {
                prop_assert!(request.timeout_us <= TIMEOUT_MAX_US && request.timeout_us > 0);
                if let Operation::Get { into, .. } = request.operation {
                    prop_assert!(into.bytes as usize <= TRANSFER_BYTES_MAX);
                }
            }
        }
    }

    #[test]
    fn an_arena_range_never_wraps() {
        // If this broke, a slot number could name memory outside the arena.
        let range = ArenaRange { slot: u32::MAX, bytes: u32::MAX };
        assert!(!range.fits(1 << 30));
        assert!(ArenaRange { slot: 1, bytes: 4096 }.fits(8192));
        assert!(!ArenaRange { slot: 1, bytes: 4097 }.fits(8192));
    }
}
