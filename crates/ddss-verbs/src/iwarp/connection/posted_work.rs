//! Posted work until its completion: queued, requested, or encoded.

use std::collections::VecDeque;

use super::context::Context;
use crate::id::{PeerId, RegionId};
use crate::iwarp::ddp::Tagged;
use crate::iwarp::rdmap::AtomicKind;
use crate::terminate_code::TerminateCode;
use crate::work::{LocalRange, RemoteRange, SendMode};

/// An encoded write or message; it completes when the socket has accepted it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receipt {
    pub(super) tag: u64,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// A requested read.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRead {
    /// `None` if its completion is not reported.
    pub(super) tag: Option<u64>,
    pub(super) sequence: u32,
    pub(super) start: u64,
    pub(super) key: u32,
    /// `None` if the read was abandoned.
    pub(super) region: Option<RegionId>,
    pub(super) offset: u64,
    pub(super) bytes: u32,
    pub(super) arrived: u32,
}

impl PendingRead {
    /// Checks a segment of the response and returns its place. Segments arrive in order.
    pub(super) fn take(&mut self, header: Tagged, bytes: usize) -> Result<(Option<RegionId>, u64), TerminateCode> {
        if header.key != self.key {
            return Err(TerminateCode::DDP_KEY);
        }
        let remaining = self.bytes - self.arrived;
        let fits = bytes <= remaining as usize && header.address == u64::from(self.arrived);
        let complete = bytes == remaining as usize;
        if !fits || header.last != complete {
            return Err(TerminateCode::DDP_BOUNDS);
        }
        let offset = self.offset + u64::from(self.arrived);
        self.arrived += bytes as u32;
        Ok((if bytes == 0 { None } else { self.region }, offset))
    }

    /// Returns the bytes whose segments have not arrived.
    pub(super) fn remaining(&self) -> u32 {
        self.bytes - self.arrived
    }

    /// Completes the read: the last segment is in its place.
    pub(super) fn done(self, peer: PeerId, cx: &mut Context<'_>) {
        if let Some(region) = self.region {
            cx.memory.release(region);
        }
        if let Some(tag) = self.tag {
            cx.events.push_done(peer, tag, Ok(0));
        }
    }
}

/// A requested atomic.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingAtomic {
    pub(super) tag: u64,
    pub(super) sequence: u32,
    pub(super) start: u64,
    pub(super) id: u32,
}

/// Queued work, with a hold on its region.
#[derive(Clone, Copy, Debug)]
pub(super) enum Queued {
    Read {
        tag: u64,
        local: LocalRange,
        remote: RemoteRange,
    },
    Write {
        tag: u64,
        local: LocalRange,
        remote: RemoteRange,
    },
    Atomic {
        tag: u64,
        remote: RemoteRange,
        kind: AtomicKind,
    },
    /// Its bytes are the next ones in [`Backlog::messages`].
    Send {
        tag: u64,
        bytes: usize,
        mode: SendMode,
    },
    Immediate {
        tag: u64,
        data: [u8; 8],
        solicited: bool,
    },
}

impl Queued {
    pub(super) fn tag(&self) -> u64 {
        match *self {
            Queued::Read { tag, .. }
            | Queued::Write { tag, .. }
            | Queued::Atomic { tag, .. }
            | Queued::Send { tag, .. }
            | Queued::Immediate { tag, .. } => tag,
        }
    }

    /// Returns true if the work is worth a packet of its own.
    pub(super) fn is_large(&self) -> bool {
        matches!(self, Queued::Write { .. })
    }

    pub(super) fn region(&self) -> Option<RegionId> {
        match self {
            Queued::Read { local, .. } | Queued::Write { local, .. } => Some(local.region),
            _ => None,
        }
    }
}

/// Posted work that is not yet encoded.
#[derive(Default)]
pub(super) struct Backlog {
    pub(super) queue: VecDeque<Queued>,
    pub(super) messages: VecDeque<u8>,
    /// Room for the message that is encoded.
    pub(super) next_message: Vec<u8>,
}

/// Posted work until its completion.
pub(super) struct PostedWork {
    pub(super) backlog: Backlog,
    pub(super) receipts: VecDeque<Receipt>,
    pub(super) reads: VecDeque<PendingRead>,
    pub(super) atomics: VecDeque<PendingAtomic>,
    /// Key of the next read's place.
    pub(super) sink_key: u32,
    /// Id of the next atomic.
    pub(super) atomic_id: u32,
}

impl PostedWork {
    pub(super) fn new(seed: u32) -> Self {
        let (backlog, receipts) = (Backlog::default(), VecDeque::new());
        let (reads, atomics) = (VecDeque::new(), VecDeque::new());
        Self { backlog, receipts, reads, atomics, sink_key: seed | 1, atomic_id: seed }
    }
}
