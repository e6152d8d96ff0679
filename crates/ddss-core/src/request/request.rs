//! Requests of clients, and their layout in one ring entry.
//!
//! ```text
//!   0          4    5    6       8         16        24       32       40        44     48      56       64
//!  +----------+----+----+-------+---------+---------+--------+--------+---------+------+-------+--------+
//!  | sequence | op | md | flags | request | segment | offset | length | timeout | slot | first | second |
//!  | the ring | u8 | u8 |  u16  |   u64   |   u64   |  u64   |  u64   | u32, µs | u32  |  u64  |  u64   |
//!  +----------+----+----+-------+---------+---------+--------+--------+---------+------+-------+--------+
//! ```
//!
//! `md` is the model that a get or put asks for, 0 if none. The bytes of a small put are in `first` and `second`. The
//! entry is copied out of shared memory once. This module turns the copy into a valid [`Request`], or refuses it.

use super::entry_change::EntryChange;
use super::operation::{
    ArenaRange, AtomicOp, LockRequest, LockToken, Operation, Part, Payload, PutConditions, ReadOptions, UploadId,
};
use super::row_list::RowList;
use crate::failure::Failure;
use crate::limits::{
    ARENA_SLOT_BYTES, INLINE_REPLY_BYTES_MAX, INLINE_REQUEST_BYTES_MAX, LEASE_MAX_US, LIST_TEXT_BYTES_MAX,
    NAME_BYTES_MAX, RANGES_MAX, TIMEOUT_DEFAULT_US, TIMEOUT_MAX_US, TRANSFER_BYTES_MAX,
};
use crate::model::coherence::Model;
use crate::model::segment::PermissionUpdate;
use crate::model::spec::Spec;
use crate::{Entry, NodeId, RequestId, SegmentId, Version};

/// A checked request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Id that returns in the completion.
    pub id: RequestId,
    /// Timeout in microseconds.
    pub timeout_us: u32,
    /// Requested operation.
    pub operation: Operation,
    /// True if a wait gives its place in the ring back ([`Completion::parked`](crate::Completion::parked)), or if a
    /// cancel names such a wait.
    pub parks: bool,
}

const OP_NULL: u8 = 1;
const OP_ALLOCATE: u8 = 2;
const OP_OPEN: u8 = 3;
const OP_RELEASE: u8 = 4;
pub(crate) const OP_GET: u8 = 5;
pub(crate) const OP_PUT: u8 = 6;
const OP_ATOMIC: u8 = 7;
const OP_AWAIT: u8 = 8;
const OP_LOCK: u8 = 9;
const OP_UNLOCK: u8 = 10;
const OP_GET_MANY: u8 = 11;
const OP_PUT_MANY: u8 = 12;
const OP_LIST: u8 = 13;
const OP_STAT: u8 = 14;
const OP_PERMIT: u8 = 15;
const OP_BREAK: u8 = 16;
const OP_CANCEL: u8 = 17;
const OP_COLLECT: u8 = 18;
const OP_UPLOAD_PART: u8 = 24;
const OP_COMMIT_UPLOAD: u8 = 25;
const OP_DROP_UPLOAD: u8 = 26;
const OP_RENEW: u8 = 27;
const OP_SWEEP: u8 = 28;

/// Weight of a request that creates, releases or changes a segment, or lists segments. A client that calls without a
/// pause meets that in one of 500 calls.
const SEGMENT_WEIGHT: usize = 512;
/// Weight of a cancel, which may search all pending operations.
const CANCEL_WEIGHT: usize = 64;

/// Payload in the entry, or permitted in the completion.
pub(crate) const FLAG_INLINE: u16 = 1;
/// Version present: `first` for the version that a put replaces, `second` for the one that a get reads.
const FLAG_VERSION: u16 = 2;
/// Token present: in `second` for a put; for an atomic in `slot` and above the kind.
const FLAG_TOKEN: u16 = 4;
/// Shared lock.
const FLAG_SHARED: u16 = 8;
/// Lock without waiting.
const FLAG_NO_WAIT: u16 = 16;
/// A wait is to be parked, or a cancel names a parked wait.
const FLAG_PARKED: u16 = 32;
/// Change of an entry: in `first`, and its digest in `second`.
const FLAG_ENTRY: u16 = 64;
/// Lock of a row of a table: its first byte is at `offset`. A get of several rows, instead of ranges.
const FLAG_ROW: u16 = 128;

