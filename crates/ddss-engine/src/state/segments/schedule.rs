//! Segments that need attention, and when.

use ddss_core::SegmentId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Segments with a lock holder, a waiter or a watcher, and when each needs attention.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    pub(super) listed: Vec<SegmentId>,
    /// An entry that differs from its segment's own record is outdated.
    pub(super) due: BinaryHeap<Reverse<(u64, SegmentId)>>,
    /// Segments that a tick visits now.
    pub(super) visited: Vec<SegmentId>,
    /// Entries of `due` since the last clean-up.
    pub(super) added: usize,
}
