//! What engines say to each other. Little-endian, each field checked on the way in; the receiver works on a copy.
//!
//! A message is the clock of the node that says it, one byte of kind, then the fields of that kind in the order of its
//! declaration, then the tail: names, and what stands behind a put, a get, what was got, a list and its page.

use crate::failure::Outcome;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::model::coherence::Model;
use crate::model::segment::{Name, Permissions, Principal};
use crate::model::spec::Spec;
use crate::model::spec::Storage;
use crate::request::operation::{AtomicOp, LockRequest, LockToken, PermissionUpdate, PutConditions, ReadOptions};
use crate::{SegmentId, Timestamp, Version};

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
/// use ddss_core::{Facts, Identity, Model, NodeId, Permissions, SegmentId, Storage, Wish};
/// let owner = Identity { uid: 1000, gid: 50 };
/// let permissions = Permissions { owner, mode: 0o600 };
/// let segment = SegmentId::new(NodeId(2), 0, 1);
/// let (model, storage) = (Model::Strict, Storage::Memory);
/// let facts = Facts { segment, bytes: 4096, model, permissions, keeps: 0, copies: 1, storage };
/// assert_eq!(facts.segment.home(), NodeId(2));
/// assert!(facts.permissions.allow(Identity { uid: 7, gid: 7 }, Wish::Read).is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentInfo {
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
    /// On how many nodes it is kept. One with a mirror is read by its home's engine and never through a window.
    pub copies: u8,
    /// Where its home keeps it.
    pub storage: Storage,
}

/// What a mirror says of the copy that it shall have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfferReply {
    /// It has that very version.
    Whole,
    /// It has none, or another version: send the bytes.
    Empty,
    /// It cannot have one now.
    No(Refusal),
    /// The asker is the home no longer.
    Fenced,
}

impl OfferReply {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Whole => 1,
            Self::Empty => 2,
            Self::No(Refusal::NotReady) => 3,
            Self::Fenced => 4,
            Self::No(Refusal::NoRoom) => 5,
            Self::No(Refusal::OverQuota) => 6,
            Self::No(Refusal::NoFiles) => 7,
            Self::No(Refusal::NoAnswer) => 8,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Whole,
            2 => Self::Empty,
            3 => Self::No(Refusal::NotReady),
            4 => Self::Fenced,
            5 => Self::No(Refusal::NoRoom),
            6 => Self::No(Refusal::OverQuota),
            7 => Self::No(Refusal::NoFiles),
            8 => Self::No(Refusal::NoAnswer),
            _ => return None,
        })
    }
}

/// Reason why a node cannot be the mirror of a segment now.
///
/// ```
/// assert_eq!(ddss_core::Refusal::NoRoom.as_str(), "no room");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The node has yet to hear what it is for that segment, or still has another one of that name.
    NotReady,
    /// Its pool, or its room for files, has no place for it.
    NoRoom,
    /// The segment's owner may have no more on that node.
    OverQuota,
    /// The node keeps no segments in files.
    NoFiles,
    /// The node did not answer in time.
    NoAnswer,
}

impl Refusal {
    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotReady => "not ready yet",
            Self::NoRoom => "no room",
            Self::OverQuota => "over its owner's quota",
            Self::NoFiles => "no segments in files there",
            Self::NoAnswer => "no answer",
        }
    }
}

