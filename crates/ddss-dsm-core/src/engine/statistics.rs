//! Counters of a rank.

/// Counts of one rank since its engine was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Pages fetched from another rank.
    pub fetches: u64,
    /// Page reads that were repeated because the version line was old or a notice arrived during the read.
    pub retries: u64,
    /// Pages copied from this rank's own home frames.
    pub own_pages: u64,
    /// Home words swapped at a peer.
    pub swaps: u64,
    /// Requests that this rank forwarded to the home or to the holder.
    pub forwards: u64,
    /// Pages with changed bytes, at the ends of intervals.
    pub diffs: u64,
    /// Runs of changed bytes.
    pub runs: u64,
    /// Changed bytes.
    pub diff_bytes: u64,
    /// Page diffs that were sent as messages.
    pub packed: u64,
    /// Intervals with changes.
    pub intervals: u64,
    /// Intervals whose record does not name the pages.
    pub coarse: u64,
    /// Notices of other ranks.
    pub notices: u64,
    /// Notices that were overwritten before this rank read them.
    pub overwritten: u64,
    /// Pages invalidated by notices.
    pub invalidations: u64,
    /// Messages that the handler of this rank processed.
    pub handled: u64,
    /// Bytes that the handler of this rank copied.
    pub handler_bytes: u64,
    /// Reads behind writes.
    pub fences: u64,
    /// Pages closed again because no write came between two releases.
    pub idle_twins: u64,
    /// Locks that this rank acquired, also those of regions.
    pub locks: u64,
    /// Barriers that this rank passed, also those of regions and checkpoints.
    pub barriers: u64,
    /// Pages that the application may read now.
    pub pages: u64,
    /// Time of the handler in nanoseconds. The driver measures it; the engine has no clock.
    pub handler_ns: u64,
}
