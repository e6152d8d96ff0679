//! Operations that a client requests, with their options.

use crate::failure::Failure;
use crate::limits::{ARENA_SLOT_BYTES, INLINE_REQUEST_BYTES_MAX, TRANSFER_BYTES_MAX, VALUE_BYTES_MAX};
use crate::model::coherence::Model;
use crate::model::ranges::Ranges;
use crate::model::segment::PermissionUpdate;
use crate::request::entry_change::EntryChange;
use crate::request::row_list::RowList;
use crate::{NodeId, RequestId, SegmentId, Version};

/// Range of the requester's memory: of a client its arena, of a peer the staging memory that this node keeps for it. The
/// daemon checks it against the size of that memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaRange {
    /// First slot of the arena, or offset in staging memory.
    pub slot: u32,
    /// Bytes from there on.
    pub bytes: u32,
}

impl ArenaRange {
    /// Placeholder that [`Operation::set_range`] replaces.
    pub const NOWHERE: Self = Self { slot: 0, bytes: 0 };

    /// Returns the range of the bytes of a vectored call, whose table is in the first slot.
    pub const fn behind_table(&self, bytes: u32) -> Self {
        Self { slot: self.slot.saturating_add(1), bytes }
    }

    /// Place of bytes that are in the message itself.
    const IN_MESSAGE: u32 = u32::MAX;

    /// Makes a range of staging memory that begins at an offset, or of bytes in the message itself.
    pub const fn staged(at: Option<u64>, bytes: u32) -> Self {
        Self { slot: if let Some(at) = at { at as u32 } else { Self::IN_MESSAGE }, bytes }
    }

    /// Returns the offset in staging memory; `None` for bytes in the message itself.
    pub fn staged_at(&self) -> Option<u64> {
        (!self.is_in_message()).then_some(self.slot.into())
    }

    /// Returns true if the bytes are in the message itself.
    pub const fn is_in_message(&self) -> bool {
        self.slot == Self::IN_MESSAGE
    }

    /// Returns the offset of the first byte in the arena.
    pub const fn offset(&self) -> u64 {
        self.slot as u64 * ARENA_SLOT_BYTES as u64
    }
    /// Returns true if the range lies inside an arena of that size.
    pub const fn fits(&self, arena_bytes: u64) -> bool {
        self.offset() + self.bytes as u64 <= arena_bytes
    }
}

/// Location of the bytes of a put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// The request itself.
    Inline {
        /// The bytes; zero beyond `length`.
        bytes: [u8; INLINE_REQUEST_BYTES_MAX],
        /// Number of valid bytes.
        length: u8,
    },
    /// The client's arena.
    Arena(ArenaRange),
}

impl Payload {
    /// Makes an inline payload if the bytes are few enough.
    pub fn inline(bytes: &[u8]) -> Option<Self> {
        let mut held = [0; INLINE_REQUEST_BYTES_MAX];
        held.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Payload::Inline { bytes: held, length: bytes.len() as u8 })
    }

    /// Returns the length in bytes.
    pub const fn length(&self) -> u32 {
        match self {
            Payload::Inline { length, .. } => *length as u32,
            Payload::Arena(range) => range.bytes,
        }
    }
}