/// What a mirror has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ReplicaAck {
    /// It has a piece of the copy.
    Piece = 1,
    /// It has that put, or has heard of that token.
    Put = 2,
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
        who: Principal,
        /// The name.
        name: Name,
    },
    /// Tell me about this segment (the asker lost its notes, or never had any).
    Describe {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Principal,
        /// Which.
        segment: SegmentId,
    },
    /// Make a segment at your place.
    Allocate {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Principal,
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
        facts: SegmentInfo,
        /// Its memory: header line and bytes.
        window: RemoteWindow,
    },
    /// Commit these bytes: the tail of the message, or what was written into staging memory before it. With `ranges`
    /// the tail is their table, and the bytes are staged.
    Put {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Principal,
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
        terms: PutConditions,
        /// How long the asker waits, in microseconds.
        timeout_us: u32,
    },
    /// Change one word.
    Atomic {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Principal,
        /// Which segment.
        segment: SegmentId,
        /// Where.
        offset: u64,
        /// How.
        change: AtomicOp,
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
        who: Principal,
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
        who: Principal,
        /// Which segment.
        segment: SegmentId,
        /// How.
        wish: LockRequest,
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
        who: Principal,
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
        who: Principal,
        /// Which segment.
        segment: SegmentId,
        /// From where.
        offset: u64,
        /// How many bytes.
        length: u32,
        /// Ranges in the table; 0 if there is none.
        ranges: u8,
        /// Which version, and how it is looked at.
        look: ReadOptions,
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
    /// A page of your segments. The tail is the [`Query`](crate::ListQuery).
    List {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Principal,
    },
    /// All facts of one segment, as a page of one.
    Stat {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Principal,
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
        who: Principal,
        /// Which.
        segment: SegmentId,
        /// To what.
        permit: PermissionUpdate,
    },
    /// Take the lock from whoever holds it.
    Break {
        /// The asker's number.
        step: u64,
        /// For whom.
        who: Principal,
        /// Which segment.
        segment: SegmentId,
    },
    /// End the sender's request of this number, if it still waits for another caller. It is answered, as ever.
    Cancel {
        /// The asker's number.
        step: u64,
        /// The segment that it waits at.
        segment: SegmentId,
    },
    /// One of the sender's segments is not as it was told.
    Changed {
        /// What it is now.
        facts: SegmentInfo,
    },
    /// Be the mirror of this segment of mine.
    Offer {
        /// Which.
        segment: SegmentId,
        /// Which of its homes, one after the other, the sender is.
        epoch: u32,
        /// Its newest version.
        version: Version,
        /// When that was made.
        timestamp: Timestamp,
        /// What it is.
        spec: Spec,
        /// Who may.
        permissions: Permissions,
        /// Its name.
        name: Name,
    },
    /// What the mirror has of it.
    Having {
        /// Which.
        segment: SegmentId,
        /// As it was offered, or the newer one that it knows of.
        epoch: u32,
        /// What.
        have: OfferReply,
    },
    /// A piece of the copy: the tail, or in the mirror's staging memory.
    Piece {
        /// Which.
        segment: SegmentId,
        /// The sender's.
        epoch: u32,
        /// Where in the segment.
        offset: u64,
        /// How many bytes.
        length: u32,
        /// Where they are in the staging memory; `u64::MAX` if they are the tail.
        staged: u64,
        /// The home's number for that place.
        number: u64,
    },
    /// With what was sent before the copy is whole.
    Whole {
        /// Which.
        segment: SegmentId,
        /// The sender's.
        epoch: u32,
        /// Its version.
        version: Version,
        /// When that was made.
        timestamp: Timestamp,
    },
    /// A put that the home will commit when the mirror has it. The tail is the bytes, or the table of ranges. With the
    /// version that the mirror has already and no bytes: a token that is about to be given.
    Forward {
        /// Which.
        segment: SegmentId,
        /// The sender's.
        epoch: u32,
        /// The version that it makes.
        version: Version,
        /// When, or the token.
        timestamp: Timestamp,
        /// To where.
        offset: u64,
        /// How many bytes.
        length: u32,
        /// Where they are in the staging memory; `u64::MAX` if they are the tail.
        staged: u64,
        /// The home's number for that place.
        number: u64,
        /// Ranges in the table; 0 if there is none.
        ranges: u8,
    },
    /// The mirror has it.
    Mirrored {
        /// Which.
        segment: SegmentId,
        /// The home's.
        epoch: u32,
        /// What.
        stored: ReplicaAck,
        /// The version that it has.
        version: Version,
        /// As it came.
        timestamp: Timestamp,
        /// The number of the place in the staging memory that is free again; `u64::MAX` for none.
        number: u64,
    },
}

impl Message {
    /// The `staged` of a put whose bytes are in the message.
    pub const NOT_STAGED: u64 = u64::MAX;
    /// Bytes of data that fit behind the fields of a put, with room for a seal.
    pub const PUT_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 104;
    /// Bytes of the longest message before it is sealed.
    pub const PLAIN_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 16;

    /// The segment of which something is asked.
    pub(crate) fn segment(&self) -> Option<SegmentId> {
        match *self {
            Message::Describe { segment, .. }
            | Message::Put { segment, .. }
            | Message::Atomic { segment, .. }
            | Message::Await { segment, .. }
            | Message::Lock { segment, .. }
            | Message::Unlock { segment, .. }
            | Message::Release { segment, .. }
            | Message::Get { segment, .. }
            | Message::Stat { segment, .. }
            | Message::Permit { segment, .. }
            | Message::Break { segment, .. } => Some(segment),
            _ => None,
        }
    }
}
