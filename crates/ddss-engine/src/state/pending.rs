//! Pending operations: one entry for each operation that waits for another node, with its deadline.

use crate::action::RangeSet;
use crate::config::Now;
use crate::ids::{BufferId, StepId};
use crate::requester::Requester;
use crate::state::lock_queue::{PendingOp, Waiter, Watcher};
use crate::state::memory::staging::Ticket;
use ddss_core::limits::{NODES_MAX, OPERATIONS_MAX, PARKED_OPERATIONS_MAX};
use ddss_core::{
    ArenaRange, ChannelId, Limit, LockToken, Name, NodeId, Principal, ReadOptions, RecordPlace, RequestId, RowList,
    SegmentId, Spec, Version,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// A get of a remote segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transfer {
    pub(crate) segment: SegmentId,
    pub(crate) parts: RangeSet,
    /// Destination in the arena.
    pub(crate) range: ArenaRange,
    /// True if the completion may carry the bytes instead.
    pub(crate) inline: bool,
    pub(crate) options: ReadOptions,
}

/// Reads of a get in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PendingReads {
    pub(crate) transfer: Transfer,
    /// Number of times that a put came between.
    pub(crate) tears: u8,
    /// Version of the history that is read; `None` for the segment itself.
    pub(crate) history_version: Option<Version>,
    /// The whole segment is read into the read cache.
    pub(crate) refresh: bool,
    /// Rows of a table that are read together.
    pub(crate) list: Option<RowList>,
}

/// Event that an operation waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitState {
    /// Answers of peers about a name; [`NameLookup`] has the details.
    Lookup,
    /// A home that creates a segment.
    Allocate { home: NodeId },
    /// A home that releases a segment.
    Release { home: NodeId },
    /// Segment info, to continue with this get.
    Info { transfer: Transfer },
    /// Bytes of a get that this node reads by itself.
    Fetch(PendingReads),
    /// Bytes of a get that the home executes.
    Home(Transfer),
    /// Page of a list, or of one segment's listing.
    Page { node: NodeId, into: ArenaRange, list: bool },
    /// End of an atomic or a permission change.
    Answer { segment: SegmentId },
    /// Version above this one.
    Version { segment: SegmentId, above: Version },
    /// Grant of a lock.
    Lock { segment: SegmentId, lease_us: u32, row_offset: Option<u64> },
    /// Grant that no caller waits for any more: given back when it arrives.
    LateLock { segment: SegmentId },
    /// End of an unlock.
    Unlock { segment: SegmentId, token: LockToken },
    /// Answer to a renewal.
    Renew { segment: SegmentId, token: LockToken, lease_us: u32 },
    /// Answer to a put, with its staging memory.
    Put { segment: SegmentId, ticket: Option<Ticket> },
    /// Answer to a part of a large put, with its staging memory.
    Part { segment: SegmentId, ticket: Option<Ticket> },
}

impl WaitState {
    /// Returns the range table that is in use until the end.
    pub(crate) fn table(&self) -> Option<BufferId> {
        let (WaitState::Info { transfer }
        | WaitState::Fetch(PendingReads { transfer, .. })
        | WaitState::Home(transfer)) = self
        else {
            return None;
        };
        match transfer.parts {
            RangeSet::Many { table, .. } => Some(table),
            RangeSet::One { .. } => None,
        }
    }

    /// Returns the segment of the operation.
    pub(crate) fn segment(&self) -> Option<SegmentId> {
        match *self {
            WaitState::Info { transfer }
            | WaitState::Fetch(PendingReads { transfer, .. })
            | WaitState::Home(transfer) => Some(transfer.segment),
            WaitState::Put { segment, .. }
            | WaitState::Part { segment, .. }
            | WaitState::Answer { segment }
            | WaitState::Version { segment, .. }
            | WaitState::Lock { segment, .. }
            | WaitState::LateLock { segment }
            | WaitState::Unlock { segment, .. }
            | WaitState::Renew { segment, .. } => Some(segment),
            WaitState::Lookup | WaitState::Allocate { .. } | WaitState::Release { .. } | WaitState::Page { .. } => None,
        }
    }

    /// Returns the segment that the operation may have changed.
    pub(crate) fn changes(&self) -> Option<SegmentId> {
        match *self {
            WaitState::Put { segment, .. } | WaitState::Answer { segment } => Some(segment),
            _ => None,
        }
    }
}

