//! Operations that wait, watchers, and holders of locks.

use super::wait_list::Wait;
use crate::action::{CommitSource, RangeSet};
use crate::requester::{LockOwner, Requester};
use ddss_core::{ArenaRange, AtomicOp, LockDependency, LockRequest, LockToken, Principal, PutConditions, Version};

/// Operation on a segment at home here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PendingOp {
    Get(Get),
    Put { parts: RangeSet, source: CommitSource, conditions: PutConditions },
    Atomic { offset: u64, change: AtomicOp, token: Option<LockToken> },
    Lock(LockRequest),
}

/// Get as executed by its home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Get {
    pub(crate) parts: RangeSet,
    pub(crate) sink: Destination,
    pub(crate) lock_dependency: LockDependency,
    pub(crate) version: Option<Version>,
    /// Lock that the requester holds: its own gets do not wait for it.
    pub(crate) token: Option<LockToken>,
}

/// Destination of the bytes of a get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Destination {
    /// Arena of a client of this node.
    Arena(ArenaRange),
    /// The completion.
    Inline,
    /// The node that asked.
    Peer,
}

/// Queued operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiter {
    pub(crate) requester: Requester,
    pub(crate) principal: Principal,
    pub(crate) op: PendingOp,
    pub(crate) deadline_us: u64,
}

/// Operation that need not wait in its queue any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ready {
    /// From the queue of the segment: in a table it may have to wait for a row's lock next.
    OfSegment(Waiter),
    /// From the queue of a row.
    OfRow(Waiter),
}

/// Holder of the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Holder {
    pub(crate) token: LockToken,
    pub(crate) owner: LockOwner,
    pub(crate) shared: bool,
    pub(crate) until_us: u64,
}

/// Watcher of the version of a segment, or of a row of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Watcher {
    pub(crate) requester: Requester,
    /// Row of a table; 0 for a plain segment.
    pub(crate) row: u64,
    pub(crate) above: Version,
    pub(crate) deadline_us: u64,
}

impl Wait for Waiter {
    fn requester(&self) -> Requester {
        self.requester
    }
    fn deadline_us(&self) -> u64 {
        self.deadline_us
    }
}

impl Wait for Watcher {
    fn requester(&self) -> Requester {
        self.requester
    }
    fn deadline_us(&self) -> u64 {
        self.deadline_us
    }
}