/// Operation that a client requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Round trip without effect.
    Null,
    /// Creates a segment; [`Spec`](crate::Spec) and name lie in the arena.
    Allocate {
        /// Range with the specification and, behind it, the name.
        spec_and_name: ArenaRange,
    },
    /// Opens a segment; the name lies in the arena.
    Open {
        /// Range with the name.
        name: ArenaRange,
    },
    /// Releases a segment.
    Release {
        /// Segment to release.
        segment: SegmentId,
    },
    /// Reads bytes. Up to [`INLINE_REPLY_BYTES_MAX`](crate::limits::INLINE_REPLY_BYTES_MAX) may return in the
    /// completion.
    Get {
        /// Segment to read.
        segment: SegmentId,
        /// Offset of the first byte.
        offset: u64,
        /// Destination and length.
        into: ArenaRange,
        /// True if the completion may carry the bytes instead.
        inline: bool,
        /// Version and strictness.
        options: ReadOptions,
    },
    /// Reads several ranges of one version. The table of [`Ranges`](crate::Ranges) lies in the first slot of an arena
    /// range; the bytes go into the slots behind it, back to back.
    GetMany {
        /// Segment to read.
        segment: SegmentId,
        /// Range with table and bytes.
        list: ArenaRange,
        /// Number of ranges in the table.
        ranges: u8,
        /// Version and strictness.
        options: ReadOptions,
    },
    /// Reads the first bytes of several rows of a table at another node, each of one version, by one read for each. Their
    /// numbers lie in the first slot of an arena range; their records go into the slots behind it. Where this is
    /// [unsupported](Failure::Unsupported), [`Get`](Operation::Get) reads one row.
    GetRows {
        /// Table to read.
        segment: SegmentId,
        /// Range with numbers and records.
        range: ArenaRange,
        /// Shape of that range.
        list: RowList,
        /// Minimum strictness.
        requested_model: Option<Model>,
    },
    /// Writes bytes.
    Put {
        /// Segment to write.
        segment: SegmentId,
        /// Offset of the first byte.
        offset: u64,
        /// Bytes to write.
        from: Payload,
        /// Conditions of the commit.
        conditions: PutConditions,
    },
    /// Writes several ranges as one version. Table and bytes lie as with [`GetMany`](Operation::GetMany).
    PutMany {
        /// Segment to write.
        segment: SegmentId,
        /// Range with table and bytes.
        list: ArenaRange,
        /// Number of ranges in the table.
        ranges: u8,
        /// Conditions of the commit.
        conditions: PutConditions,
    },
    /// Stores a part of a large put at the home; the first part begins the upload. The completion has its number.
    UploadPart {
        /// Segment to write.
        segment: SegmentId,
        /// Place of the part in the value.
        part: Part,
        /// Bytes of the part.
        from: ArenaRange,
    },
    /// Writes the bytes of a complete upload as one version.
    CommitUpload {
        /// Segment to write.
        segment: SegmentId,
        /// Offset of the first byte.
        offset: u64,
        /// Upload to commit.
        upload: UploadId,
        /// Conditions of the commit.
        conditions: PutConditions,
    },
    /// Drops an upload that will not be committed.
    DropUpload {
        /// Segment of the upload.
        segment: SegmentId,
        /// Upload to drop.
        upload: UploadId,
    },
    /// Changes one aligned word and returns its old value.
    Atomic {
        /// Segment to change.
        segment: SegmentId,
        /// Offset of the word.
        offset: u64,
        /// Change to apply.
        change: AtomicOp,
        /// Lock under which it is made, if any.
        token: Option<LockToken>,
    },
    /// Waits until the version of the segment, or of a row of a table, is above this one.
    Await {
        /// Segment to watch.
        segment: SegmentId,
        /// Offset in the row; 0 for a plain segment, [`ANY_ROW`](crate::ANY_ROW) for the changes of all rows.
        offset: u64,
        /// Last version that the client has seen.
        above: Version,
    },
    /// Takes the lock of the segment, or of a row of a table; the completion carries the token.
    Lock {
        /// Segment to lock.
        segment: SegmentId,
        /// Kind of lock.
        lock_request: LockRequest,
    },
    /// Releases a lock.
    Unlock {
        /// Segment to unlock.
        segment: SegmentId,
        /// Token of the grant.
        token: LockToken,
    },
    /// Extends the lease of a lock that is still in force, counted from now. It never ends sooner than before.
    Renew {
        /// Segment of the lock.
        segment: SegmentId,
        /// Token of the grant.
        token: LockToken,
        /// New lease, in microseconds.
        lease_us: u32,
    },
    /// Lists segments at home at one node, by page: the [`ListQuery`](crate::ListQuery) is in the arena, the page
    /// overwrites it.
    List {
        /// Lower bound: the first reachable node from this id on answers.
        node: NodeId,
        /// Range with the query.
        text: ArenaRange,
    },
    /// Describes one segment, as a page of one.
    Stat {
        /// Segment to describe.
        segment: SegmentId,
        /// Destination of the page.
        page: ArenaRange,
    },
    /// Changes permissions.
    Permit {
        /// Segment to change.
        segment: SegmentId,
        /// New permissions.
        update: PermissionUpdate,
    },
    /// Breaks the lock; the completion has the number of holders that lost it.
    Break {
        /// Segment to change.
        segment: SegmentId,
    },
    /// Frees what no get finds any more in some buckets of a map: expired entries, entries that were never linked, and links
    /// without an entry. The completion has the number of entries.
    Sweep {
        /// Map to change.
        segment: SegmentId,
        /// First bucket.
        first: u64,
        /// Number of buckets from there on.
        buckets: u64,
    },
    /// Ends a request of the same channel (a parked one if the cancel [parks](crate::Request::parks)) that waits for
    /// another caller. That request still gets its own completion.
    Cancel {
        /// Segment of that request.
        segment: SegmentId,
        /// Request to end.
        request: RequestId,
    },
    /// Offers its place in the ring to the completion of a parked wait of this client. When the client has no parked
    /// wait left, the request ends with a completion of its own.
    Collect,
}

