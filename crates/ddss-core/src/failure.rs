//! Why an operation did not end as *done*, and how each end travels as a number.

use crate::limits::{AREAS_MAX, SEGMENTS_PER_NODE_MAX, TRANSFER_BYTES_MAX};
use thiserror::Error;

/// What went wrong, as it travels in completions and messages. The numbers are part of the protocol.
///
/// ```
/// use ddss_core::Failure;
/// assert_eq!(Failure::Locked.to_string(), "somebody else holds the lock");
/// assert_eq!(Failure::from_code(Failure::Locked.code()), Failure::Locked);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
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
    /// A table or queue is full; nothing happened, later it may work.
    #[error("busy: a table or queue is full, try again")]
    Busy = 5,
    /// One transfer moves at most so much.
    #[error("more than the {TRANSFER_BYTES_MAX} bytes that one transfer can move")]
    TooLarge = 6,
    /// The node's pool has no free run of blocks.
    #[error("the node has no memory left for a segment of that size")]
    NoSpace = 7,
    /// The home, or the road to it, is gone.
    #[error("the segment's home node does not answer")]
    NodeDown = 8,
    /// The deadline passed.
    #[error("the deadline passed")]
    TimedOut = 9,
    /// The version that the call named is not the segment's.
    #[error("the segment has another version than the call named")]
    VersionMismatch = 10,
    /// Not a request that this node understands.
    #[error("the request is malformed")]
    Malformed = 11,
    /// Understood, and not to be had here.
    #[error("this node does not do that")]
    Unsupported = 12,
    /// The name is empty, too long, or has characters that no name may have.
    #[error("the name is empty, longer than 128 bytes, or has control characters")]
    BadName = 13,
    /// The size is zero or above the limit.
    #[error("the size is zero or above the limit")]
    BadSize = 14,
    /// The word is not on an 8-byte boundary.
    #[error("the word is not aligned to 8 bytes")]
    Unaligned = 15,
    /// Writers kept the segment changing for as long as the call waited.
    #[error("the segment changed during every attempt to read it whole")]
    Contended = 16,
    /// The lock that the call was made under is not held any more: its lease ran out, or it was broken.
    #[error("the lock is not held any more (its lease ran out, or it was broken)")]
    LockLost = 17,
    /// Somebody else holds the lock, and the call does not wait.
    #[error("somebody else holds the lock")]
    Locked = 18,
    /// The caller's client holds the segment's lock: the call would wait for itself.
    #[error("this client holds the segment's lock itself: make the call through the lock that is held, or let it go")]
    OwnLock = 19,
    /// The version that the call named was committed, and is kept no longer.
    #[error("that version is not kept any more (how many are says the segment's history)")]
    VersionGone = 20,
    /// The user has as many bytes of segments on that node as he may have.
    #[error(
        "this user has as many bytes of segments on that node as its quota allows (release some, or have the quota raised)"
    )]
    QuotaBytes = 21,
    /// The user has as many segments on that node as he may have.
    #[error("this user has as many segments on that node as its quota allows (release some, or have the quota raised)")]
    QuotaSegments = 22,
    /// The node of who asks was told to stop, and takes no new requests.
    #[error("this node is going down: it was told to stop, and the call was not begun")]
    GoingDown = 23,
    /// The home's disk, or what may be in files there, has no room for the segment.
    #[error("the home has no room for a file of that size (a full disk, see its log; or ddssd --file-bytes)")]
    NoFileSpace = 24,
    /// The cluster cannot write down what was asked.
    #[error(
        "the cluster's log cannot be written: the disk under the leader's state folder is full or fails (see its log)"
    )]
    LogUnwritable = 25,
    /// The name belongs to another plane of the daemon: whoever asks counts its planes otherwise.
    #[error(
        "that name belongs to another progress thread of the daemon (does the application run the daemon's release of ddss?)"
    )]
    WrongPlane = 26,
    /// The home has as many segments as a node can have.
    #[error("the node is the home of {SEGMENTS_PER_NODE_MAX} segments already, and of no more at once")]
    SegmentsFull = 27,
    /// The memory of the home is split among as many sets of readers as it can be.
    #[error(
        "the node's memory is split among {} sets of readers, and among no more until it is started again (give the segment the owner and mode of others)",
        AREAS_MAX - 1
    )]
    AudiencesFull = 28,
    /// Most voters of the cluster do not answer: nothing about names can be decided.
    #[error(
        "no majority of the cluster's voters can be reached, so no name is made or given back (ddss nodes shows which ones are dead)"
    )]
    NoMajority = 29,
}

impl Failure {
    const ALL: [Failure; 29] = [
        Failure::NotFound,
        Failure::AlreadyExists,
        Failure::OutOfRange,
        Failure::PermissionDenied,
        Failure::Busy,
        Failure::TooLarge,
        Failure::NoSpace,
        Failure::NodeDown,
        Failure::TimedOut,
        Failure::VersionMismatch,
        Failure::Malformed,
        Failure::Unsupported,
        Failure::BadName,
        Failure::BadSize,
        Failure::Unaligned,
        Failure::Contended,
        Failure::LockLost,
        Failure::Locked,
        Failure::OwnLock,
        Failure::VersionGone,
        Failure::QuotaBytes,
        Failure::QuotaSegments,
        Failure::GoingDown,
        Failure::NoFileSpace,
        Failure::LogUnwritable,
        Failure::WrongPlane,
        Failure::SegmentsFull,
        Failure::AudiencesFull,
        Failure::NoMajority,
    ];

    /// The number on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The failure of that number; an unknown one reads as [`Failure::Malformed`].
    pub fn from_code(code: u8) -> Self {
        Self::ALL.iter().copied().find(|failure| failure.code() == code).unwrap_or(Failure::Malformed)
    }
}

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// It happened.
    Done,
    /// It certainly did nothing.
    Failed(Failure),
    /// It may have happened.
    Indeterminate(Failure),
}

impl Outcome {
    const DONE: u8 = 0;
    const FAILED: u8 = 1;
    const INDETERMINATE: u8 = 2;

    /// The two bytes that travel: the kind and the failure's number.
    pub const fn to_bytes(self) -> [u8; 2] {
        match self {
            Outcome::Done => [Self::DONE, 0],
            Outcome::Failed(failure) => [Self::FAILED, failure.code()],
            Outcome::Indeterminate(failure) => [Self::INDETERMINATE, failure.code()],
        }
    }

    /// Reads the two bytes; an unknown kind is the one that promises least.
    pub fn from_bytes(bytes: [u8; 2]) -> Self {
        match bytes[0] {
            Self::DONE => Outcome::Done,
            Self::FAILED => Outcome::Failed(Failure::from_code(bytes[1])),
            _ => Outcome::Indeterminate(Failure::from_code(bytes[1])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_survives_the_wire() {
        // If this broke, a put that may have happened could be told as one that certainly did not.
        for failure in Failure::ALL {
            for outcome in [Outcome::Done, Outcome::Failed(failure), Outcome::Indeterminate(failure)] {
                assert_eq!(Outcome::from_bytes(outcome.to_bytes()), outcome);
            }
        }
        assert_eq!(Outcome::from_bytes([77, 1]), Outcome::Indeterminate(Failure::NotFound));
    }
}
