//! The messages.

use crate::diff::PackedRuns;
use crate::model::{Notice, PageId, PageRange, Rank, RankSet, VectorTime};

/// A message from one rank to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// To the manager of a lock: the sender asks for its token.
    LockRequest {
        /// Lock.
        lock: u32,
        /// Intervals that the sender knows.
        time: VectorTime,
    },
    /// From the manager to the rank that asked last: hand the token on.
    LockForward {
        /// Lock.
        lock: u32,
        /// Rank that gets the token.
        requester: Rank,
        /// Intervals that the requester knows.
        time: VectorTime,
    },
    /// The token of a lock.
    LockGrant {
        /// Lock.
        lock: u32,
        /// Intervals that the new holder has to know.
        time: VectorTime,
        /// Notices of the sender, or none if they are too long: the new holder then reads the sender's log.
        notices: Option<Vec<Notice>>,
    },
    /// To rank 0: the sender is at a barrier.
    BarrierArrive {
        /// Barrier.
        barrier: u32,
        /// Intervals that the sender knows.
        time: VectorTime,
    },
    /// From rank 0: all ranks are at the barrier.
    BarrierDepart {
        /// Barrier.
        barrier: u32,
        /// Intervals of all ranks.
        time: VectorTime,
    },
    /// To the manager of a semaphore: one more.
    SemaphorePost {
        /// Semaphore.
        semaphore: u32,
        /// Intervals that the sender knows.
        time: VectorTime,
    },
    /// To the manager of a semaphore: the sender waits.
    SemaphoreWait {
        /// Semaphore.
        semaphore: u32,
    },
    /// From the manager: the oldest wait of the receiver is over.
    SemaphoreGrant {
        /// Semaphore.
        semaphore: u32,
        /// Intervals of all ranks that posted.
        time: VectorTime,
    },
    /// To the manager of a counter: add, and report the old value.
    CounterAdd {
        /// Counter.
        counter: u32,
        /// Addend; the counter wraps.
        delta: u64,
        /// Intervals that the sender knows.
        time: VectorTime,
    },
    /// From the manager: the answer to the oldest addition of the receiver.
    CounterValue {
        /// Counter.
        counter: u32,
        /// Value before the addition.
        value: u64,
        /// Intervals of all ranks that added before.
        time: VectorTime,
    },
    /// To a home: the runs of an interval are written for all these pages.
    Stamp {
        /// Interval of the sender.
        interval: u32,
        /// Pages.
        pages: Vec<PageRange>,
    },
    /// To a home: runs of a page.
    Diff {
        /// Page.
        page: PageId,
        /// Interval of the sender if these are the last runs of the page, otherwise 0.
        interval: u32,
        /// Number that the acknowledgement repeats.
        sequence: u64,
        /// Runs.
        runs: PackedRuns<'a>,
    },
    /// From a home: the runs of a diff are in the page.
    DiffAck {
        /// Number of the diff.
        sequence: u64,
    },
    /// To the home or the default home: send a page.
    PageRequest {
        /// Page.
        page: PageId,
        /// Landing slot of the sender.
        slot: u16,
        /// Stamps that the page must have.
        needed: VectorTime,
    },
    /// From the default home to the home: send a page to another rank.
    PageForward {
        /// Page.
        page: PageId,
        /// Rank that gets the page.
        requester: Rank,
        /// Landing slot of the requester.
        slot: u16,
        /// Stamps that the page must have.
        needed: VectorTime,
    },
    /// From the home: the page is in the landing slot of the receiver.
    PageWritten {
        /// Page.
        page: PageId,
        /// Landing slot.
        slot: u16,
    },
    /// From the default home: the receiver is the home of the page.
    Appointed {
        /// Page.
        page: PageId,
        /// Landing slot of the request.
        slot: u16,
    },
    /// To the home: report when the page has these stamps.
    Await {
        /// Page.
        page: PageId,
        /// Landing slot of the sender.
        slot: u16,
        /// Stamps that the page must have.
        needed: VectorTime,
    },
    /// From the home: the page has the stamps.
    Reached {
        /// Page.
        page: PageId,
        /// Landing slot of the request.
        slot: u16,
    },
    /// To rank 0: end the space. From any rank: it has ended.
    GaveUp {
        /// The rank whose call has passed its deadline.
        rank: Rank,
        /// Ranks that had not come to its barrier, as far as the sender knows.
        missing: RankSet,
    },
    /// A rank is lost, and the space with it.
    Lost {
        /// The rank that was lost first.
        rank: Rank,
    },
}
