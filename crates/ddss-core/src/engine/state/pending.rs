//! What is under way: one entry for each operation that waits for another node, with its deadline.

use super::buffer_pool::BufferId;
use super::staging::Ticket;
use crate::engine::action::RangeSet;
use crate::limits::{NODES_MAX, OPERATIONS_MAX};
use crate::model::segment::{Name, Principal};
use crate::model::spec::Spec;
use crate::request::operation::{ArenaRange, LockToken, ReadOptions};
use crate::{ChannelId, NodeId, RequestId, SegmentId, Version};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The engine's number for one wait; stale ones name nothing.
///
/// Its low 16 bits are an index that no two waits have at the same time, the 32 bits above them say which life of
/// that index. The high 16 bits are zero, for whoever wants to mark it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StepId(u64);

const _: () = assert!(OPERATIONS_MAX <= 1 << StepId::INDEX_BITS);

impl StepId {
    const INDEX_BITS: u32 = 16;
    /// Bits of a number that can be other than zero.
    pub const BITS: u32 = Self::INDEX_BITS + 32;

    const fn new(index: usize, generation: u32) -> Self {
        Self((generation as u64) << Self::INDEX_BITS | index as u64)
    }

    /// The number as it travels through a fabric or in a message.
    pub const fn to_bits(self) -> u64 {
        self.0
    }
    /// Takes it back; any value is a number, most name nothing.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
    /// The index, below [`OPERATIONS_MAX`].
    pub const fn index(self) -> usize {
        (self.0 & ((1 << Self::INDEX_BITS) - 1)) as usize
    }
    const fn generation(self) -> u32 {
        (self.0 >> Self::INDEX_BITS) as u32
    }
}

/// A get of a remote segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transfer {
    pub(crate) segment: SegmentId,
    pub(crate) parts: RangeSet,
    /// Where the bytes go in the arena.
    pub(crate) range: ArenaRange,
    /// Whether the completion may carry them instead.
    pub(crate) inline: bool,
    pub(crate) look: ReadOptions,
}

/// The reads of a get that are under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PendingReads {
    pub(crate) transfer: Transfer,
    /// How often a put came between.
    pub(crate) tears: u8,
    /// The version whose kept copy is read; `None`: the segment itself.
    pub(crate) kept: Option<Version>,
    /// The whole segment is read into the copy that this node keeps of it.
    pub(crate) refresh: bool,
}

/// What an operation waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitState {
    /// Answers of peers about a name: [`NameLookup`] has the rest.
    Lookup,
    /// A home that makes a segment.
    Allocate { home: NodeId },
    /// A home that takes a segment away.
    Release { home: NodeId },
    /// The facts of a segment, to get this then.
    Facts { transfer: Transfer },
    /// The bytes of a get that this node reads by itself.
    Fetch(PendingReads),
    /// The bytes of a get that the home carries out.
    Home(Transfer),
    /// A page of a list, or of one segment's facts.
    Page { node: NodeId, into: ArenaRange, list: bool },
    /// An atomic, new permissions, or (harmless: asked for in vain, nothing happened) a version.
    Answer { segment: SegmentId, harmless: bool },
    /// A lock.
    Lock { segment: SegmentId, lease_us: u32 },
    /// A lock that nobody waits for any more: given back when it is granted.
    LateLock { segment: SegmentId },
    /// The end of a lock.
    Unlock { segment: SegmentId, token: LockToken },
    /// The answer to a put; what is staged for it.
    Put { segment: SegmentId, ticket: Option<Ticket> },
}

