//! What engines say to each other. Little-endian, each field checked on the way in; the receiver works on a copy.
//!
//! A message is one byte of kind, then the fields of that kind in the order of its declaration, then the tail: names,
//! and what stands behind a put, a get, what was got, a list and its page.

use crate::failure::{Failure, Outcome};
use crate::limits::{LIST_TEXT_BYTES_MAX, MESSAGE_BYTES_MAX, STAGING_BYTES};
use crate::listing::Listing;
use crate::model::Model;
use crate::operation::{Change, LockToken, LockWish, Look, Permit, Terms};
use crate::ranges::Ranges;
use crate::segment::{Identity, Name, Permissions};
use crate::spec::Spec;
use crate::wire::{Reader, Writer};
use crate::{SegmentId, Timestamp, Version};
use arrayvec::ArrayVec;

/// A key to a piece of another node's memory, for one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteWindow {
    /// The fabric's key.
    pub key: u32,
    /// The address of the first byte.
    pub base: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// What every node may know about a segment: as much as a get or put from afar needs.
///
/// ```
/// use ddss_core::{Facts, Identity, Model, NodeId, Permissions, SegmentId, Wish};
/// let owner = Identity { uid: 1000, gid: 50 };
/// let permissions = Permissions { owner, mode: 0o600 };
/// let segment = SegmentId::new(NodeId(2), 0, 1);
/// let facts = Facts { segment, bytes: 4096, model: Model::Strict, permissions, keeps: 0 };
/// assert_eq!(facts.segment.home(), NodeId(2));
/// assert!(facts.permissions.allow(Identity { uid: 7, gid: 7 }, Wish::Read).is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Which segment.
    pub segment: SegmentId,
    /// Its size.
    pub bytes: u64,
    /// Its coherence.
    pub model: Model,
    /// Who may.
    pub permissions: Permissions,
    /// How many versions before the newest one it keeps.
    pub keeps: u32,
}