/// Lookup of a name at the peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NameLookup {
    pub(crate) name: Name,
    pub(crate) then: Continuation,
    /// Peers whose answer is outstanding.
    pub(crate) asked: AskedPeers,
    /// Number of peers that could not be asked.
    pub(crate) unreachable_peers: u16,
    /// The whole cluster was asked already.
    pub(crate) confirmed: bool,
}

/// Set of peers that a lookup waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AskedPeers([u64; Self::WORDS]);

impl AskedPeers {
    const WORDS: usize = (NODES_MAX + 1).div_ceil(64);

    pub(crate) fn add(&mut self, node: NodeId) {
        self.0[usize::from(node.0) / 64] |= 1 << (node.0 % 64);
    }
    pub(crate) fn contains(&self, node: NodeId) -> bool {
        self.0.get(usize::from(node.0) / 64).is_some_and(|word| word >> (node.0 % 64) & 1 != 0)
    }
    pub(crate) fn remove(&mut self, node: NodeId) {
        if let Some(word) = self.0.get_mut(usize::from(node.0) / 64) {
            *word &= !(1 << (node.0 % 64));
        }
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }
}

/// Step that follows a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Continuation {
    /// Open the segment that is found.
    Open,
    /// Allocate if none is found.
    Allocate(Spec),
}

/// One pending operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pending {
    pub(crate) channel: ChannelId,
    pub(crate) request: RequestId,
    pub(crate) principal: Principal,
    pub(crate) deadline_us: u64,
    pub(crate) timeout_us: u32,
    /// Home that was asked.
    pub(crate) on: NodeId,
    pub(crate) wait: WaitState,
}

/// Operations at home here that wait until the daemon has read memory for them, in order.
#[derive(Debug, Default)]
pub(crate) struct AwaitedReads {
    pub(crate) atomics: VecDeque<PendingAtomic>,
    pub(crate) records: VecDeque<PendingRecord>,
}

/// An atomic that waits for the current value of its word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingAtomic {
    pub(crate) now: Now,
    pub(crate) segment: SegmentId,
    pub(crate) offset: u64,
    pub(crate) change: ddss_core::AtomicOp,
    pub(crate) waiter: Waiter,
}

/// An operation on a record that waits for the record's version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingRecord {
    pub(crate) now: Now,
    pub(crate) segment: SegmentId,
    pub(crate) requester: Requester,
    pub(crate) row: u64,
    /// Place of the record in the pool.
    pub(crate) place: RecordPlace,
    pub(crate) op: RecordOp,
    /// The operation, if it changes a replicated table: no other may run before the record is read.
    pub(crate) blocking: Option<Waiter>,
}

/// Operation on a record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RecordOp {
    Call(PendingOp),
    Watch(Watcher),
    /// A lock of the row was granted: the answer has the row's version.
    Grant(LockToken),
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    pending: Option<Pending>,
}

/// All pending operations.
#[derive(Debug)]
pub(crate) struct PendingOperations {
    slots: Vec<Slot>,
    free: Vec<u32>,
    deadlines: BinaryHeap<Reverse<(u64, StepId)>>,
    /// The parked waits among them.
    parked: BTreeMap<(ChannelId, RequestId), StepId>,
}