impl WaitState {
    /// The table of ranges that is kept until the end.
    pub(crate) fn table(&self) -> Option<BufferId> {
        let (WaitState::Facts { transfer }
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

    /// Which segment it is about.
    pub(crate) fn segment(&self) -> Option<SegmentId> {
        match *self {
            WaitState::Facts { transfer }
            | WaitState::Fetch(PendingReads { transfer, .. })
            | WaitState::Home(transfer) => Some(transfer.segment),
            WaitState::Put { segment, .. }
            | WaitState::Answer { segment, .. }
            | WaitState::Lock { segment, .. }
            | WaitState::LateLock { segment }
            | WaitState::Unlock { segment, .. } => Some(segment),
            WaitState::Lookup | WaitState::Allocate { .. } | WaitState::Release { .. } | WaitState::Page { .. } => None,
        }
    }

    /// The segment that may have changed with it.
    pub(crate) fn changes(&self) -> Option<SegmentId> {
        match *self {
            WaitState::Put { segment, .. } | WaitState::Answer { segment, harmless: false } => Some(segment),
            _ => None,
        }
    }
}

/// A name that peers are asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NameLookup {
    pub(crate) name: Name,
    pub(crate) then: Continuation,
    /// Whose answers are still to come.
    pub(crate) asked: AskedPeers,
    /// Peers that could not be asked.
    pub(crate) silent: u16,
    /// The whole cluster was asked where it is.
    pub(crate) confirmed: bool,
}

/// The peers that a lookup waits for.
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

/// What a lookup is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Continuation {
    /// To open what is found.
    Open,
    /// To allocate if nothing is found.
    Allocate(Spec),
}

/// One operation under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pending {
    pub(crate) lane: ChannelId,
    pub(crate) request: RequestId,
    pub(crate) who: Principal,
    pub(crate) deadline_us: u64,
    pub(crate) timeout_us: u32,
    /// The home that was asked.
    pub(crate) on: NodeId,
    pub(crate) wait: WaitState,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    pending: Option<Pending>,
}

/// All operations under way.
#[derive(Debug)]
pub(crate) struct PendingOperations {
    slots: Vec<Slot>,
    free: Vec<u32>,
    deadlines: BinaryHeap<Reverse<(u64, StepId)>>,
}

impl PendingOperations {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::with_capacity(OPERATIONS_MAX),
            free: Vec::with_capacity(OPERATIONS_MAX),
            deadlines: BinaryHeap::with_capacity(2 * OPERATIONS_MAX),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Notes an operation; `None` when there are too many.
    pub(crate) fn insert(&mut self, pending: Pending) -> Option<StepId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < OPERATIONS_MAX => {
                self.slots.push(Slot::default());
                (self.slots.len() - 1) as u32
            }
            None => return None,
        };
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let step = StepId::new(index as usize, slot.generation);
        if self.deadlines.len() == self.deadlines.capacity() {
            self.forget_old_deadlines();
        }
        self.deadlines.push(Reverse((pending.deadline_us, step)));
        self.slots[index as usize].pending = Some(pending);
        Some(step)
    }

    /// Deadlines of operations that ended stay in the heap until they pass; here they leave early.
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

    /// Takes the operation out: it ends now.
    pub(crate) fn remove(&mut self, step: StepId) -> Option<Pending> {
        let pending = self.slot(step)?.pending.take()?;
        self.free.push(step.index() as u32);
        Some(pending)
    }

    /// The next operation whose deadline has passed.
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

    /// When the next deadline passes.
    pub(crate) fn next_deadline_us(&self) -> Option<u64> {
        self.deadlines.peek().map(|&Reverse((deadline_us, _))| deadline_us)
    }

    /// The first operation for which `matches` holds.
    pub(crate) fn first(&self, matches: impl Fn(&Pending) -> bool) -> Option<StepId> {
        let index = self.slots.iter().position(|slot| slot.pending.as_ref().is_some_and(&matches))?;
        Some(StepId::new(index, self.slots[index].generation))
    }

    /// Every operation for which `matches` holds.
    pub(crate) fn find(&self, matches: impl Fn(&Pending) -> bool) -> Vec<StepId> {
        let slots = self.slots.iter().enumerate();
        let found = slots.filter(|(_, slot)| slot.pending.as_ref().is_some_and(&matches));
        found.map(|(index, slot)| StepId::new(index, slot.generation)).collect()
    }
}
