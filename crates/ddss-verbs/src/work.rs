//! Operations that are posted to a fabric, and the reasons to refuse them.

use crate::id::{PeerId, RegionId};

/// Part of a registered region of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRange {
    /// Region.
    pub region: RegionId,
    /// Offset from the start of the region in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Address in a peer's memory: a key, and an address inside the window of that key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRange {
    /// Key of the window.
    pub key: u32,
    /// `window.base + offset`.
    pub address: u64,
}

/// Options of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendMode {
    /// Requests a solicited event, so that the receiver wakes up.
    pub solicited: bool,
    /// Local window that the receiver invalidates on arrival, before it sees the message.
    pub invalidate: Option<u32>,
}

/// One operation. Its `tag` comes back in exactly one [`Event::Done`](crate::Event::Done).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "all variants share the fields: peer, tag, local range, remote range")]
pub enum Work<'a> {
    /// Copies remote memory to local memory. A peer executes reads and atomics in the order of posting.
    Read { peer: PeerId, tag: u64, local: LocalRange, remote: RemoteRange },
    /// Copies local memory to remote memory. *Done* means that the local bytes may change again, not that they
    /// arrived.
    Write { peer: PeerId, tag: u64, local: LocalRange, remote: RemoteRange },
    /// Replaces the remote word by `swap` if it equals `compare`; *done* carries the previous value.
    CompareSwap { peer: PeerId, tag: u64, remote: RemoteRange, compare: u64, swap: u64 },
    /// Adds to the remote word; *done* carries the previous value.
    FetchAdd { peer: PeerId, tag: u64, remote: RemoteRange, add: u64 },
    /// Sends a message in order, after every write posted before it. The bytes are copied immediately.
    Send { peer: PeerId, tag: u64, message: &'a [u8], mode: SendMode },
    /// Sends eight bytes of immediate data, in order with the messages.
    Immediate { peer: PeerId, tag: u64, data: [u8; 8], solicited: bool },
}

impl Work<'_> {
    /// Returns the peer that the operation addresses.
    #[must_use]
    pub fn peer(&self) -> PeerId {
        match *self {
            Work::Read { peer, .. }
            | Work::Write { peer, .. }
            | Work::CompareSwap { peer, .. }
            | Work::FetchAdd { peer, .. }
            | Work::Send { peer, .. }
            | Work::Immediate { peer, .. } => peer,
        }
    }

    /// Returns the tag that the completion carries.
    #[must_use]
    pub fn tag(&self) -> u64 {
        match *self {
            Work::Read { tag, .. }
            | Work::Write { tag, .. }
            | Work::CompareSwap { tag, .. }
            | Work::FetchAdd { tag, .. }
            | Work::Send { tag, .. }
            | Work::Immediate { tag, .. } => tag,
        }
    }
}

/// A batch that was posted only in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot post operation {index} of the batch: {kind}")]
pub struct PostError {
    /// Index of the first operation that was not posted; earlier ones were.
    pub index: usize,
    /// Reason.
    pub kind: PostErrorKind,
}

/// Reason to refuse an operation. The operation certainly did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostErrorKind {
    /// The queue of this peer is full; retry after a completion.
    #[error("the queue of this peer is full")]
    Busy,
    /// The peer does not exist, or no longer.
    #[error("unknown peer")]
    UnknownPeer,
    /// The peer is not connected yet.
    #[error("the peer is not connected yet")]
    NotConnected,
    /// The region does not exist.
    #[error("unknown region")]
    UnknownRegion,
    /// The range is outside the region, or the remote address wraps around.
    #[error("the range is outside the region")]
    OutOfBounds,
    /// The address of an atomic is not a multiple of eight.
    #[error("the address of an atomic is not a multiple of eight")]
    Unaligned,
    /// The peer accepts neither reads nor atomics.
    #[error("the peer accepts neither reads nor atomics")]
    NoReads,
    /// The memory cannot be locked for the adapter; the log names the limit.
    #[error("the memory cannot be locked for the adapter")]
    NotLocked,
    /// The peer or the adapter does not support this operation.
    #[error("the connection does not support this operation")]
    Unsupported,
    /// The operation exceeds a limit in the fabric's capabilities.
    #[error("the length exceeds the limit of the fabric")]
    TooLong,
}