/// Undecodable request: its failure, and the id to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadRequest {
    /// Request id of the entry.
    pub id: RequestId,
    /// Failure to report.
    pub failure: Failure,
}

impl Request {
    /// Makes a request with the default timeout.
    pub const fn new(id: RequestId, operation: Operation) -> Self {
        Self { id, timeout_us: TIMEOUT_DEFAULT_US, operation, parks: false }
    }

    /// Encodes as a ring entry; the ring adds its sequence in the low half of the first word.
    pub fn encode(&self) -> Entry {
        let mut entry = EntryFields([0, self.id.0, 0, 0, 0, self.timeout_us.into(), 0, 0]);
        let out = &mut entry;
        match self.operation {
            Operation::Null => out.op(OP_NULL),
            Operation::Allocate { spec_and_name: range } => out.op(OP_ALLOCATE).range(range),
            Operation::Open { name: range } => out.op(OP_OPEN).range(range),
            Operation::Release { segment } => out.op(OP_RELEASE).segment(segment),
            Operation::Get { segment, offset, into, inline, options } => {
                let out = out.op(OP_GET).segment(segment).offset(offset).range(into);
                out.read_options(options).flag(inline, FLAG_INLINE)
            }
            Operation::GetMany { segment, list, ranges, options } => {
                out.op(OP_GET_MANY).segment(segment).offset(ranges.into()).range(list).read_options(options)
            }
            Operation::GetRows { segment, range, list, requested_model } => {
                let out = out.op(OP_GET_MANY).segment(segment).offset(list.rows() as u64).range(range);
                out.read_options(ReadOptions { requested_model, version: None }).flag(true, FLAG_ROW)
            }
            Operation::Put { segment, offset, from, conditions } => {
                out.op(OP_PUT).segment(segment).offset(offset).conditions(conditions).payload(from, &conditions)
            }
            Operation::PutMany { segment, list, ranges, conditions } => {
                out.op(OP_PUT_MANY).segment(segment).offset(ranges.into()).range(list).conditions(conditions)
            }
            Operation::UploadPart { segment, part: Part { upload, at, total }, from } => {
                let out = out.op(OP_UPLOAD_PART).segment(segment).offset(at.into()).range(from);
                out.words(upload.0.into(), total.into())
            }
            Operation::CommitUpload { segment, offset, upload, conditions } => {
                let out = out.op(OP_COMMIT_UPLOAD).segment(segment).offset(offset);
                out.length(upload.0.into()).conditions(conditions)
            }
            Operation::DropUpload { segment, upload } => {
                out.op(OP_DROP_UPLOAD).segment(segment).words(upload.0.into(), 0)
            }
            Operation::Atomic { segment, offset, change, token } => {
                out.op(OP_ATOMIC).segment(segment).offset(offset).change(change, token)
            }
            Operation::Await { segment, offset, above } => {
                out.op(OP_AWAIT).segment(segment).offset(offset).words(above.0, 0).flag(self.parks, FLAG_PARKED)
            }
            Operation::Lock { segment, lock_request: LockRequest { shared, no_wait, lease_us, row_offset } } => {
                let out = out.op(OP_LOCK).segment(segment).offset(row_offset.unwrap_or(0)).words(lease_us.into(), 0);
                let out = out.flag(row_offset.is_some(), FLAG_ROW).flag(shared, FLAG_SHARED);
                out.flag(no_wait, FLAG_NO_WAIT).flag(self.parks, FLAG_PARKED)
            }
            Operation::Unlock { segment, token } => out.op(OP_UNLOCK).segment(segment).words(token.0, 0),
            Operation::Renew { segment, token, lease_us } => {
                out.op(OP_RENEW).segment(segment).words(token.0, lease_us.into())
            }
            Operation::List { node, text } => out.op(OP_LIST).offset(node.0.into()).range(text),
            Operation::Stat { segment, page } => out.op(OP_STAT).segment(segment).range(page),
            Operation::Permit { segment, update } => {
                let [first, second] = update.to_words();
                out.op(OP_PERMIT).segment(segment).words(first, second)
            }
            Operation::Break { segment } => out.op(OP_BREAK).segment(segment),
            Operation::Sweep { segment, first, buckets } => {
                out.op(OP_SWEEP).segment(segment).offset(first).words(buckets, 0)
            }
            Operation::Cancel { segment, request } => {
                out.op(OP_CANCEL).segment(segment).words(request.0, 0).flag(self.parks, FLAG_PARKED)
            }
            Operation::Collect => out.op(OP_COLLECT),
        };
        entry.0
    }