/// One message. `step` is the asker's own number for what it waits for and comes back in the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// First on every connection: where the sender takes bytes that the receiver wants to put.
    Welcome {
        /// The staging memory.
        staging: RemoteWindow,
    },
    /// Is a segment of this name at home with you?
    Lookup {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Identity,
        /// The name.
        name: Name,
    },
    /// Tell me about this segment (the asker lost its notes, or never had any).
    Describe {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Identity,
        /// Which.
        segment: SegmentId,
    },
    /// Make a segment at your place.
    Allocate {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Identity,
        /// What.
        spec: Spec,
        /// Its name.
        name: Name,
    },
    /// Here it is.
    Found {
        /// The asker's number.
        step: u64,
        /// What it is.
        facts: Facts,
        /// Its memory: header line and bytes.
        window: RemoteWindow,
    },
    /// Commit these bytes: the tail of the message, or what was written into staging memory before it. With `ranges`
    /// the tail is their table, and the bytes are staged.
    Put {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Identity,
        /// Which segment.
        segment: SegmentId,
        /// To where.
        offset: u64,
        /// How many bytes.
        length: u32,
        /// Where they are in the staging memory; `u64::MAX` if they are the tail.
        staged: u64,
        /// Ranges in the table; 0 if there is none, and the bytes go to `offset`.
        ranges: u8,
        /// Under what conditions.
        terms: Terms,
        /// How long the asker waits, in microseconds.
        timeout_us: u32,
    },
    /// Change one word.
    Atomic {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Identity,
        /// Which segment.
        segment: SegmentId,
        /// Where.
        offset: u64,
        /// How.
        change: Change,
        /// Under which lock, if under one.
        token: Option<LockToken>,
        /// How long the asker waits, in microseconds.
        timeout_us: u32,
    },
    /// Answer when the version is above this one.
    Await {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Identity,
        /// Which segment.
        segment: SegmentId,
        /// Above which version.
        above: Version,
        /// How long the asker waits, in microseconds.
        timeout_us: u32,
    },
    /// Give me the lock.
    Lock {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Identity,
        /// Which segment.
        segment: SegmentId,
        /// How.
        wish: LockWish,
        /// How long the asker waits, in microseconds.
        timeout_us: u32,
    },
    /// Take the lock back. `step` is zero if nobody waits for an answer.
    Unlock {
        /// The asker's number.
        step: u64,
        /// Which segment.
        segment: SegmentId,
        /// Which grant.
        token: LockToken,
    },
    /// Take the segment away.
    Release {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Identity,
        /// Which.
        segment: SegmentId,
    },
    /// The end of whatever was asked for.
    Ended {
        /// The asker's number.
        step: u64,
        /// How.
        outcome: Outcome,
        /// The version made.
        version: Version,
        /// When.
        timestamp: Timestamp,
        /// The word that was there before, or the token.
        word: u64,
    },
    /// The segment is gone: read it no more, then say so.
    Forget {
        /// Which.
        segment: SegmentId,
    },
    /// No read of that segment is under way here any more, and none will start.
    Forgotten {
        /// Which.
        segment: SegmentId,
    },
    /// Read this for me, in order with everything else that is done to the segment. The tail is the table of ranges.
    Get {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Identity,
        /// Which segment.
        segment: SegmentId,
        /// From where.
        offset: u64,
        /// How many bytes.
        length: u32,
        /// Ranges in the table; 0 if there is none.
        ranges: u8,
        /// Which version, and how it is looked at.
        look: Look,
        /// The lock that the asker's client holds, if it holds one.
        token: Option<LockToken>,
        /// How long the asker waits, in microseconds.
        timeout_us: u32,
    },
    /// Here are the bytes: the tail, or written into the asker's staging memory before this.
    Got {
        /// The asker's number.
        step: u64,
        /// Whose bytes.
        version: Version,
        /// When that version was made.
        timestamp: Timestamp,
        /// How many.
        length: u32,
        /// Where they are in the staging memory; `u64::MAX` if they are the tail.
        staged: u64,
        /// The home's number for that place.
        number: u64,
    },
    /// The bytes of that number were taken out of the staging memory.
    Taken {
        /// As it came with [`Message::Got`].
        number: u64,
    },
    /// A page of your segments. The tail is the [`Query`](crate::Query).
    List {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Identity,
    },
    /// All facts of one segment, as a page of one.
    Stat {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Identity,
        /// Which.
        segment: SegmentId,
    },
    /// Here is the page: the tail.
    Listed {
        /// The asker's number.
        step: u64,
        /// Whether there are more.
        more: bool,
    },
    /// Change who may.
    Permit {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Identity,
        /// Which.
        segment: SegmentId,
        /// To what.
        permit: Permit,
    },
    /// Take the lock from whoever holds it.
    Break {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Identity,
        /// Which segment.
        segment: SegmentId,
    },
    /// One of the sender's segments is not as it was told.
    Changed {
        /// What it is now.
        facts: Facts,
    },
}

impl Message {
    /// The `staged` of a put whose bytes are in the message.
    pub const NOT_STAGED: u64 = u64::MAX;
    /// Bytes of data that fit behind the fields of a put, with room for a seal.
    pub const PUT_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 96;
    /// Bytes of the longest message before it is sealed.
    pub const PLAIN_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 16;

