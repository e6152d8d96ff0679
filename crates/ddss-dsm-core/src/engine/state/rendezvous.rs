//! Barriers, semaphores and counters, as their users and as their manager see them.

use crate::engine::call::CallId;
use crate::model::{Rank, RankSet, VectorTime};
use std::collections::{BTreeMap, VecDeque};

/// A barrier at rank 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct Barrier {
    pub(crate) arrived: RankSet,
    pub(crate) time: VectorTime,
}

/// A semaphore at its manager.
#[derive(Clone, Debug, Default)]
pub(crate) struct Semaphore {
    pub(crate) value: u32,
    pub(crate) waiters: VecDeque<Rank>,
    /// Intervals of all ranks that posted.
    pub(crate) time: VectorTime,
}

/// A counter at its manager.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter {
    pub(crate) value: u64,
    /// Intervals of all ranks that added.
    pub(crate) time: VectorTime,
}

/// Barriers, semaphores and counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rendezvous {
    /// At rank 0.
    pub(crate) barriers: BTreeMap<u32, Barrier>,
    /// At the manager.
    pub(crate) semaphores: BTreeMap<u32, Semaphore>,
    /// At the manager.
    pub(crate) counters: BTreeMap<u32, Counter>,
    /// The call of this rank that is at a barrier.
    pub(crate) at_barrier: BTreeMap<u32, CallId>,
    /// Calls of this rank that wait for a semaphore, the oldest first.
    pub(crate) waits: BTreeMap<u32, VecDeque<CallId>>,
    /// Calls of this rank that add to a counter, the oldest first.
    pub(crate) additions: BTreeMap<u32, VecDeque<CallId>>,
}

impl Rendezvous {
    /// Takes the oldest call that waits at an index.
    pub(crate) fn take_oldest(calls: &mut BTreeMap<u32, VecDeque<CallId>>, index: u32) -> Option<CallId> {
        let waiting = calls.get_mut(&index)?;
        let oldest = waiting.pop_front();
        if waiting.is_empty() {
            calls.remove(&index);
        }
        oldest
    }
}
