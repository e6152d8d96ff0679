//! Failures and outcomes of operations, and their encoding.

use crate::Limit;
use crate::limits::{AREAS_MAX, LEASE_MAX_US, TRANSFER_BYTES_MAX, VALUE_BYTES_MAX};
use thiserror::Error;

/// Reason of a failure, as it travels in completions and messages. The numbers are part of the protocol.
///
/// ```
/// # use ddss_core as ddss;
/// use ddss::Failure;
/// assert_eq!(Failure::Locked.to_string(), "another client holds the lock");
/// assert_eq!(Failure::from_code(Failure::Locked.code()), Failure::Locked);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
#[repr(u8)]
pub enum Failure {
    /// No segment of that name, or the segment was released.
    #[error("there is no such segment (never allocated, or released since)")]
    NotFound = 1,
    /// The name is taken.
    #[error("a segment of that name exists")]
    AlreadyExists = 2,
    /// Offset and length reach beyond the segment.
    #[error("the range reaches beyond the end of the segment")]
    OutOfRange = 3,
    /// The permission bits of the segment forbid it.
    #[error("permission denied by the segment's owner and mode")]
    PermissionDenied = 4,
    /// A limit is reached for now; nothing happened, and a retry may succeed.
    #[error("busy, no room for more {0}: try again")]
    Busy(Limit) = 5,
    /// The transfer exceeds the maximum size.
    #[error(
        "more than the {TRANSFER_BYTES_MAX} bytes of one request (one range: {VALUE_BYTES_MAX}): transfer it in parts"
    )]
    TooLarge = 6,
    /// The node's pool has no free run of blocks.
    #[error("the node has no memory left for a segment of that size")]
    NoSpace = 7,
    /// The home, or the connection to it, is down.
    #[error("the segment's home node does not answer")]
    NodeDown = 8,
    /// The deadline passed.
    #[error("the deadline passed")]
    TimedOut = 9,
    /// The version that the call named is not the segment's.
    #[error("the segment has another version than the call named")]
    VersionMismatch = 10,
    /// The request is malformed.
    #[error("the request is malformed")]
    Malformed = 11,
    /// The operation is not supported here.
    #[error("this node does not support the operation")]
    Unsupported = 12,
    /// The name is empty, too long, or has invalid characters.
    #[error("the name is empty, longer than 128 bytes, or has control characters")]
    BadName = 13,
    /// The size is zero or above the limit.
    #[error("the size is zero or above the limit")]
    BadSize = 14,
    /// The word is not on an 8-byte boundary.
    #[error("the word is not aligned to 8 bytes")]
    Unaligned = 15,
    /// Writers changed the segment for as long as the call waited.
    #[error("the segment changed during every attempt to read it whole")]
    Contended = 16,
    /// The lock of the call is no longer held: its lease ran out, or it was broken.
    #[error("the lock was lost (its lease ran out, or it was broken): take it again")]
    LockLost = 17,
    /// Another client holds the lock, and the call does not wait.
    #[error("another client holds the lock")]
    Locked = 18,
    /// The caller's client holds the segment's lock: the call would wait for itself.
    #[error("this client holds the segment's lock itself: make the call through its lock guard, or drop the guard")]
    OwnLock = 19,
    /// The version that the call named is no longer in the history.
    #[error("that version is no longer in the segment's history (raise the history of the segment)")]
    VersionGone = 20,
    /// The user has reached its quota of bytes on that node.
    #[error(
        "this user has as many bytes of segments on that node as its quota allows (release some, or have the quota raised)"
    )]
    QuotaBytes = 21,
    /// The user has reached its quota of segments on that node.
    #[error("this user has as many segments on that node as its quota allows (release some, or have the quota raised)")]
    QuotaSegments = 22,
    /// The requester's node is stopping and takes no new requests.
    #[error("this node is stopping, and the call was not started")]
    GoingDown = 23,
    /// The home's disk, or its limit for files, has no room for the segment.
    #[error("the home has no room for a file of that size (check its disk and log, or raise ddssd --file-bytes)")]
    NoFileSpace = 24,
    /// The cluster cannot write its log.
    #[error(
        "the cluster's log cannot be written: the disk under the leader's state folder is full or fails (see its log)"
    )]
    LogUnwritable = 25,
    /// The name belongs to another shard of the daemon: the requester assumes another number of shards.
    #[error(
        "that name belongs to another progress thread of the daemon (does the application run the daemon's release of ddss?)"
    )]
    WrongShard = 26,
    /// The home has the maximum number of segments.
    #[error("the node is the home of as many segments as ddssd --segments allows")]
    SegmentsFull = 27,
    /// The home's memory has the maximum number of areas, one for each set of readers.
    #[error(
        "the node's memory is split among {} sets of readers, which is the maximum until it restarts (use the owner and mode of existing segments)",
        AREAS_MAX - 1
    )]
    ReaderSetsFull = 28,
    /// A majority of the cluster's voters does not answer: names cannot be decided.
    #[error(
        "no majority of the cluster's voters can be reached, so no name is created or released (ddss nodes shows the dead ones)"
    )]
    NoMajority = 29,
    /// The parts of a large put are gone: its home restarted, or they waited too long.
    #[error("the parts of this put are gone (its home restarted, or it paused for too long): put again")]
    UploadGone = 30,
    /// Large puts fill their share of the home's memory.
    #[error("large puts fill their share of the home's memory (half of ddssd --pool-bytes; one client: half of that)")]
    UploadsFull = 31,
    /// The lease of a lock is zero or above the maximum.
    #[error("the lease is zero or above {} minutes: ask for less, and renew it", LEASE_MAX_US / 60_000_000)]
    BadLease = 34,
    /// The state word of a table's row is one that no commit leaves behind. Other rows are not affected.
    #[error(
        "the row is damaged: its state word belongs to a commit that never ended (copy the other rows, and release the table)"
    )]
    Damaged = 35,
    /// The daemon moves the segment or writes a large value into it, or its home changes; nothing happened.
    #[error("the segment is being moved or written, or gets another home: try again")]
    InProgress = 36,
    /// The lock of the call is a shared one, which permits no change.
    #[error("the lock is a shared one, which permits no change: take it without `shared`")]
    SharedLock = 37,
    /// Two copies need a cluster: this node runs without one.
    #[error("two copies need a cluster: allocate one copy, or start ddssd with peers")]
    NoCluster = 38,
    /// The file system of the home's shared memory is full, although its pool has room.
    #[error("the file system of the home's shared memory is full: enlarge it (df /dev/shm there), or free space on it")]
    NoSharedMemory = 39,
}

