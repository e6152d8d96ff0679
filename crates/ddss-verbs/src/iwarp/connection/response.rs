//! Requests of the peer, and long messages that are being sent.

use std::collections::VecDeque;

use crate::id::RegionId;
use crate::iwarp::rdmap::{AtomicKind, Opcode};
use crate::memory::RegionTable;
use crate::work::{LocalRange, RemoteRange};

/// An answer up to this length is small: it is sent along with others.
const SMALL_BYTES: usize = 4 << 10;

/// Rule for payload in memory. Payload that only this thread can change, and that is sent immediately, is summed in
/// place and left to the socket. Other payload is copied when it is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    InPlace,
    Copied,
}

/// A checked request of the peer, with a hold on its region.
#[derive(Clone, Copy, Debug)]
pub(super) enum Response {
    Read { region: Option<RegionId>, offset: u64, bytes: u32, key: u32, address: u64 },
    Atomic { region: RegionId, offset: u64, kind: AtomicKind, id: u32 },
}

impl Response {
    pub(super) fn region(&self) -> Option<RegionId> {
        match *self {
            Response::Read { region, .. } => region,
            Response::Atomic { region, .. } => Some(region),
        }
    }

    /// Returns true if the answer is worth a packet of its own.
    pub(super) fn is_large(&self) -> bool {
        matches!(*self, Response::Read { bytes, .. } if bytes as usize > SMALL_BYTES)
    }

    pub(super) fn hold(&self, memory: &mut RegionTable) {
        if let Some(region) = self.region() {
            memory.hold(region);
        }
    }
}

/// A long tagged message that is being sent. Nothing else is sent between its segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) opcode: Opcode,
    /// Region with a hold, if there is any.
    pub(super) region: Option<RegionId>,
    pub(super) offset: u64,
    pub(super) remaining: u64,
    pub(super) key: u32,
    pub(super) address: u64,
    /// True if it has to be read from memory within one poll.
    pub(super) is_snapshot: bool,
    /// Of a write: its tag and its start in the stream.
    pub(super) receipt: Option<(u64, u64)>,
}

impl Stream {
    pub(super) fn write(tag: u64, local: LocalRange, remote: RemoteRange, start: u64) -> Self {
        Self {
            opcode: Opcode::Write,
            region: Some(local.region),
            offset: local.offset,
            remaining: local.bytes,
            key: remote.key,
            address: remote.address,
            is_snapshot: false,
            receipt: Some((tag, start)),
        }
    }
}

/// Answers to the peer, and the long message that is being sent.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) queue: VecDeque<Response>,
    pub(super) stream: Option<Stream>,
    /// True if an answer comes before posted work.
    pub(super) is_next: bool,
}