impl PendingOperations {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::with_capacity(OPERATIONS_MAX),
            free: Vec::with_capacity(OPERATIONS_MAX),
            deadlines: BinaryHeap::with_capacity(2 * OPERATIONS_MAX),
            parked: BTreeMap::new(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds an operation; `None` if the table is full.
    pub(crate) fn insert(&mut self, pending: Pending) -> Result<StepId, Limit> {
        let is_parked = pending.channel.is_parked();
        if is_parked && self.parked.len() == PARKED_OPERATIONS_MAX {
            return Err(Limit::RemoteWaits);
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < OPERATIONS_MAX => {
                self.slots.push(Slot::default());
                (self.slots.len() - 1) as u32
            }
            None => return Err(Limit::Operations),
        };
        let slot = &mut self.slots[index as usize];
        assert!(slot.pending.is_none(), "a free slot holds no operation");
        slot.generation = slot.generation.wrapping_add(1);
        let step = StepId::new(index as usize, slot.generation);
        if self.deadlines.len() == self.deadlines.capacity() {
            self.forget_old_deadlines();
        }
        self.deadlines.push(Reverse((pending.deadline_us, step)));
        self.slots[index as usize].pending = Some(pending);
        if is_parked {
            self.parked.insert((pending.channel, pending.request), step);
        }
        assert!(self.count() <= OPERATIONS_MAX, "the table is bounded");
        Ok(step)
    }

    /// Removes the deadlines of ended operations, which would otherwise stay in the heap until they pass.
    fn forget_old_deadlines(&mut self) {
        let slots = &self.slots;
        self.deadlines.retain(|Reverse((_, step))| {
            let slot = &slots[step.index()];
            slot.pending.is_some() && slot.generation == step.generation()
        });
    }

    fn slot(&mut self, step: StepId) -> Option<&mut Slot> {
        self.slots.get_mut(step.index()).filter(|slot| slot.generation == step.generation())
    }

    pub(crate) fn get_mut(&mut self, step: StepId) -> Option<&mut Pending> {
        self.slot(step)?.pending.as_mut()
    }

    /// Removes an operation, which ends now. Always inlined: an operation that is returned is copied.
    #[inline(always)]
    pub(crate) fn remove(&mut self, step: StepId) -> Option<Pending> {
        let pending = self.slot(step)?.pending.take()?;
        if pending.channel.is_parked() {
            self.forget_parked(pending.channel, pending.request, step);
        }
        self.free.push(step.index() as u32);
        assert!(self.free.len() <= self.slots.len(), "each slot is free once");
        Some(pending)
    }

    #[cold]
    fn forget_parked(&mut self, channel: ChannelId, request: RequestId, step: StepId) {
        if self.parked.get(&(channel, request)) == Some(&step) {
            self.parked.remove(&(channel, request));
        }
    }

    /// Takes the next operation whose deadline has passed.
    pub(crate) fn expired(&mut self, now_us: u64) -> Option<StepId> {
        while let Some(&Reverse((deadline_us, step))) = self.deadlines.peek() {
            if deadline_us > now_us {
                return None;
            }
            self.deadlines.pop();
            if self.get_mut(step).is_some() {
                return Some(step);
            }
        }
        None
    }

    /// Returns the next deadline.
    pub(crate) fn next_deadline_us(&self) -> Option<u64> {
        self.deadlines.peek().map(|&Reverse((deadline_us, _))| deadline_us)
    }

    /// Returns the operation of a client's request.
    pub(crate) fn of_request(&self, channel: ChannelId, request: RequestId) -> Option<StepId> {
        if channel.is_parked() {
            return self.parked.get(&(channel, request)).copied();
        }
        let is_it = |pending: &Pending| pending.channel == channel && pending.request == request;
        let index = self.slots.iter().position(|slot| slot.pending.as_ref().is_some_and(is_it))?;
        Some(StepId::new(index, self.slots[index].generation))
    }

    /// Returns every operation for which `matches` holds.
    pub(crate) fn find(&self, matches: impl Fn(&Pending) -> bool) -> Vec<StepId> {
        let slots = self.slots.iter().enumerate();
        let found = slots.filter(|(_, slot)| slot.pending.as_ref().is_some_and(&matches));
        found.map(|(index, slot)| StepId::new(index, slot.generation)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::ClientId;

    fn pending(deadline_us: u64) -> Pending {
        Pending {
            channel: ChannelId { client: ClientId { index: 0, generation: 1 }, index: 0 },
            request: RequestId(1),
            principal: Principal { uid: 1, gid: 1 },
            deadline_us,
            timeout_us: 1,
            on: NodeId(2),
            wait: WaitState::Lookup,
        }
    }

    #[test]
    fn operation_stays_pending_after_its_deadline_until_it_is_removed() {
        // If this broke, the fabric would write into the arena of a call that has ended.
        let mut operations = PendingOperations::new();
        let late = operations.insert(pending(10)).unwrap();
        assert_eq!((operations.expired(9), operations.expired(10), operations.expired(10)), (None, Some(late), None));
        let next = operations.insert(pending(20)).unwrap();
        assert_eq!((operations.count(), operations.next_deadline_us()), (2, Some(20)));
        assert!(operations.remove(late).is_some() && operations.remove(late).is_none());
        assert!(operations.get_mut(late).is_none() && operations.get_mut(next).is_some());
    }
}