    /// Decodes an untrusted copy of an entry.
    #[inline]
    pub fn decode(entry: &Entry) -> Result<Self, BadRequest> {
        let id = RequestId(entry[1]);
        let refuse = |failure| BadRequest { id, failure };
        // The client crate refuses longer timeouts by name; those of other clients are capped, here and below.
        let timeout_us = match entry[5] as u32 {
            0 => TIMEOUT_DEFAULT_US,
            wanted => wanted.min(TIMEOUT_MAX_US),
        };
        let operation = Self::decode_operation(entry).map_err(refuse)?;
        // Of the operations without this flag the decoder has refused it.
        let parks = (entry[0] >> 48) as u16 & FLAG_PARKED != 0;
        Ok(Self { id, timeout_us, operation, parks })
    }

    /// Returns true if an entry is a null request.
    #[inline]
    pub fn is_null(entry: &Entry) -> bool {
        entry[0] >> 32 == u64::from(OP_NULL)
    }

    /// Returns true if an entry is a [`Collect`](Operation::Collect) request.
    #[inline]
    pub fn is_collect(entry: &Entry) -> bool {
        (entry[0] >> 32) as u8 == OP_COLLECT
    }

    /// Makes the cancel of a request that this side has encoded.
    pub const fn cancel_of(entry: &Entry) -> Operation {
        Operation::Cancel { segment: SegmentId::from_bits(entry[2]), request: RequestId(entry[1]) }
    }

    /// Returns the cost of an untrusted entry, in units of a small request.
    pub fn weight(entry: &Entry) -> usize {
        let bytes = (entry[4] as usize).min(TRANSFER_BYTES_MAX);
        match (entry[0] >> 32) as u8 {
            OP_GET | OP_PUT | OP_GET_MANY | OP_PUT_MANY | OP_UPLOAD_PART => 1 + bytes / 4096,
            OP_ALLOCATE | OP_RELEASE | OP_LIST | OP_PERMIT | OP_BREAK | OP_COMMIT_UPLOAD => SEGMENT_WEIGHT,
            OP_CANCEL => CANCEL_WEIGHT,
            _ => 1,
        }
    }

