//! Bugs that tests switch on and have to find. Without the feature `planted` there are none, and `planted!` is a
//! constant `false`.

/// One bug.
#[cfg(feature = "planted")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// An acquire invalidates pages before it closes the open interval.
    InvalidatedBeforeClose,
    /// The last diff of a page is taken before the page is unmapped.
    DiffBeforeUnmap,
    /// Runs are joined over unchanged bytes.
    JoinedRuns,
    /// The twin stays as it was after a flush.
    StaleTwin,
    /// A page is written one-sided while its packed diff is not acknowledged.
    DirectBehindPacked,
    /// A page is written one-sided while an earlier write of it may not be placed.
    OverlappingWrites,
    /// The page is read before its version line.
    PageBeforeLine,
    /// A stamp is sent before the runs.
    StampBeforeDiff,
    /// The version line is not compared.
    UncheckedLine,
    /// A coarse record is published before its writes are placed.
    CoarseUnplaced,
    /// A record is overwritten before its writes are placed.
    OverwrittenUnplaced,
    /// A rank takes a page of its own default home without a look at the home word.
    ClaimWithoutWord,
    /// A home opens its own page before the stamps that it needs are there.
    OwnPageTooEarly,
    /// The first page of a notice is forgotten.
    LostNotice,
    /// Only notices of the granter are applied.
    OnlyGranterNotices,
    /// A lock is granted while it is in use.
    LockGrantedTwice,
    /// A barrier lets the ranks through before the last one has arrived.
    BarrierTooEarly,
    /// A release does not wait until its writes are placed.
    UnplacedRelease,
    /// A notice that arrives while a page is read is ignored for that page.
    NoticeDuringFetch,
    /// A fetch does not wait for the acknowledgement of the rank's own packed diff.
    FetchBehindPacked,
    /// An addition to a counter does not acquire.
    CounterWithoutAcquire,
    /// A semaphore forgets a wait if another one waits already.
    SecondWaiterLost,
    /// The death of a rank is not reported to waiting locks.
    WaitOutlivesRank,
}

/// Returns true if the engine has a bug.
macro_rules! planted {
    ($state:expr, $bug:ident) => {{
        #[cfg(feature = "planted")]
        let has = $state.bug == Some(crate::engine::Bug::$bug);
        #[cfg(not(feature = "planted"))]
        let has = false;
        has
    }};
}

pub(crate) use planted;
