//! What a client asks for.

use crate::failure::Failure;
use crate::limits::{ARENA_SLOT_BYTES, INLINE_REQUEST_BYTES_MAX};
use crate::model::coherence::Model;
use crate::model::segment::Principal;
use crate::{NodeId, RequestId, SegmentId, Version};

/// A run of bytes in the arena of the client that asks. The daemon checks it against the arena's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaRange {
    /// The first slot.
    pub slot: u32,
    /// Bytes from the start of that slot.
    pub bytes: u32,
}

impl ArenaRange {
    /// For who does not know yet where: [`Operation::with_range`] fills it in.
    pub const NOWHERE: Self = Self { slot: 0, bytes: 0 };

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
    /// Make a segment; [`Spec`](crate::Spec) and name lie in the arena.
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
    /// Read bytes. Up to [`INLINE_REPLY_BYTES_MAX`](crate::limits::INLINE_REPLY_BYTES_MAX) may come in the completion.
    Get {
        /// Which.
        segment: SegmentId,
        /// From where.
        offset: u64,
        /// How many, and where they go.
        into: ArenaRange,
        /// Whether the completion may carry them instead.
        inline: bool,
        /// Which version, and how it is looked at.
        look: ReadOptions,
    },
    /// Read several ranges of one version. The table of [`Ranges`](crate::Ranges) lies in the first slot of a run of the
    /// arena; the bytes go into the slots behind it, one range behind the other.
    GetMany {
        /// Which.
        segment: SegmentId,
        /// Table and bytes.
        list: ArenaRange,
        /// Ranges in the table.
        ranges: u8,
        /// Which version, and how it is looked at.
        look: ReadOptions,
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
        terms: PutConditions,
    },
    /// Write several ranges as one version. Table and bytes lie as with [`GetMany`](Operation::GetMany).
    PutMany {
        /// Which.
        segment: SegmentId,
        /// Table and bytes.
        list: ArenaRange,
        /// Ranges in the table.
        ranges: u8,
        /// Under what conditions.
        terms: PutConditions,
    },
    /// Change one aligned word, and tell what was there before.
    Atomic {
        /// Which.
        segment: SegmentId,
        /// Where.
        offset: u64,
        /// How.
        change: AtomicOp,
        /// Under which lock, if under one.
        token: Option<LockToken>,
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
        wish: LockRequest,
    },
    /// Let the lock go.
    Unlock {
        /// Which.
        segment: SegmentId,
        /// The token that came with it.
        token: LockToken,
    },
    /// A page of the segments at home at one node: [`Query`](crate::ListQuery) in the arena, the page over it.
    List {
        /// The first node that can be reached and whose id is not below this one.
        node: NodeId,
        /// Where the query is.
        text: ArenaRange,
    },
    /// All facts of one segment, as a page of one.
    Stat {
        /// Which.
        segment: SegmentId,
        /// Where the page goes.
        page: ArenaRange,
    },
    /// Change who may.
    Permit {
        /// Which.
        segment: SegmentId,
        /// To what.
        permit: PermissionUpdate,
    },
    /// Take the lock from whoever holds it; the completion says how many did.
    Break {
        /// Which.
        segment: SegmentId,
    },
    /// End a request of the same lane that still waits for another caller. It gets its own completion, as ever.
    Cancel {
        /// The segment of that request.
        segment: SegmentId,
        /// Which request.
        request: RequestId,
    },
}

/// New permissions: what is given changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PermissionUpdate {
    /// The nine Unix bits.
    pub mode: Option<u16>,
    /// Who owns it.
    pub owner: Option<Principal>,
}

impl PermissionUpdate {
    const HAS_MODE: u64 = 1 << 16;
    const HAS_OWNER: u64 = 1 << 17;

    /// As two words, for requests and messages: the bits with what is given (bit 16: they are, bit 17: an owner is), and
    /// the owner, its user in the low half.
    pub(crate) fn to_words(self) -> [u64; 2] {
        let bits = self.mode.map_or(0, |mode| Self::HAS_MODE | u64::from(mode));
        let owner = self.owner.map_or(0, |owner| u64::from(owner.gid) << 32 | u64::from(owner.uid));
        [bits | if self.owner.is_some() { Self::HAS_OWNER } else { 0 }, owner]
    }

    /// Reads and checks what [`to_words`](Self::to_words) wrote.
    pub(crate) fn from_words([bits, owner]: [u64; 2]) -> Result<Self, Failure> {
        let permit = Self {
            mode: (bits & Self::HAS_MODE != 0).then_some(bits as u16 & 0o777),
            owner: (bits & Self::HAS_OWNER != 0).then_some(Principal { uid: owner as u32, gid: (owner >> 32) as u32 }),
        };
        // Bits that no permission has, and an owner that was not said to be one.
        if permit.to_words() == [bits, owner] { Ok(permit) } else { Err(Failure::Malformed) }
    }
}