    #[inline]
    fn decode_operation(entry: &Entry) -> Result<Operation, Failure> {
        if Self::is_null(entry) {
            return Ok(Operation::Null);
        }
        let (op, model, flags) = ((entry[0] >> 32) as u8, (entry[0] >> 40) as u8, (entry[0] >> 48) as u16);
        let (segment, offset, inline) = (SegmentId::from_bits(entry[2]), entry[3], flags & FLAG_INLINE != 0);
        check_flags(op, model, flags)?;
        if op == OP_ATOMIC {
            return take_atomic(entry, segment, offset, flags);
        }
        let bytes = u32::try_from(entry[4]).map_err(|_| Failure::TooLarge)?;
        let length = bytes as usize;
        let range = ArenaRange { slot: (entry[5] >> 32) as u32, bytes };
        Ok(match op {
            OP_ALLOCATE if length <= Spec::ENCODED_BYTES + NAME_BYTES_MAX => {
                Operation::Allocate { spec_and_name: range }
            }
            OP_OPEN if length <= NAME_BYTES_MAX => Operation::Open { name: range },
            OP_LIST if length <= LIST_TEXT_BYTES_MAX => {
                Operation::List { node: NodeId(u16::try_from(offset).map_err(|_| Failure::Malformed)?), text: range }
            }
            OP_ALLOCATE | OP_OPEN | OP_LIST => return Err(Failure::BadName),
            OP_RELEASE => Operation::Release { segment },
            OP_GET | OP_PUT if length > TRANSFER_BYTES_MAX => return Err(Failure::TooLarge),
            OP_GET if inline && length > INLINE_REPLY_BYTES_MAX => return Err(Failure::Malformed),
            OP_GET => Operation::Get { segment, offset, into: range, inline, options: take_read_options(entry)? },
            OP_GET_MANY if flags & FLAG_ROW != 0 => {
                let list = RowList::of_request(offset, bytes).ok_or(Failure::Malformed)?;
                let ReadOptions { requested_model, .. } = take_read_options(entry)?;
                Operation::GetRows { segment, range, list, requested_model }
            }
            OP_GET_MANY => {
                let (ranges, options) = (take_ranges(offset, bytes)?, take_read_options(entry)?);
                Operation::GetMany { segment, list: range, ranges, options }
            }
            OP_PUT if inline => {
                let (from, requested_model) = (take_inline(entry, bytes)?, asked_of_a_put(model)?);
                let conditions = PutConditions { requested_model, ..PutConditions::default() };
                Operation::Put { segment, offset, from, conditions }
            }
            OP_PUT => {
                Operation::Put { segment, offset, from: Payload::Arena(range), conditions: take_conditions(entry)? }
            }
            OP_PUT_MANY => {
                let (ranges, conditions) = (take_ranges(offset, bytes)?, take_conditions(entry)?);
                Operation::PutMany { segment, list: range, ranges, conditions }
            }
            OP_UPLOAD_PART => {
                let part = take_part([offset, entry[6], entry[7]], bytes)?;
                Operation::UploadPart { segment, part, from: range }
            }
            OP_COMMIT_UPLOAD => {
                let (upload, conditions) = (UploadId(bytes), take_conditions(entry)?);
                Operation::CommitUpload { segment, offset, upload, conditions }
            }
            OP_DROP_UPLOAD => Operation::DropUpload { segment, upload: UploadId(take_u32(entry[6])?) },
            OP_AWAIT => Operation::Await { segment, offset, above: Version(entry[6]) },
            OP_LOCK => Operation::Lock { segment, lock_request: take_lock_request(entry, flags)? },
            OP_UNLOCK => Operation::Unlock { segment, token: LockToken(entry[6]) },
            OP_RENEW => Operation::Renew { segment, token: LockToken(entry[6]), lease_us: take_lease(entry[7])? },
            OP_STAT => Operation::Stat { segment, page: range },
            OP_BREAK => Operation::Break { segment },
            OP_SWEEP => Operation::Sweep { segment, first: offset, buckets: entry[6] },
            OP_COLLECT => Operation::Collect,
            OP_CANCEL => Operation::Cancel { segment, request: RequestId(entry[6]) },
            OP_PERMIT => Operation::Permit { segment, update: PermissionUpdate::from_words([entry[6], entry[7]])? },
            _ => return Err(Failure::Unsupported),
        })
    }
}

/// Fields of an entry that is encoded.
struct EntryFields(Entry);

impl EntryFields {
    fn op(&mut self, op: u8) -> &mut Self {
        self.0[0] |= u64::from(op) << 32;
        self
    }

    fn model(&mut self, kind: u8) -> &mut Self {
        self.0[0] |= u64::from(kind) << 40;
        self
    }

    /// Sets a flag if it applies.
    fn flag(&mut self, is_set: bool, flag: u16) -> &mut Self {
        self.0[0] |= if is_set { u64::from(flag) << 48 } else { 0 };
        self
    }

    fn segment(&mut self, segment: SegmentId) -> &mut Self {
        self.0[2] = segment.to_bits();
        self
    }

    fn offset(&mut self, offset: u64) -> &mut Self {
        self.0[3] = offset;
        self
    }

    fn length(&mut self, length: u64) -> &mut Self {
        self.0[4] = length;
        self
    }

    fn slot(&mut self, slot: u32) -> &mut Self {
        self.0[5] |= u64::from(slot) << 32;
        self
    }