macro_rules! failures {
    ($($name:ident $(($data:ident))? = $code:literal,)*) => {
        impl Failure {
            /// All failures, with one limit for those that name one.
            const ALL: &[Failure] = &[$(Failure::$name $((failures!(@ $data)))?,)*];

            /// Returns the number on the wire. A limit has a number of its own.
            pub const fn code(self) -> u8 {
                match self { $(Failure::$name { .. } => $code,)* }
            }

            /// Returns the name of the variant, without the limit.
            pub const fn name(self) -> &'static str {
                match self { $(Failure::$name { .. } => stringify!($name),)* }
            }
        }
    };
    (@ limit) => { Limit::Other };
}

failures! {
    NotFound = 1,
    AlreadyExists = 2,
    OutOfRange = 3,
    PermissionDenied = 4,
    Busy (limit) = 5,
    TooLarge = 6,
    NoSpace = 7,
    NodeDown = 8,
    TimedOut = 9,
    VersionMismatch = 10,
    Malformed = 11,
    Unsupported = 12,
    BadName = 13,
    BadSize = 14,
    Unaligned = 15,
    Contended = 16,
    LockLost = 17,
    Locked = 18,
    OwnLock = 19,
    VersionGone = 20,
    QuotaBytes = 21,
    QuotaSegments = 22,
    GoingDown = 23,
    NoFileSpace = 24,
    LogUnwritable = 25,
    WrongShard = 26,
    SegmentsFull = 27,
    ReaderSetsFull = 28,
    NoMajority = 29,
    UploadGone = 30,
    UploadsFull = 31,
    BadLease = 34,
    Damaged = 35,
    InProgress = 36,
    SharedLock = 37,
    NoCluster = 38,
    NoSharedMemory = 39,
}

