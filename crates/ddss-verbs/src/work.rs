//! What is asked of a fabric: work, and why it is not taken.

use crate::fabric::{PeerId, RegionId};

/// A piece of registered memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRange {
    /// The region.
    pub region: RegionId,
    /// Bytes from the start of the region.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
}

/// Where in the memory of a peer: a key it gave us, and an address inside the window that the key opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRange {
    /// The key of the window.
    pub key: u32,
    /// `window.base + offset`.
    pub address: u64,
}

/// What a message does besides arriving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendMode {
    /// The receiver is asked to wake up for it.
    pub solicited: bool,
    /// The receiver withdraws this window of its own on arrival, before the message is seen.
    pub invalidate: Option<u32>,
}

/// One operation. The `tag` comes back in exactly one [`Event::Done`](crate::Event::Done).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the same everywhere: whom, which tag, what here, what there")]
pub enum Work<'a> {
    /// Remote memory into local memory. Reads and atomics of one peer are executed there in the order they were posted.
    Read { peer: PeerId, tag: u64, local: LocalRange, remote: RemoteRange },
    /// Local memory into remote memory. *Done* says that the local bytes may be changed again, not that they arrived.
    Write { peer: PeerId, tag: u64, local: LocalRange, remote: RemoteRange },
    /// Replaces the remote word by `swap` if it is `compare`; *done* carries what was there.
    CompareSwap { peer: PeerId, tag: u64, remote: RemoteRange, compare: u64, swap: u64 },
    /// Adds to the remote word; *done* carries what was there.
    FetchAdd { peer: PeerId, tag: u64, remote: RemoteRange, add: u64 },
    /// A message, delivered in order and after every write posted before it. The bytes are copied at once.
    Send { peer: PeerId, tag: u64, message: &'a [u8], mode: SendMode },
    /// Eight bytes without a message, in order with the messages.
    Immediate { peer: PeerId, tag: u64, data: [u8; 8], solicited: bool },
}

impl Work<'_> {
    /// Whom it goes to.
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

    /// What its completion will carry.
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

/// A batch was taken up to here and no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("work {index} of the batch was not taken: {kind}")]
pub struct PostError {
    /// The first one that was not taken; those before it were.
    pub index: usize,
    /// Why.
    pub kind: PostErrorKind,
}

/// Why work was not taken. It certainly did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostErrorKind {
    /// Too much is queued for this peer; try again after a completion.
    #[error("too much is queued for this peer")]
    Busy,
    /// There is no such peer (any more).
    #[error("there is no such peer")]
    UnknownPeer,
    /// The peer has not been connected yet.
    #[error("the peer is not connected yet")]
    NotConnected,
    /// There is no such region.
    #[error("there is no such region")]
    UnknownRegion,
    /// Outside of the region, or the remote address wraps around.
    #[error("the range is outside of the region")]
    OutOfBounds,
    /// An atomic on an address that is no multiple of eight.
    #[error("the address of an atomic is not a multiple of eight")]
    Unaligned,
    /// The peer works on no reads and no atomics.
    #[error("the peer takes no reads and no atomics")]
    NoReads,
    /// The memory cannot be locked for the adapter; the log says why.
    #[error("the memory cannot be locked for the adapter")]
    NotLocked,
    /// This peer, or the adapter, cannot do this.
    #[error("the connection carries nothing of this kind")]
    Unsupported,
    /// Longer than the fabric's capabilities say.
    #[error("longer than the fabric carries")]
    TooLong,
}