impl Operation {
    /// Replaces the arena range, if the operation has one.
    #[inline]
    pub const fn set_range(&mut self, range: ArenaRange) {
        match self {
            Operation::Allocate { spec_and_name: place }
            | Operation::Open { name: place }
            | Operation::Get { into: place, .. }
            | Operation::GetMany { list: place, .. }
            | Operation::GetRows { range: place, .. }
            | Operation::Put { from: Payload::Arena(place), .. }
            | Operation::PutMany { list: place, .. }
            | Operation::UploadPart { from: place, .. }
            | Operation::List { text: place, .. }
            | Operation::Stat { page: place, .. } => *place = range,
            _ => {}
        }
    }

    /// Returns the number of bytes of the operation's text: a specification, a name, a query, a table of ranges.
    pub fn text_bytes(&self) -> usize {
        match self {
            Operation::Allocate { spec_and_name: range }
            | Operation::Open { name: range }
            | Operation::List { text: range, .. } => range.bytes as usize,
            Operation::GetMany { ranges, .. } | Operation::PutMany { ranges, .. } => {
                usize::from(*ranges) * Ranges::ENTRY_BYTES
            }
            _ => 0,
        }
    }

    /// Returns the segment of the operation.
    pub const fn segment(&self) -> Option<SegmentId> {
        match *self {
            Operation::Null
            | Operation::Allocate { .. }
            | Operation::Open { .. }
            | Operation::List { .. }
            | Operation::Collect => None,
            Operation::Release { segment }
            | Operation::Get { segment, .. }
            | Operation::GetMany { segment, .. }
            | Operation::GetRows { segment, .. }
            | Operation::Put { segment, .. }
            | Operation::PutMany { segment, .. }
            | Operation::UploadPart { segment, .. }
            | Operation::CommitUpload { segment, .. }
            | Operation::DropUpload { segment, .. }
            | Operation::Atomic { segment, .. }
            | Operation::Await { segment, .. }
            | Operation::Lock { segment, .. }
            | Operation::Unlock { segment, .. }
            | Operation::Renew { segment, .. }
            | Operation::Stat { segment, .. }
            | Operation::Break { segment }
            | Operation::Sweep { segment, .. }
            | Operation::Cancel { segment, .. }
            | Operation::Permit { segment, .. } => Some(segment),
        }
    }

    /// Returns true if it may wait for another caller, behind a lock or for a version, or take long;
    /// [`Cancel`](Operation::Cancel) ends it.
    pub const fn may_wait(&self) -> bool {
        matches!(
            self,
            Operation::Get { .. }
                | Operation::GetMany { .. }
                | Operation::Put { .. }
                | Operation::PutMany { .. }
                | Operation::CommitUpload { .. }
                | Operation::Atomic { .. }
                | Operation::Await { .. }
                | Operation::Lock { .. }
                | Operation::Sweep { .. }
        )
    }

    /// Returns true if it waits for an event only, so that it can be [parked](crate::Request::parks).
    pub const fn can_park(&self) -> bool {
        match self {
            Operation::Await { .. } => true,
            Operation::Lock { lock_request, .. } => !lock_request.no_wait,
            _ => false,
        }
    }

    /// Returns the lock under which it is made.
    #[inline]
    pub const fn token(&self) -> Option<LockToken> {
        match *self {
            Operation::Put { conditions, .. }
            | Operation::PutMany { conditions, .. }
            | Operation::CommitUpload { conditions, .. } => conditions.token,
            Operation::Atomic { token, .. } => token,
            Operation::Unlock { token, .. } | Operation::Renew { token, .. } => Some(token),
            _ => None,
        }
    }

    /// Returns true if an abandoned call leaves no effect: a read, or a lock, which is given back.
    #[inline]
    pub const fn is_harmless(&self) -> bool {
        match self {
            Operation::Null
            | Operation::Open { .. }
            | Operation::Get { .. }
            | Operation::GetMany { .. }
            | Operation::GetRows { .. }
            | Operation::List { .. }
            | Operation::Stat { .. }
            | Operation::UploadPart { .. }
            | Operation::DropUpload { .. }
            | Operation::Await { .. }
            | Operation::Lock { .. }
            | Operation::Sweep { .. }
            | Operation::Cancel { .. }
            | Operation::Collect => true,
            Operation::Allocate { .. }
            | Operation::Release { .. }
            | Operation::Put { .. }
            | Operation::PutMany { .. }
            | Operation::CommitUpload { .. }
            | Operation::Permit { .. }
            | Operation::Break { .. }
            | Operation::Atomic { .. }
            | Operation::Unlock { .. }
            | Operation::Renew { .. } => false,
        }
    }
}