    fn words(&mut self, first: u64, second: u64) -> &mut Self {
        (self.0[6], self.0[7]) = (first, second);
        self
    }

    fn range(&mut self, range: ArenaRange) -> &mut Self {
        self.length(range.bytes.into()).slot(range.slot)
    }

    fn read_options(&mut self, options: ReadOptions) -> &mut Self {
        let (kind, parameter) = options.requested_model.map_or((0, 0), Model::to_parts);
        let version = options.version.unwrap_or_default().0;
        self.model(kind).words(parameter.into(), version).flag(options.version.is_some(), FLAG_VERSION)
    }

    fn conditions(&mut self, conditions: PutConditions) -> &mut Self {
        let PutConditions { version, token, requested_model, entry } = conditions;
        debug_assert!(entry.is_none() || version.is_none() && token.is_none(), "there is no room for both");
        let (kind, _) = requested_model.map_or((0, 0), Model::to_parts);
        let (first, second) = conditions.to_words();
        let out = self.model(kind).words(first, second).flag(version.is_some(), FLAG_VERSION);
        out.flag(token.is_some(), FLAG_TOKEN).flag(entry.is_some(), FLAG_ENTRY)
    }

    fn payload(&mut self, payload: Payload, conditions: &PutConditions) -> &mut Self {
        match payload {
            Payload::Arena(range) => self.range(range),
            Payload::Inline { bytes, length } => {
                debug_assert!(conditions.allow_inline(), "a put with a version or a token has its bytes in the arena");
                let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
                self.length(length.into()).words(word(0), word(8)).flag(true, FLAG_INLINE)
            }
        }
    }

    /// The token is in `slot`, and above the kind.
    fn change(&mut self, change: AtomicOp, token: Option<LockToken>) -> &mut Self {
        let ((kind, first, second), under) = (change.to_parts(), token.unwrap_or_default().0);
        let out = self.length(u64::from(kind) | under >> 32 << 32).slot(under as u32);
        out.words(first, second).flag(token.is_some(), FLAG_TOKEN)
    }
}

/// Refuses flags, and a model, that the operation does not have.
#[inline]
fn check_flags(op: u8, model: u8, flags: u16) -> Result<(), Failure> {
    let known = match op {
        OP_GET => FLAG_INLINE | FLAG_VERSION,
        OP_GET_MANY if flags & FLAG_ROW != 0 => FLAG_ROW,
        OP_GET_MANY => FLAG_VERSION,
        OP_PUT if flags & FLAG_INLINE != 0 => FLAG_INLINE,
        OP_PUT => FLAG_VERSION | FLAG_TOKEN | FLAG_ENTRY,
        OP_PUT_MANY | OP_COMMIT_UPLOAD => FLAG_VERSION | FLAG_TOKEN,
        OP_ATOMIC => FLAG_TOKEN,
        OP_LOCK => FLAG_SHARED | FLAG_NO_WAIT | FLAG_PARKED | FLAG_ROW,
        OP_AWAIT | OP_CANCEL => FLAG_PARKED,
        _ => 0,
    };
    let has_model = matches!(op, OP_GET | OP_GET_MANY | OP_PUT | OP_PUT_MANY | OP_COMMIT_UPLOAD);
    if flags & !known != 0 || (model != 0 && !has_model) { Err(Failure::Malformed) } else { Ok(()) }
}

fn take_read_options(entry: &Entry) -> Result<ReadOptions, Failure> {
    let parameter = u32::try_from(entry[6]).map_err(|_| Failure::Malformed)?;
    let requested_model = match (entry[0] >> 40) as u8 {
        0 => None,
        kind => Some(Model::from_parts(kind, parameter)?),
    };
    let version = (entry[0] >> 48) as u16 & FLAG_VERSION != 0;
    Ok(ReadOptions { requested_model, version: version.then_some(Version(entry[7])) })
}

/// Checks the model of a put. Delta and Temporal have no parameter there, since they have no rules for puts.
fn asked_of_a_put(kind: u8) -> Result<Option<Model>, Failure> {
    if kind == 0 { Ok(None) } else { Model::from_parts(kind, 0).map(Some) }
}

