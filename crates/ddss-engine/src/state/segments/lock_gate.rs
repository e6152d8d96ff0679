//! The right of this node to act as the home of a segment, which decides what its lock queue lets pass.

use crate::config::Now;
use crate::fault_injection::planted;
use crate::state::replication::{Replicas, ReplicatedSegment};
use crate::state::segments::Segments;
use ddss_core::{Failure, SegmentId};

impl Segments {
    /// Returns the replication state of a segment that has or is a replica.
    pub(crate) fn replication_of(&mut self, id: SegmentId) -> Option<&mut ReplicatedSegment> {
        self.get_mut(id).ok()?.replication.as_deref_mut()
    }

    /// Updates which operations on a segment have to wait.
    pub(crate) fn update_lock_gate(&mut self, now: Now, replicas: &Replicas, id: SegmentId) {
        let lease_until_us = if planted!(self, UnfencedHome) { u64::MAX } else { replicas.lease_until_us() };
        if let Ok(segment) = self.get_mut(id)
            && let Some(replication) = &segment.replication
        {
            let is_suspended = !replication.serves(now.steady_us, lease_until_us);
            segment.lock_queue.set_gate(is_suspended, replication.blocks_puts());
        }
    }

    /// Checks that this node may act as the home of the segment now.
    pub(crate) fn check_home(&mut self, now: Now, replicas: &Replicas, id: SegmentId) -> Result<(), Failure> {
        self.update_lock_gate(now, replicas, id);
        let segment = self.get(id)?;
        if segment.is_replica() || segment.lock_queue.is_suspended() { Err(Failure::NodeDown) } else { Ok(()) }
    }

    /// Turns a denial into [`Failure::NodeDown`] while this node may have lost the home role, since its permissions may
    /// be stale.
    #[cold]
    pub(crate) fn mask_denial_in_doubt(&self, id: SegmentId, failure: Failure) -> Failure {
        let in_doubt =
            self.get(id).is_ok_and(|segment| segment.replication.is_some() && segment.lock_queue.is_suspended());
        if in_doubt && failure == Failure::PermissionDenied { Failure::NodeDown } else { failure }
    }

    /// Returns true while the daemon writes a large value into a segment. Until its end the bytes belong to no version,
    /// so that no replica may count as complete.
    pub(crate) fn is_being_written(&self, id: SegmentId) -> bool {
        self.get(id).is_ok_and(|segment| segment.has_large_commit()) && !planted!(self, JoinDuringCommit)
    }
}
