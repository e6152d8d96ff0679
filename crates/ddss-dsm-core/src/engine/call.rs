//! Calls of the application and their results.

use crate::model::{Access, PageRange, Rank, RankSet};

/// Number that the driver chooses for a call. A number is free again after its completion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId(pub u64);

/// A call of the application. Each completes exactly once, with the value that is named here or 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Makes pages accessible. Another call of the same rank that acquires may invalidate them again.
    Touch {
        /// Pages.
        pages: PageRange,
        /// [`Access::Read`] or [`Access::Write`].
        access: Access,
    },
    /// Acquires a lock.
    Lock(u32),
    /// Releases a lock. It completes when its interval is closed, before its writes are placed.
    Unlock(u32),
    /// Waits at a barrier for all ranks. One call of each rank.
    Barrier(u32),
    /// Adds one to a semaphore: a release. It completes as that of a lock.
    Post(u32),
    /// Waits until a semaphore is positive and takes one off: an acquire.
    Wait(u32),
    /// Closes the interval, and completes when all writes of this rank are in the memory of their homes.
    Place,
    /// Ends the space: a call of this rank has passed its deadline, and could still take effect beside later ones. Rank 0 ends it for
    /// all, and names the ranks that are missing. A second call ends it without rank 0. It completes with the failure.
    GiveUp,
    /// Adds to a counter, release and acquire in one. Completes with the value before.
    Add {
        /// Counter.
        counter: u32,
        /// Addend; the counter wraps.
        delta: u64,
    },
}

/// Reason why a call failed. After the first lost rank every call fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A rank is lost: the first one that any rank noticed.
    #[error("{0} is lost, and the space with it: restart from a checkpoint")]
    Lost(Rank),
    /// A call of a rank has passed its deadline.
    #[error("{rank} gave up at its deadline, and the space has ended: {}", late(*missing))]
    GaveUp {
        /// The rank that waited.
        rank: Rank,
        /// Ranks that had not come to its barrier. Empty if the rank waited for something else.
        missing: RankSet,
    },
    /// A rank broke the protocol.
    #[error("{0} broke the protocol, so the space has ended: run the same release on all ranks")]
    Protocol(Rank),
    /// A table is full.
    #[error("no room for another of the {0}: see the limits of a space")]
    Full(&'static str),
    /// Pages or an index outside the space.
    #[error("{0} {1} is outside the space: see the limits of a space")]
    OutOfRange(&'static str, u64),
    /// The call does not fit an earlier one: a lock that is not held, a second barrier.
    #[error("cannot {0} {1}: it does not follow from the earlier calls of this rank")]
    Misuse(&'static str, u32),
}

fn late(missing: RankSet) -> String {
    match missing.len() {
        0 => "another rank is late, or does not make the call that it waits for".to_owned(),
        _ => format!("{missing} did not come to its barrier; find out why, or raise the timeout"),
    }
}
