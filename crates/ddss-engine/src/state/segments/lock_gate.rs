//! The gate of a lock queue: the right of this node to act as the home decides which operations may pass, and the coherence
//! model decides which depend on locks.

use crate::config::Now;
use crate::fault_injection::planted;
use crate::state::lock_queue::PendingOp;
use crate::state::replication::{Replicas, ReplicatedSegment};
use crate::state::segments::{Segment, Segments};
use ddss_core::{Failure, LockRequest, SegmentId};

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

impl Segment {
    /// Returns true if the coherence model makes an operation without a lock depend on the locks of others.
    pub(crate) fn depends_on_lock(&self, op: &PendingOp) -> bool {
        match op {
            PendingOp::Get(_) | PendingOp::Lock(_) => true,
            PendingOp::Put { conditions, .. } => {
                conditions.token.is_none() && self.spec.model.put_waits_for_lock(conditions.requested_model)
            }
            PendingOp::Atomic { token, .. } => token.is_none(),
        }
    }

    /// Returns the row that a request wants to lock; `None` for the whole segment.
    pub(crate) fn row_to_lock(&self, lock_request: &LockRequest) -> Result<Option<u64>, Failure> {
        let Some(offset) = lock_request.row_offset else { return Ok(None) };
        let layout = self.spec.layout().ok_or(Failure::Unsupported)?;
        let is_row = |&row: &u64| row < layout.rows(self.spec.bytes) && layout.bounds(row).0 == offset;
        layout.row_of(offset, 0).filter(is_row).map(Some).ok_or(Failure::OutOfRange)
    }
}