impl Failure {
    /// Returns the failure of that number; an unknown one reads as [`Failure::Malformed`].
    pub fn from_code(code: u8) -> Self {
        Self::ALL.iter().copied().find(|failure| failure.code() == code).unwrap_or(Failure::Malformed)
    }

    /// Returns the limit that the call has met.
    ///
    /// ```
    /// # use ddss_core as ddss;
    /// use ddss::{Failure, Limit};
    /// assert_eq!(Failure::SegmentsFull.limit(), Some(Limit::Segments));
    /// assert_eq!(Failure::NotFound.limit(), None);
    /// ```
    pub const fn limit(self) -> Option<Limit> {
        Some(match self {
            Failure::Busy(limit) => limit,
            Failure::SegmentsFull => Limit::Segments,
            Failure::ReaderSetsFull => Limit::ReaderSets,
            Failure::UploadsFull => Limit::UploadBytes,
            Failure::QuotaBytes => Limit::QuotaBytes,
            Failure::QuotaSegments => Limit::QuotaSegments,
            _ => return None,
        })
    }

    /// Returns the number of the limit on the wire, in the place that the kind of an outcome leaves free.
    const fn limit_bits(self) -> u8 {
        match self {
            Failure::Busy(limit) => limit.code() << Outcome::KIND_BITS,
            _ => 0,
        }
    }

    /// Returns the failure of these numbers; `None` if a limit is named where none belongs.
    fn from_codes(code: u8, limit: u8) -> Option<Self> {
        match Self::from_code(code) {
            Failure::Busy(_) => Some(Failure::Busy(Limit::from_code(limit))),
            failure => (limit == 0).then_some(failure),
        }
    }
}

/// Outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// The operation took effect.
    Done,
    /// The operation certainly did nothing.
    Failed(Failure),
    /// Outcome unknown: the operation may have taken effect.
    Indeterminate(Failure),
}

impl Outcome {
    const DONE: u8 = 0;
    const FAILED: u8 = 1;
    const INDETERMINATE: u8 = 2;
    /// Bits of the kind; the number of a limit is above them.
    const KIND_BITS: u32 = 2;

    /// Returns the two bytes on the wire: the kind with the limit's number above it, and the failure's number.
    pub const fn to_bytes(self) -> [u8; 2] {
        match self {
            Outcome::Done => [Self::DONE, 0],
            Outcome::Failed(failure) => [Self::FAILED | failure.limit_bits(), failure.code()],
            Outcome::Indeterminate(failure) => [Self::INDETERMINATE | failure.limit_bits(), failure.code()],
        }
    }

    /// Decodes the two bytes; an unknown kind reads as indeterminate.
    #[inline]
    pub fn from_bytes(bytes: [u8; 2]) -> Self {
        if bytes[0] == Self::DONE { Outcome::Done } else { Self::from_bytes_of_failure(bytes) }
    }

    #[cold]
    fn from_bytes_of_failure(bytes: [u8; 2]) -> Self {
        let (kind, limit) = (bytes[0] & ((1 << Self::KIND_BITS) - 1), bytes[0] >> Self::KIND_BITS);
        match (kind, Failure::from_codes(bytes[1], limit)) {
            (Self::FAILED, Some(failure)) => Outcome::Failed(failure),
            (_, Some(failure)) => Outcome::Indeterminate(failure),
            (_, None) => Outcome::Indeterminate(Failure::from_code(bytes[1])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_round_trips() {
        // If this broke, a put that may have happened could be reported as one that certainly did not.
        let limits = Limit::ALL.iter().map(|&limit| Failure::Busy(limit));
        for failure in Failure::ALL.iter().copied().chain(limits) {
            for outcome in [Outcome::Done, Outcome::Failed(failure), Outcome::Indeterminate(failure)] {
                assert_eq!(Outcome::from_bytes(outcome.to_bytes()), outcome);
            }
        }
        assert_eq!(Outcome::from_bytes([77, 1]), Outcome::Indeterminate(Failure::NotFound));
        assert_eq!(Outcome::from_bytes([4, 0]), Outcome::Indeterminate(Failure::Malformed));
        let of_another_release = Outcome::from_bytes([1 | 63 << 2, Failure::Busy(Limit::Other).code()]);
        assert_eq!(of_another_release, Outcome::Failed(Failure::Busy(Limit::Other)));
    }
}