/// Options of a get.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadOptions {
    /// Minimum strictness.
    pub requested_model: Option<Model>,
    /// Version to read instead of the newest one.
    pub version: Option<Version>,
}

/// Conditions of a put.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PutConditions {
    /// Commit only on this version.
    pub version: Option<Version>,
    /// Commit only while this lock is held.
    pub token: Option<LockToken>,
    /// Minimum strictness.
    pub requested_model: Option<Model>,
    /// Change of one entry of a map. The offset of the put is then that of the bucket, and the home chooses the slot. A
    /// request has no version or token beside it.
    pub entry: Option<EntryChange>,
}

impl PutConditions {
    /// Encodes as two words: the change of an entry and its digest, or version and token, zero where absent (flags say
    /// which).
    pub(crate) const fn to_words(self) -> (u64, u64) {
        if let Some(change) = self.entry {
            return (change.to_word(), change.expected);
        }
        let version = if let Some(version) = self.version { version.0 } else { 0 };
        let token = if let Some(token) = self.token { token.0 } else { 0 };
        (version, token)
    }

    /// Returns true if the request has room for inline bytes beside them.
    pub const fn allow_inline(&self) -> bool {
        self.version.is_none() && self.token.is_none() && self.entry.is_none()
    }
}

/// Number of an upload at its home; zero is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UploadId(pub u32);

/// Place of a part in the value of a large put. Parts follow each other without a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Upload of the part; zero begins one.
    pub upload: UploadId,
    /// Offset of its first byte in the value.
    pub at: u32,
    /// Bytes of the whole value.
    pub total: u32,
}

impl Part {
    /// Checks that a part of `bytes` bytes fits into one transfer and into the value.
    pub const fn check(&self, bytes: u32) -> Result<(), Failure> {
        if bytes as usize > TRANSFER_BYTES_MAX || self.total as usize > VALUE_BYTES_MAX {
            return Err(Failure::TooLarge);
        }
        let ends_inside = self.at as u64 + bytes as u64 <= self.total as u64;
        let begins = self.upload.0 != 0 || self.at == 0;
        if bytes == 0 || !ends_inside || !begins { Err(Failure::Malformed) } else { Ok(()) }
    }
}

/// Token of a granted lock: unique at its home and greater than all before. Zero is no lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LockToken(pub u64);

/// Options of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockRequest {
    /// True if other shared holders are allowed.
    pub shared: bool,
    /// True if to fail rather than wait.
    pub no_wait: bool,
    /// Maximum time that it is held, in microseconds.
    pub lease_us: u32,
    /// Offset of the first byte of the table's row to lock; `None` for the lock of the whole segment.
    pub row_offset: Option<u64>,
}

/// Atomic change of one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Adds, wrapping around.
    Add(u64),
    /// Stores this value.
    Swap(u64),
    /// Stores this value if it is greater.
    Max(u64),
    /// Subtracts, unless the word is smaller.
    CheckedSub(u64),
    /// Stores `new` if the word is `expected`.
    CompareSwap {
        /// Required old value.
        expected: u64,
        /// New value.
        new: u64,
    },
}

impl AtomicOp {
    /// Returns the new value of the word, or `None` if it stays unchanged.
    pub const fn apply(self, old: u64) -> Option<u64> {
        match self {
            AtomicOp::Add(add) => Some(old.wrapping_add(add)),
            AtomicOp::Swap(new) => Some(new),
            AtomicOp::Max(value) if value > old => Some(value),
            AtomicOp::Max(_) => None,
            AtomicOp::CheckedSub(sub) => old.checked_sub(sub),
            AtomicOp::CompareSwap { expected, new } if expected == old => Some(new),
            AtomicOp::CompareSwap { .. } => None,
        }
    }

    /// Returns the kind and two words.
    pub const fn to_parts(self) -> (u8, u64, u64) {
        match self {
            AtomicOp::Add(add) => (1, add, 0),
            AtomicOp::Swap(new) => (2, new, 0),
            AtomicOp::CompareSwap { expected, new } => (3, expected, new),
            AtomicOp::Max(value) => (4, value, 0),
            AtomicOp::CheckedSub(sub) => (5, sub, 0),
        }
    }

    /// Makes the change of that kind, if there is one.
    pub const fn from_parts(kind: u8, first: u64, second: u64) -> Result<Self, Failure> {
        match kind {
            1 => Ok(AtomicOp::Add(first)),
            2 => Ok(AtomicOp::Swap(first)),
            3 => Ok(AtomicOp::CompareSwap { expected: first, new: second }),
            4 => Ok(AtomicOp::Max(first)),
            5 => Ok(AtomicOp::CheckedSub(first)),
            _ => Err(Failure::Malformed),
        }
    }
}