    /// As bytes; `tail` is the data of a put and empty otherwise.
    pub fn encode(&self, tail: &[u8]) -> ArrayVec<u8, { Message::PLAIN_BYTES_MAX }> {
        let mut out = Writer::<{ Message::PLAIN_BYTES_MAX }>::default();
        match *self {
            Message::Welcome { staging } => out.u8(1).window(staging),
            Message::Lookup { step, who, name } => out.u8(2).u64(step).identity(who).bytes(name.as_str().as_bytes()),
            Message::Describe { step, who, segment } => out.u8(3).u64(step).identity(who).u64(segment.to_bits()),
            Message::Allocate { step, who, spec, name } => {
                out.u8(4).u64(step).identity(who).bytes(&spec.encode()).bytes(name.as_str().as_bytes())
            }
            Message::Found { step, facts, window } => out.u8(5).u64(step).facts(&facts).window(window),
            Message::Put { step, who, segment, offset, length, staged, ranges, terms, timeout_us } => {
                out.u8(6).u64(step).identity(who).u64(segment.to_bits()).u64(offset).u32(length).u64(staged);
                out.u8(ranges).option(terms.version.map(|version| version.0)).option(terms.token.map(|token| token.0));
                out.model(terms.asks).u32(timeout_us).bytes(tail)
            }
            Message::Release { step, who, segment } => out.u8(7).u64(step).identity(who).u64(segment.to_bits()),
            Message::Ended { step, outcome, version, timestamp, word } => {
                let [kind, failure] = outcome.to_bytes();
                out.u8(8).u64(step).u8(kind).u8(failure).u64(version.0).u64(timestamp.0).u64(word)
            }
            Message::Forget { segment } => out.u8(9).u64(segment.to_bits()),
            Message::Forgotten { segment } => out.u8(10).u64(segment.to_bits()),
            Message::Atomic { step, who, segment, offset, change, token, timeout_us } => {
                let (kind, first, second) = change.to_parts();
                out.u8(11).u64(step).identity(who).u64(segment.to_bits()).u64(offset);
                out.u8(kind).u64(first).u64(second).option(token.map(|token| token.0)).u32(timeout_us)
            }
            Message::Await { step, who, segment, above, timeout_us } => {
                out.u8(12).u64(step).identity(who).u64(segment.to_bits()).u64(above.0).u32(timeout_us)
            }
            Message::Lock { step, who, segment, wish, timeout_us } => {
                let flags = u8::from(wish.shared) | u8::from(wish.no_wait) << 1;
                out.u8(13).u64(step).identity(who).u64(segment.to_bits()).u8(flags).u32(wish.lease_us).u32(timeout_us)
            }
            Message::Unlock { step, segment, token } => out.u8(14).u64(step).u64(segment.to_bits()).u64(token.0),
            Message::Get { step, who, segment, offset, length, ranges, look, token, timeout_us } => {
                out.u8(15).u64(step).identity(who).u64(segment.to_bits()).u64(offset).u32(length).u8(ranges);
                out.model(look.asks).option(look.version.map(|version| version.0));
                out.option(token.map(|token| token.0)).u32(timeout_us).bytes(tail)
            }
            Message::Got { step, version, timestamp, length, staged, number } => {
                out.u8(16).u64(step).u64(version.0).u64(timestamp.0).u32(length).u64(staged).u64(number).bytes(tail)
            }
            Message::Taken { number } => out.u8(17).u64(number),
            Message::List { step, who } => out.u8(18).u64(step).identity(who).bytes(tail),
            Message::Stat { step, who, segment } => out.u8(19).u64(step).identity(who).u64(segment.to_bits()),
            Message::Listed { step, more } => out.u8(20).u64(step).u8(more.into()).bytes(tail),
            Message::Permit { step, who, segment, permit } => {
                let [bits, owner] = permit.to_words();
                out.u8(21).u64(step).identity(who).u64(segment.to_bits()).u64(bits).u64(owner)
            }
            Message::Changed { facts } => out.u8(22).facts(&facts),
            Message::Break { step, who, segment } => out.u8(23).u64(step).identity(who).u64(segment.to_bits()),
        };
        out.0
    }

