//! Releases and acquires of this rank, one after another.

use super::placements::PlacementId;
use crate::engine::call::CallId;
use crate::model::{Notice, Rank, RankSet, VectorTime};
use std::collections::VecDeque;

/// Effect of a release, after its interval is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Release {
    /// A lock is free.
    Unlock(u32),
    /// The token of a lock goes to a rank that knows these intervals.
    Grant(u32, Rank, VectorTime),
    /// This rank is at a barrier.
    Arrive(u32),
    /// A semaphore has one more.
    Post(u32),
    /// A counter grows.
    Add(u32, u64),
    /// A call completes once all writes are placed.
    Place(CallId),
}

/// Effect of an acquire, after its notices are applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Acquired {
    /// This rank has the token of a lock.
    Lock(u32),
    /// A call completes with a value.
    Call(CallId, u64),
    /// The call of a barrier completes.
    Barrier(CallId),
}

/// An acquire: intervals that this rank must know before it continues.
#[derive(Clone, Debug)]
pub(crate) struct Acquire {
    pub(crate) time: VectorTime,
    /// Rank that sent its notices along, and the notices.
    pub(crate) granter: Option<(Rank, Vec<Notice>)>,
    pub(crate) effect: Acquired,
    /// Log reads in flight; `None` before they are posted.
    pub(crate) reads: Option<u32>,
    /// Ranks whose log is read, and the last flush before.
    pub(crate) asked: (RankSet, u64),
}

/// A step of the queue.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Closes the interval, and completes a call that waits for no more than that. A call that completed before could open
    /// a page of which this step then takes the twin.
    Release(Release, Option<CallId>),
    /// Closes the interval and applies notices.
    Acquire(Box<Acquire>),
}

/// A release whose interval is closed, and whose writes may not be placed yet.
#[derive(Clone, Debug)]
pub(crate) struct PendingRelease {
    pub(crate) placement: Option<PlacementId>,
    /// Intervals that the receiver of the release has to know.
    pub(crate) time: VectorTime,
    pub(crate) release: Release,
}

/// Steps in order, and releases that wait for their placement.
#[derive(Clone, Debug, Default)]
pub(crate) struct SyncQueue {
    pub(crate) steps: VecDeque<Step>,
    pub(crate) releases: VecDeque<PendingRelease>,
}

impl SyncQueue {
    /// Adds an acquire.
    pub(crate) fn push_acquire(&mut self, time: VectorTime, granter: Option<(Rank, Vec<Notice>)>, effect: Acquired) {
        let acquire = Acquire { time, granter, effect, reads: None, asked: (RankSet::default(), 0) };
        self.steps.push_back(Step::Acquire(Box::new(acquire)));
    }
}