impl Operation {
    /// The same with another place in the arena, if it has one there.
    #[must_use]
    pub const fn with_range(mut self, range: ArenaRange) -> Self {
        match &mut self {
            Operation::Allocate { spec_and_name: place }
            | Operation::Open { name: place }
            | Operation::Get { into: place, .. }
            | Operation::GetMany { list: place, .. }
            | Operation::Put { from: Payload::Arena(place), .. }
            | Operation::PutMany { list: place, .. }
            | Operation::List { text: place, .. }
            | Operation::Stat { page: place, .. } => *place = range,
            _ => {}
        }
        self
    }

    /// The segment that it is about.
    pub(crate) const fn segment(&self) -> Option<SegmentId> {
        match *self {
            Operation::Null | Operation::Allocate { .. } | Operation::Open { .. } | Operation::List { .. } => None,
            Operation::Release { segment }
            | Operation::Get { segment, .. }
            | Operation::GetMany { segment, .. }
            | Operation::Put { segment, .. }
            | Operation::PutMany { segment, .. }
            | Operation::Atomic { segment, .. }
            | Operation::Await { segment, .. }
            | Operation::Lock { segment, .. }
            | Operation::Unlock { segment, .. }
            | Operation::Stat { segment, .. }
            | Operation::Break { segment }
            | Operation::Cancel { segment, .. }
            | Operation::Permit { segment, .. } => Some(segment),
        }
    }

    /// Returns true if it may wait for another caller, behind a lock or for a version: [`Cancel`](Operation::Cancel) ends it.
    pub const fn may_wait(&self) -> bool {
        matches!(
            self,
            Operation::Get { .. }
                | Operation::GetMany { .. }
                | Operation::Put { .. }
                | Operation::PutMany { .. }
                | Operation::Atomic { .. }
                | Operation::Await { .. }
                | Operation::Lock { .. }
        )
    }

    /// The lock that it is made under.
    pub const fn token(&self) -> Option<LockToken> {
        match *self {
            Operation::Put { terms, .. } | Operation::PutMany { terms, .. } => terms.token,
            Operation::Atomic { token, .. } => token,
            Operation::Unlock { token, .. } => Some(token),
            _ => None,
        }
    }

    /// Whether it leaves nothing behind when nobody waits for its end: a look, or a lock, which is given back.
    pub const fn is_harmless(&self) -> bool {
        match self {
            Operation::Null
            | Operation::Open { .. }
            | Operation::Get { .. }
            | Operation::GetMany { .. }
            | Operation::List { .. }
            | Operation::Stat { .. }
            | Operation::Await { .. }
            | Operation::Lock { .. }
            | Operation::Cancel { .. } => true,
            Operation::Allocate { .. }
            | Operation::Release { .. }
            | Operation::Put { .. }
            | Operation::PutMany { .. }
            | Operation::Permit { .. }
            | Operation::Break { .. }
            | Operation::Atomic { .. }
            | Operation::Unlock { .. } => false,
        }
    }
}

/// How a get looks at its segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadOptions {
    /// At least as strictly as this model says.
    pub asks: Option<Model>,
    /// This version, and not the newest one.
    pub version: Option<Version>,
}

/// Under what conditions a put commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PutConditions {
    /// Only on this version.
    pub version: Option<Version>,
    /// Only while this lock is held.
    pub token: Option<LockToken>,
    /// At least as strictly as this model says.
    pub asks: Option<Model>,
}

impl PutConditions {
    /// As the two words that travel: version and token, zero where there is none (the flags say which).
    pub(crate) const fn to_words(self) -> (u64, u64) {
        let version = if let Some(version) = self.version { version.0 } else { 0 };
        let token = if let Some(token) = self.token { token.0 } else { 0 };
        (version, token)
    }

    /// Whether they leave room for bytes in the request itself.
    pub const fn allow_inline(&self) -> bool {
        self.version.is_none() && self.token.is_none()
    }
}

/// A lock that was granted: a number that no other grant of this home has, greater than all before. Zero is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LockToken(pub u64);

/// What kind of lock is asked for, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockRequest {
    /// Together with others that ask for the same, or alone.
    pub shared: bool,
    /// Only if it is free now.
    pub no_wait: bool,
    /// How long it is held at the most, in microseconds.
    pub lease_us: u32,
}

/// A change of one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
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

impl AtomicOp {
    /// What will be in the word, if that is not what is there already and stays.
    pub const fn apply(self, old: u64) -> Option<u64> {
        match self {
            AtomicOp::Add(add) => Some(old.wrapping_add(add)),
            AtomicOp::Swap(new) => Some(new),
            AtomicOp::CompareSwap { expected, new } if expected == old => Some(new),
            AtomicOp::CompareSwap { .. } => None,
        }
    }

    /// As a kind and two words.
    pub const fn to_parts(self) -> (u8, u64, u64) {
        match self {
            AtomicOp::Add(add) => (1, add, 0),
            AtomicOp::Swap(new) => (2, new, 0),
            AtomicOp::CompareSwap { expected, new } => (3, expected, new),
        }
    }

    /// The change of that kind, if there is one.
    pub const fn from_parts(kind: u8, first: u64, second: u64) -> Result<Self, Failure> {
        match kind {
            1 => Ok(AtomicOp::Add(first)),
            2 => Ok(AtomicOp::Swap(first)),
            3 => Ok(AtomicOp::CompareSwap { expected: first, new: second }),
            _ => Err(Failure::Malformed),
        }
    }
}