    /// Reads a copied message; returns it with its tail.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), Failure> {
        let mut input = Reader(bytes);
        let kind = input.u8()?;
        let message = match kind {
            1 => Message::Welcome { staging: input.window()? },
            2 => Message::Lookup { step: input.u64()?, who: input.identity()?, name: input.name()? },
            3 => Message::Describe { step: input.u64()?, who: input.identity()?, segment: input.segment()? },
            4 => Message::Allocate {
                step: input.u64()?,
                who: input.identity()?,
                spec: Spec::decode(&input.array()?)?,
                name: input.name()?,
            },
            5 => Message::Found { step: input.u64()?, facts: input.facts()?, window: input.window()? },
            6 => Message::Put {
                step: input.u64()?,
                who: input.identity()?,
                segment: input.segment()?,
                offset: input.u64()?,
                length: input.u32()?,
                staged: input.u64()?,
                ranges: input.ranges()?,
                terms: input.terms()?,
                timeout_us: input.u32()?,
            },
            7 => Message::Release { step: input.u64()?, who: input.identity()?, segment: input.segment()? },
            8 => Message::Ended {
                step: input.u64()?,
                outcome: Outcome::from_bytes(input.array()?),
                version: Version(input.u64()?),
                timestamp: Timestamp(input.u64()?),
                word: input.u64()?,
            },
            9 => Message::Forget { segment: input.segment()? },
            10 => Message::Forgotten { segment: input.segment()? },
            11 => Message::Atomic {
                step: input.u64()?,
                who: input.identity()?,
                segment: input.segment()?,
                offset: input.u64()?,
                change: Change::from_parts(input.u8()?, input.u64()?, input.u64()?)?,
                token: input.option()?.map(LockToken),
                timeout_us: input.u32()?,
            },
            12 => Message::Await {
                step: input.u64()?,
                who: input.identity()?,
                segment: input.segment()?,
                above: Version(input.u64()?),
                timeout_us: input.u32()?,
            },
            13 => Message::Lock {
                step: input.u64()?,
                who: input.identity()?,
                segment: input.segment()?,
                wish: input.wish()?,
                timeout_us: input.u32()?,
            },
            14 => Message::Unlock { step: input.u64()?, segment: input.segment()?, token: LockToken(input.u64()?) },
            15 => Message::Get {
                step: input.u64()?,
                who: input.identity()?,
                segment: input.segment()?,
                offset: input.u64()?,
                length: input.u32()?,
                ranges: input.ranges()?,
                look: Look { asks: input.model()?, version: input.option()?.map(Version) },
                token: input.option()?.map(LockToken),
                timeout_us: input.u32()?,
            },
            16 => Message::Got {
                step: input.u64()?,
                version: Version(input.u64()?),
                timestamp: Timestamp(input.u64()?),
                length: input.u32()?,
                staged: input.u64()?,
                number: input.u64()?,
            },
            17 => Message::Taken { number: input.u64()? },
            18 => Message::List { step: input.u64()?, who: input.identity()? },
            19 => Message::Stat { step: input.u64()?, who: input.identity()?, segment: input.segment()? },
            20 => Message::Listed { step: input.u64()?, more: input.u8()? != 0 },
            21 => Message::Permit {
                step: input.u64()?,
                who: input.identity()?,
                segment: input.segment()?,
                permit: Permit::from_words([input.u64()?, input.u64()?])?,
            },
            22 => Message::Changed { facts: input.facts()? },
            23 => Message::Break { step: input.u64()?, who: input.identity()?, segment: input.segment()? },
            _ => return Err(Failure::Malformed),
        };
        if message.allows_tail(input.0.len()) { Ok((message, input.0)) } else { Err(Failure::Malformed) }
    }

    /// Whether so many bytes may stand behind the fields.
    fn allows_tail(&self, bytes: usize) -> bool {
        let placed = |staged: u64, length: u32| staged.saturating_add(length.into()) <= STAGING_BYTES as u64;
        let table = |ranges: u8| bytes == usize::from(ranges) * Ranges::ENTRY_BYTES;
        match *self {
            Message::Put { ranges: 0, staged: Self::NOT_STAGED, length, .. } => bytes == length as usize,
            Message::Put { ranges, staged, length, .. } => table(ranges) && placed(staged, length),
            Message::Get { ranges, .. } => table(ranges),
            Message::Got { staged: Self::NOT_STAGED, length, .. } => bytes == length as usize,
            Message::Got { staged, length, .. } => bytes == 0 && placed(staged, length),
            Message::Listed { .. } => bytes <= Listing::PAGE_BYTES,
            Message::List { .. } => bytes <= LIST_TEXT_BYTES_MAX,
            _ => bytes == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;
    use proptest::prelude::*;

    #[test]
    fn every_message_survives_the_wire() {
        // If this broke, a home would commit other bytes, or at another place, than the asker meant.
        let who = Identity { uid: 1, gid: 2 };
        let name = Name::new(&"n".repeat(128)).expect("a good name");
        let segment = SegmentId::new(NodeId(1), 2, 3);
        let permissions = Permissions { owner: who, mode: 0o640 };
        let facts = Facts { segment, bytes: 4096, model: Model::Temporal(5), permissions, keeps: 7 };
        let window = RemoteWindow { key: 1, base: 2, bytes: 3 };
        let terms = Terms { version: Some(Version(6)), token: None, asks: Some(Model::Strict) };
        let look = Look { asks: Some(Model::Delta(4)), version: Some(Version(8)) };
        let permit = Permit { mode: Some(0o640), owner: Some(who) };
        let (token, version, timestamp) = (Some(LockToken(9)), Version(1), Timestamp(2));
        let wish = LockWish { shared: true, no_wait: false, lease_us: 7 };
        let all = [
            Message::Welcome { staging: window },
            Message::Lookup { step: 1, who, name },
            Message::Describe { step: 1, who, segment },
            Message::Allocate { step: 1, who, spec: Spec::new(9), name },
            Message::Found { step: 1, facts, window },
            Message::Put { step: 1, who, segment, offset: 2, length: 3, staged: 4, ranges: 0, terms, timeout_us: 5 },
            Message::Atomic { step: 1, who, segment, offset: 8, change: Change::Add(3), token, timeout_us: 5 },
            Message::Await { step: 1, who, segment, above: Version(3), timeout_us: 5 },
            Message::Lock { step: 1, who, segment, wish, timeout_us: 5 },
            Message::Unlock { step: 1, segment, token: LockToken(9) },
            Message::Release { step: 1, who, segment },
            Message::Ended { step: 1, outcome: Outcome::Done, version, timestamp, word: 3 },
            Message::Get { step: 1, who, segment, offset: 2, length: 3, ranges: 0, look, token, timeout_us: 4 },
            Message::Got { step: 1, version, timestamp, length: 3, staged: 4, number: 5 },
            Message::Taken { number: 6 },
            Message::List { step: 1, who },
            Message::Stat { step: 1, who, segment },
            Message::Listed { step: 1, more: true },
            Message::Permit { step: 1, who, segment, permit },
            Message::Changed { facts },
            Message::Break { step: 1, who, segment },
            Message::Forget { segment },
            Message::Forgotten { segment },
        ];
        for message in all {
            let bytes = message.encode(&[]);
            assert_eq!(Message::decode(&bytes), Ok((message, &[][..])));
            for cut in 0..bytes.len() {
                let short = Message::decode(&bytes[..cut]);
                assert!(short.is_err() || matches!(message, Message::Lookup { .. } | Message::Allocate { .. }));
            }
        }
        let (length, staged) = (Message::PUT_BYTES_MAX as u32, Message::NOT_STAGED);
        let put = Message::Put { step: 1, who, segment, offset: 2, length, staged, ranges: 0, terms, timeout_us: 1 };
        let tail = [7; Message::PUT_BYTES_MAX];
        assert_eq!(Message::decode(&put.encode(&tail)), Ok((put, &tail[..])));
        assert_eq!(Message::decode(&put.encode(&tail[1..])), Err(Failure::Malformed));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..MESSAGE_BYTES_MAX)) {
            // If this broke, a peer could end the daemon.
            let _ = Message::decode(&bytes);
            let _ = crate::PeerHello::decode(&bytes);
        }
    }
}
