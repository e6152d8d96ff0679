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
        let mut entry = [0; 8];
        entry[1] = self.id.0;
        entry[5] = self.timeout_us.into();
        let op = match self.operation {
            Operation::Null => OP_NULL,
            Operation::Allocate { spec_and_name: range } => {
                put_range(&mut entry, range);
                OP_ALLOCATE
            }
            Operation::Open { name: range } => {
                put_range(&mut entry, range);
                OP_OPEN
            }
            Operation::Release { segment } => {
                entry[2] = segment.to_bits();
                OP_RELEASE
            }
            Operation::Get { segment, offset, into, inline, options } => {
                (entry[2], entry[3]) = (segment.to_bits(), offset);
                put_range(&mut entry, into);
                put_read_options(&mut entry, options);
                put_flags(&mut entry, &[(inline, FLAG_INLINE)]);
                OP_GET
            }
            Operation::GetMany { segment, list, ranges, options } => {
                (entry[2], entry[3]) = (segment.to_bits(), ranges.into());
                put_range(&mut entry, list);
                put_read_options(&mut entry, options);
                OP_GET_MANY
            }
            Operation::GetRows { segment, range, list, requested_model } => {
                (entry[2], entry[3]) = (segment.to_bits(), list.rows() as u64);
                put_range(&mut entry, range);
                put_read_options(&mut entry, ReadOptions { requested_model, version: None });
                put_flags(&mut entry, &[(true, FLAG_ROW)]);
                OP_GET_MANY
            }
            Operation::Put { segment, offset, from, conditions } => {
                (entry[2], entry[3]) = (segment.to_bits(), offset);
                put_conditions(&mut entry, conditions);
                match from {
                    Payload::Arena(range) => put_range(&mut entry, range),
                    Payload::Inline { bytes, length } => put_inline(&mut entry, &conditions, &bytes, length),
                }
                OP_PUT
            }
            Operation::PutMany { segment, list, ranges, conditions } => {
                (entry[2], entry[3]) = (segment.to_bits(), ranges.into());
                put_conditions(&mut entry, conditions);
                put_range(&mut entry, list);
                OP_PUT_MANY
            }
            Operation::UploadPart { segment, part: Part { upload, at, total }, from } => {
                (entry[2], entry[3]) = (segment.to_bits(), at.into());
                (entry[6], entry[7]) = (upload.0.into(), total.into());
                put_range(&mut entry, from);
                OP_UPLOAD_PART
            }
            Operation::CommitUpload { segment, offset, upload, conditions } => {
                (entry[2], entry[3], entry[4]) = (segment.to_bits(), offset, upload.0.into());
                put_conditions(&mut entry, conditions);
                OP_COMMIT_UPLOAD
            }
            Operation::DropUpload { segment, upload } => {
                (entry[2], entry[6]) = (segment.to_bits(), upload.0.into());
                OP_DROP_UPLOAD
            }
            Operation::Atomic { segment, offset, change, token } => {
                let (kind, first, second) = change.to_parts();
                let under = token.unwrap_or_default().0;
                (entry[2], entry[3], entry[4]) = (segment.to_bits(), offset, u64::from(kind) | under >> 32 << 32);
                (entry[6], entry[7]) = (first, second);
                entry[5] |= under << 32;
                put_flags(&mut entry, &[(token.is_some(), FLAG_TOKEN)]);
                OP_ATOMIC
            }
            Operation::Await { segment, offset, above } => {
                (entry[2], entry[3], entry[6]) = (segment.to_bits(), offset, above.0);
                put_flags(&mut entry, &[(self.parks, FLAG_PARKED)]);
                OP_AWAIT
            }
            Operation::Lock { segment, lock_request } => {
                (entry[2], entry[6]) = (segment.to_bits(), lock_request.lease_us.into());
                entry[3] = lock_request.row_offset.unwrap_or(0);
                put_flags(&mut entry, &[(lock_request.row_offset.is_some(), FLAG_ROW)]);
                put_flags(&mut entry, &[(lock_request.shared, FLAG_SHARED), (lock_request.no_wait, FLAG_NO_WAIT)]);
                put_flags(&mut entry, &[(self.parks, FLAG_PARKED)]);
                OP_LOCK
            }
            Operation::Unlock { segment, token } => {
                (entry[2], entry[6]) = (segment.to_bits(), token.0);
                OP_UNLOCK
            }
            Operation::Renew { segment, token, lease_us } => {
                (entry[2], entry[6], entry[7]) = (segment.to_bits(), token.0, lease_us.into());
                OP_RENEW
            }
            Operation::List { node, text } => {
                entry[3] = node.0.into();
                put_range(&mut entry, text);
                OP_LIST
            }
            Operation::Stat { segment, page } => {
                entry[2] = segment.to_bits();
                put_range(&mut entry, page);
                OP_STAT
            }
            Operation::Permit { segment, update } => {
                entry[2] = segment.to_bits();
                [entry[6], entry[7]] = update.to_words();
                OP_PERMIT
            }
            Operation::Break { segment } => {
                entry[2] = segment.to_bits();
                OP_BREAK
            }
            Operation::Sweep { segment, first, buckets } => {
                (entry[2], entry[3], entry[6]) = (segment.to_bits(), first, buckets);
                OP_SWEEP
            }
            Operation::Cancel { segment, request } => {
                (entry[2], entry[6]) = (segment.to_bits(), request.0);
                put_flags(&mut entry, &[(self.parks, FLAG_PARKED)]);
                OP_CANCEL
            }
            Operation::Collect => OP_COLLECT,
        };
        entry[0] |= u64::from(op) << 32;
        entry
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
        let flags = (entry[0] >> 48) as u16;
        let segment = SegmentId::from_bits(entry[2]);
        let offset = entry[3];
        let inline = flags & FLAG_INLINE != 0;
        let (op, model) = ((entry[0] >> 32) as u8, (entry[0] >> 40) as u8);
        let known = match op {
            OP_GET => FLAG_INLINE | FLAG_VERSION,
            OP_GET_MANY if flags & FLAG_ROW != 0 => FLAG_ROW,
            OP_GET_MANY => FLAG_VERSION,
            OP_PUT if inline => FLAG_INLINE,
            OP_PUT => FLAG_VERSION | FLAG_TOKEN | FLAG_ENTRY,
            OP_PUT_MANY | OP_COMMIT_UPLOAD => FLAG_VERSION | FLAG_TOKEN,
            OP_ATOMIC => FLAG_TOKEN,
            OP_LOCK => FLAG_SHARED | FLAG_NO_WAIT | FLAG_PARKED | FLAG_ROW,
            OP_AWAIT | OP_CANCEL => FLAG_PARKED,
            _ => 0,
        };
        let has_model = matches!(op, OP_GET | OP_GET_MANY | OP_PUT | OP_PUT_MANY | OP_COMMIT_UPLOAD);
        if flags & !known != 0 || (model != 0 && !has_model) {
            return Err(Failure::Malformed);
        }
        if op == OP_ATOMIC {
            return take_atomic(entry, segment, offset, flags);
        }
        let bytes = u32::try_from(entry[4]).map_err(|_| Failure::TooLarge)?;
        let range = ArenaRange { slot: (entry[5] >> 32) as u32, bytes };
        match op {
            OP_ALLOCATE if bytes as usize <= Spec::ENCODED_BYTES + NAME_BYTES_MAX => {
                Ok(Operation::Allocate { spec_and_name: range })
            }
            OP_OPEN if bytes as usize <= NAME_BYTES_MAX => Ok(Operation::Open { name: range }),
            OP_ALLOCATE | OP_OPEN => Err(Failure::BadName),
            OP_RELEASE => Ok(Operation::Release { segment }),
            OP_GET | OP_PUT if bytes as usize > TRANSFER_BYTES_MAX => Err(Failure::TooLarge),
            OP_GET if inline && bytes as usize > INLINE_REPLY_BYTES_MAX => Err(Failure::Malformed),
            OP_GET => Ok(Operation::Get { segment, offset, into: range, inline, options: take_read_options(entry)? }),
            OP_GET_MANY if flags & FLAG_ROW != 0 => {
                let list = RowList::of_request(offset, bytes).ok_or(Failure::Malformed)?;
                let ReadOptions { requested_model, .. } = take_read_options(entry)?;
                Ok(Operation::GetRows { segment, range, list, requested_model })
            }
            OP_GET_MANY => {
                let ranges = take_ranges(offset, bytes)?;
                Ok(Operation::GetMany { segment, list: range, ranges, options: take_read_options(entry)? })
            }
            OP_PUT if inline => {
                let (from, requested_model) = (take_inline(entry, bytes)?, asked_of_a_put(model)?);
                Ok(Operation::Put {
                    segment,
                    offset,
                    from,
                    conditions: PutConditions { requested_model, ..PutConditions::default() },
                })
            }
            OP_PUT => {
                Ok(Operation::Put { segment, offset, from: Payload::Arena(range), conditions: take_conditions(entry)? })
            }
            OP_PUT_MANY => {
                let ranges = take_ranges(offset, bytes)?;
                Ok(Operation::PutMany { segment, list: range, ranges, conditions: take_conditions(entry)? })
            }
            OP_UPLOAD_PART => Ok(Operation::UploadPart {
                segment,
                part: take_part([offset, entry[6], entry[7]], bytes)?,
                from: range,
            }),
            OP_COMMIT_UPLOAD => {
                let (upload, conditions) = (UploadId(bytes), take_conditions(entry)?);
                Ok(Operation::CommitUpload { segment, offset, upload, conditions })
            }
            OP_DROP_UPLOAD => Ok(Operation::DropUpload { segment, upload: UploadId(take_u32(entry[6])?) }),
            OP_AWAIT => Ok(Operation::Await { segment, offset, above: Version(entry[6]) }),
            OP_LOCK => {
                let lease_us = take_lease(entry[6])?;
                let (shared, no_wait) = (flags & FLAG_SHARED != 0, flags & FLAG_NO_WAIT != 0);
                let row_offset = (flags & FLAG_ROW != 0).then_some(offset);
                Ok(Operation::Lock { segment, lock_request: LockRequest { shared, no_wait, lease_us, row_offset } })
            }
            OP_UNLOCK => Ok(Operation::Unlock { segment, token: LockToken(entry[6]) }),
            OP_RENEW => Ok(Operation::Renew { segment, token: LockToken(entry[6]), lease_us: take_lease(entry[7])? }),
            OP_LIST if bytes as usize <= LIST_TEXT_BYTES_MAX => {
                let node = u16::try_from(offset).map_err(|_| Failure::Malformed)?;
                Ok(Operation::List { node: NodeId(node), text: range })
            }
            OP_LIST => Err(Failure::BadName),
            OP_STAT => Ok(Operation::Stat { segment, page: range }),
            OP_BREAK => Ok(Operation::Break { segment }),
            OP_SWEEP => Ok(Operation::Sweep { segment, first: offset, buckets: entry[6] }),
            OP_COLLECT => Ok(Operation::Collect),
            OP_CANCEL => Ok(Operation::Cancel { segment, request: RequestId(entry[6]) }),
            OP_PERMIT => Ok(Operation::Permit { segment, update: PermissionUpdate::from_words([entry[6], entry[7]])? }),
            _ => Err(Failure::Unsupported),
        }
    }
}

