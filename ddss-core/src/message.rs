//! What engines say to each other, and the hello with which two nodes meet. Little-endian, each field checked on
//! the way in; the receiver works on a copy.
//!
//! A message is one byte of kind, then the fields of that kind in the order of its declaration, then (for
//! [`Message::Put`] with bytes, and for names) the tail.

use crate::failure::{Failure, Outcome};
use crate::limits::{LEASE_MAX_US, MESSAGE_BYTES_MAX, NODES_MAX};
use crate::request::{Change, LockToken, LockWish, Terms};
use crate::segment::{Identity, Model, Name, Permissions, Spec};
use crate::{NodeId, SegmentId, Timestamp, Version};
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
    /// Commit these bytes: the tail of the message, or `staged` bytes written before it.
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
        let mut out = Writer(ArrayVec::new());
        match *self {
            Message::Welcome { staging } => out.u8(1).window(staging),
            Message::Lookup { step, who, name } => out.u8(2).u64(step).identity(who).bytes(name.as_str().as_bytes()),
            Message::Describe { step, who, segment } => out.u8(3).u64(step).identity(who).u64(segment.to_bits()),
            Message::Allocate { step, who, spec, name } => {
                out.u8(4).u64(step).identity(who).bytes(&spec.encode()).bytes(name.as_str().as_bytes())
            }
            Message::Found { step, facts, window } => {
                let (kind, parameter) = facts.model.to_parts();
                out.u8(5).u64(step).u64(facts.segment.to_bits()).u64(facts.bytes).u8(kind).u32(parameter);
                out.identity(facts.permissions.owner).u32(facts.permissions.mode.into()).window(window)
            }
            Message::Put { step, who, segment, offset, length, staged, terms, timeout_us } => {
                out.u8(6).u64(step).identity(who).u64(segment.to_bits()).u64(offset).u32(length).u64(staged);
                out.option(terms.version.map(|version| version.0)).option(terms.token.map(|token| token.0));
                out.u32(timeout_us).bytes(tail)
            }
            Message::Release { step, who, segment } => out.u8(7).u64(step).identity(who).u64(segment.to_bits()),
            Message::Ended { step, outcome, version, timestamp, word } => {
                let [kind, failure] = outcome.to_bytes();
                out.u8(8).u64(step).u8(kind).u8(failure).u64(version.0).u64(timestamp.0).u64(word)
            }
            Message::Forget { segment } => out.u8(9).u64(segment.to_bits()),
            Message::Forgotten { segment } => out.u8(10).u64(segment.to_bits()),
            Message::Atomic { step, who, segment, offset, change, timeout_us } => {
                let (kind, first, second) = change.to_parts();
                out.u8(11).u64(step).identity(who).u64(segment.to_bits()).u64(offset);
                out.u8(kind).u64(first).u64(second).u32(timeout_us)
            }
            Message::Await { step, who, segment, above, timeout_us } => {
                out.u8(12).u64(step).identity(who).u64(segment.to_bits()).u64(above.0).u32(timeout_us)
            }
            Message::Lock { step, who, segment, wish, timeout_us } => {
                let flags = u8::from(wish.shared) | u8::from(wish.no_wait) << 1;
                out.u8(13).u64(step).identity(who).u64(segment.to_bits()).u8(flags).u32(wish.lease_us).u32(timeout_us)
            }
            Message::Unlock { step, segment, token } => out.u8(14).u64(step).u64(segment.to_bits()).u64(token.0),
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
                terms: Terms { version: input.option()?.map(Version), token: input.option()?.map(LockToken) },
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
            _ => return Err(Failure::Malformed),
        };
        match message {
            Message::Put { length, staged, .. }
                if staged == Message::NOT_STAGED && input.0.len() != length as usize =>
            {
                Err(Failure::Malformed)
            }
            Message::Put { staged, .. } if staged == Message::NOT_STAGED => Ok((message, input.0)),
            _ if input.0.is_empty() => Ok((message, input.0)),
            _ => Err(Failure::Malformed),
        }
    }
}

/// What a node says of itself while a connection is made: six bytes, sealed inside the handshake, since the private
/// data of a connection is narrow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerHello {
    /// Which node.
    pub node: NodeId,
    /// Which run of its daemon: a random number.
    pub run: u32,
}

impl PeerHello {
    /// The version of everything that peers say to each other, the handshake included.
    pub const PROTOCOL: u8 = 3;
    /// Bytes of an encoded one.
    pub const BYTES: usize = 6;

    /// As bytes, to be sealed.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..2].copy_from_slice(&self.node.0.to_le_bytes());
        out[2..].copy_from_slice(&self.run.to_le_bytes());
        out
    }

    /// Reads what the other side said, after it was opened.
    pub fn decode(bytes: &[u8]) -> Result<Self, HelloError> {
        let bytes: [u8; Self::BYTES] = bytes.try_into().map_err(|_| HelloError::NotOurs)?;
        let [low, high, run @ ..] = bytes;
        let node = NodeId(u16::from_le_bytes([low, high]));
        if node.0 as usize > NODES_MAX {
            return Err(HelloError::BadNode(node));
        }
        Ok(Self { node, run: u32::from_le_bytes(run) })
    }
}

/// Why a hello was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// Not a DDSS node.
    #[error("the other side is not a ddssd")]
    NotOurs,
    /// Another protocol.
    #[error("the other ddssd speaks peer protocol {theirs}, this one {ours}: run the same release on all nodes")]
    Version {
        /// What we speak.
        ours: u8,
        /// What they speak.
        theirs: u8,
    },
    /// No such node can be.
    #[error("the other ddssd calls itself {0}, which no node can be")]
    BadNode(NodeId),
}