fn take_conditions(entry: &Entry) -> Result<PutConditions, Failure> {
    let flags = (entry[0] >> 48) as u16;
    let requested_model = asked_of_a_put((entry[0] >> 40) as u8)?;
    if flags & FLAG_ENTRY != 0 {
        if flags & (FLAG_VERSION | FLAG_TOKEN) != 0 {
            return Err(Failure::Malformed);
        }
        let change = EntryChange::from_words(entry[6], entry[7])?;
        return Ok(PutConditions { entry: Some(change), requested_model, ..PutConditions::default() });
    }
    let version = (flags & FLAG_VERSION != 0).then_some(Version(entry[6]));
    let token = (flags & FLAG_TOKEN != 0).then_some(LockToken(entry[7]));
    Ok(PutConditions { version, token, requested_model, entry: None })
}

fn take_inline(entry: &Entry, bytes: u32) -> Result<Payload, Failure> {
    if bytes as usize > INLINE_REQUEST_BYTES_MAX {
        return Err(Failure::Malformed);
    }
    // Whole-word stores: byte stores would stall a later wide load of the same bytes.
    let words = u128::from(entry[6]) | u128::from(entry[7]) << 64;
    let unused = 8 * (INLINE_REQUEST_BYTES_MAX as u32 - bytes);
    let held = u128::MAX.checked_shr(unused).unwrap_or(0) & words;
    Ok(Payload::Inline { bytes: held.to_le_bytes(), length: bytes as u8 })
}

/// Checks a lease. A longer one than the maximum is refused: a lock that ended sooner than its holder expects would not
/// exclude.
fn take_lease(lease_us: u64) -> Result<u32, Failure> {
    match u32::try_from(lease_us) {
        Ok(lease_us @ 1..=LEASE_MAX_US) => Ok(lease_us),
        _ => Err(Failure::BadLease),
    }
}

fn take_lock_request(entry: &Entry, flags: u16) -> Result<LockRequest, Failure> {
    let (shared, no_wait) = (flags & FLAG_SHARED != 0, flags & FLAG_NO_WAIT != 0);
    let row_offset = (flags & FLAG_ROW != 0).then_some(entry[3]);
    Ok(LockRequest { shared, no_wait, lease_us: take_lease(entry[6])?, row_offset })
}

fn take_u32(word: u64) -> Result<u32, Failure> {
    u32::try_from(word).map_err(|_| Failure::Malformed)
}

/// Checks the place of a part of `bytes` bytes; the words are its offset, its upload and the value's size.
fn take_part([at, upload, total]: [u64; 3], bytes: u32) -> Result<Part, Failure> {
    let part = Part { upload: UploadId(take_u32(upload)?), at: take_u32(at)?, total: take_u32(total)? };
    part.check(bytes).map(|()| part)
}

/// Checks the number of ranges of a vectored call with that arena length.
fn take_ranges(count: u64, bytes: u32) -> Result<u8, Failure> {
    match u8::try_from(count) {
        Ok(0) | Err(_) => Err(Failure::Malformed),
        Ok(count) if usize::from(count) > RANGES_MAX => Err(Failure::TooLarge),
        Ok(_) if (bytes as usize) < ARENA_SLOT_BYTES => Err(Failure::Malformed),
        Ok(_) if bytes as usize > ARENA_SLOT_BYTES + TRANSFER_BYTES_MAX => Err(Failure::TooLarge),
        Ok(count) => Ok(count),
    }
}

fn take_atomic(entry: &Entry, segment: SegmentId, offset: u64, flags: u16) -> Result<Operation, Failure> {
    if !offset.is_multiple_of(8) {
        return Err(Failure::Unaligned);
    }
    let kind = u8::try_from(entry[4] & u64::from(u32::MAX)).map_err(|_| Failure::Malformed)?;
    let change = AtomicOp::from_parts(kind, entry[6], entry[7])?;
    let under = entry[4] >> 32 << 32 | entry[5] >> 32;
    let token = (flags & FLAG_TOKEN != 0).then_some(LockToken(under));
    Ok(Operation::Atomic { segment, offset, change, token })
}

#[cfg(test)]
mod tests;