fn put_flags(entry: &mut Entry, flags: &[(bool, u16)]) {
    for &(_, flag) in flags.iter().filter(|(there, _)| *there) {
        entry[0] |= u64::from(flag) << 48;
    }
}

fn put_range(entry: &mut Entry, range: ArenaRange) {
    entry[4] = range.bytes.into();
    entry[5] |= u64::from(range.slot) << 32;
}

fn put_read_options(entry: &mut Entry, options: ReadOptions) {
    let (kind, parameter) = options.requested_model.map_or((0, 0), Model::to_parts);
    entry[0] |= u64::from(kind) << 40;
    (entry[6], entry[7]) = (parameter.into(), options.version.unwrap_or_default().0);
    put_flags(entry, &[(options.version.is_some(), FLAG_VERSION)]);
}

fn put_conditions(entry: &mut Entry, conditions: PutConditions) {
    let (kind, _) = conditions.requested_model.map_or((0, 0), Model::to_parts);
    entry[0] |= u64::from(kind) << 40;
    (entry[6], entry[7]) = conditions.to_words();
    let is_entry = conditions.entry.is_some();
    debug_assert!(!is_entry || conditions.version.is_none() && conditions.token.is_none(), "there is no room for both");
    put_flags(entry, &[(conditions.version.is_some(), FLAG_VERSION), (conditions.token.is_some(), FLAG_TOKEN)]);
    put_flags(entry, &[(is_entry, FLAG_ENTRY)]);
}

fn put_inline(entry: &mut Entry, conditions: &PutConditions, bytes: &[u8; INLINE_REQUEST_BYTES_MAX], length: u8) {
    debug_assert!(conditions.allow_inline(), "a put with a version or a token has its bytes in the arena");
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    (entry[4], entry[6], entry[7]) = (length.into(), word(0), word(8));
    put_flags(entry, &[(true, FLAG_INLINE)]);
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