struct Writer(ArrayVec<u8, { Message::PLAIN_BYTES_MAX }>);

impl Writer {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.try_extend_from_slice(bytes).expect("every message fits: fields and tails are bounded");
        self
    }
    fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }
    fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    fn option(&mut self, value: Option<u64>) -> &mut Self {
        self.u8(value.is_some().into()).u64(value.unwrap_or(0))
    }
    fn identity(&mut self, who: Identity) -> &mut Self {
        self.u32(who.uid).u32(who.gid)
    }
    fn window(&mut self, window: RemoteWindow) -> &mut Self {
        self.u32(window.key).u64(window.base).u64(window.bytes)
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Failure::Malformed)?;
        self.0 = rest;
        Ok(*head)
    }
    fn u8(&mut self) -> Result<u8, Failure> {
        self.array::<1>().map(|[byte]| byte)
    }
    fn u32(&mut self) -> Result<u32, Failure> {
        self.array().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Result<u64, Failure> {
        self.array().map(u64::from_le_bytes)
    }
    fn segment(&mut self) -> Result<SegmentId, Failure> {
        self.u64().map(SegmentId::from_bits)
    }
    fn identity(&mut self) -> Result<Identity, Failure> {
        Ok(Identity { uid: self.u32()?, gid: self.u32()? })
    }
    fn window(&mut self) -> Result<RemoteWindow, Failure> {
        Ok(RemoteWindow { key: self.u32()?, base: self.u64()?, bytes: self.u64()? })
    }
    fn name(&mut self) -> Result<Name, Failure> {
        Name::from_bytes(std::mem::take(&mut self.0))
    }
    fn option(&mut self) -> Result<Option<u64>, Failure> {
        let (there, value) = (self.u8()?, self.u64()?);
        match there {
            0 => Ok(None),
            1 => Ok(Some(value)),
            _ => Err(Failure::Malformed),
        }
    }
    fn wish(&mut self) -> Result<LockWish, Failure> {
        let (flags, lease_us) = (self.u8()?, self.u32()?);
        if flags > 3 || lease_us == 0 || lease_us > LEASE_MAX_US {
            return Err(Failure::Malformed);
        }
        Ok(LockWish { shared: flags & 1 != 0, no_wait: flags & 2 != 0, lease_us })
    }
    fn facts(&mut self) -> Result<Facts, Failure> {
        let (segment, bytes) = (self.segment()?, self.u64()?);
        let model = Model::from_parts(self.u8()?, self.u32()?)?;
        let (owner, mode) = (self.identity()?, self.u32()?);
        let mode = u16::try_from(mode).map_err(|_| Failure::Malformed)?;
        Ok(Facts { segment, bytes, model, permissions: Permissions { owner, mode } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_message_survives_the_wire() {
        // If this broke, a home would commit other bytes, or at another place, than the asker meant.
        let who = Identity { uid: 1, gid: 2 };
        let name = Name::new(&"n".repeat(128)).expect("a good name");
        let segment = SegmentId::new(NodeId(1), 2, 3);
        let permissions = Permissions { owner: who, mode: 0o640 };
        let facts = Facts { segment, bytes: 4096, model: Model::Temporal(5), permissions };
        let window = RemoteWindow { key: 1, base: 2, bytes: 3 };
        let terms = Terms { version: Some(Version(6)), token: None };
        let wish = LockWish { shared: true, no_wait: false, lease_us: 7 };
        let all = [
            Message::Welcome { staging: window },
            Message::Lookup { step: 1, who, name },
            Message::Describe { step: 1, who, segment },
            Message::Allocate { step: 1, who, spec: Spec::new(9), name },
            Message::Found { step: 1, facts, window },
            Message::Put { step: 1, who, segment, offset: 2, length: 3, staged: 4, terms, timeout_us: 5 },
            Message::Atomic { step: 1, who, segment, offset: 8, change: Change::Add(3), timeout_us: 5 },
            Message::Await { step: 1, who, segment, above: Version(3), timeout_us: 5 },
            Message::Lock { step: 1, who, segment, wish, timeout_us: 5 },
            Message::Unlock { step: 1, segment, token: LockToken(9) },
            Message::Release { step: 1, who, segment },
            Message::Ended { step: 1, outcome: Outcome::Done, version: Version(1), timestamp: Timestamp(2), word: 3 },
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
        let put = Message::Put { step: 1, who, segment, offset: 2, length, staged, terms, timeout_us: 1 };
        let tail = [7; Message::PUT_BYTES_MAX];
        assert_eq!(Message::decode(&put.encode(&tail)), Ok((put, &tail[..])));
        assert_eq!(Message::decode(&put.encode(&tail[1..])), Err(Failure::Malformed));
    }

    #[test]
    fn a_hello_says_which_node_and_which_run() {
        // If this broke, a node would be taken for another, or a restart for the run before.
        let hello = PeerHello { node: NodeId(2), run: 0x0102_0304 };
        assert_eq!(hello.encode(), [2, 0, 4, 3, 2, 1]);
        assert_eq!(PeerHello::decode(&hello.encode()), Ok(hello));
        assert_eq!(PeerHello::decode(&[1; 5]), Err(HelloError::NotOurs));
        let beyond = PeerHello { node: NodeId(1025), ..hello };
        assert_eq!(PeerHello::decode(&beyond.encode()), Err(HelloError::BadNode(NodeId(1025))));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..MESSAGE_BYTES_MAX)) {
            // If this broke, a peer could end the daemon.
            let _ = Message::decode(&bytes);
            let _ = PeerHello::decode(&bytes);
        }
    }
}
