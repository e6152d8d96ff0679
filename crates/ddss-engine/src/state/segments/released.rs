//! Memory of released and moved segments, until no peer may read it any more.

use ddss_core::{NodeId, SegmentId};

/// Released memory that peers may still read.
#[derive(Debug)]
pub(super) struct ReleasedSegment {
    pub(super) id: SegmentId,
    pub(super) index: u32,
    pub(super) at: u64,
    pub(super) bytes: u64,
    /// Only the old place of a moved segment.
    pub(super) moved: bool,
    /// Peers that have not yet dropped their window.
    pub(super) waiting_for: Vec<NodeId>,
    pub(super) deadline_us: u64,
}

/// All such memory.
#[derive(Debug, Default)]
pub(super) struct ReleasedSegments(Vec<ReleasedSegment>);

impl ReleasedSegments {
    /// Adds memory that its segment does not use any more.
    pub(super) fn add(&mut self, segment: ReleasedSegment) {
        self.0.push(segment);
    }

    /// Records that a peer dropped its window on one segment, or on all.
    pub(super) fn forget(&mut self, node: NodeId, which: Option<SegmentId>) {
        for segment in self.0.iter_mut().filter(|segment| which.is_none_or(|id| id == segment.id)) {
            segment.waiting_for.retain(|&waiting| waiting != node);
        }
    }

    /// Returns the peers that did not drop their window in time.
    pub(super) fn overdue(&self, now_us: u64) -> impl Iterator<Item = NodeId> + '_ {
        let late = self.0.iter().filter(move |segment| segment.deadline_us <= now_us);
        late.flat_map(|segment| segment.waiting_for.iter().copied())
    }

    /// Takes one whose memory no peer reads, or any one (`early`: a planted bug).
    pub(super) fn take(&mut self, early: bool) -> Option<ReleasedSegment> {
        let index = self.0.iter().position(|segment| early || segment.waiting_for.is_empty())?;
        Some(self.0.swap_remove(index))
    }
}
