//! Locks of rows of a table whose home is this node: the row of an operation, and the answer to a grant.
//!
//! The queue of a row is part of the table's [`LockQueue`](crate::state::lock_queue::LockQueue).

use crate::action::{Action, RangeSet};
use crate::config::Now;
use crate::home::handler::Home;
use crate::requester::Requester;
use crate::state::lock_queue::PendingOp;
use crate::state::pending::{PendingRecord, RecordOp};
use crate::state::segments::Segment;
use ddss_core::{Failure, LockRequest, LockToken, SegmentId};

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

impl Home<'_> {
    /// Returns the row of an operation; `None` if it concerns the whole segment.
    pub(crate) fn row_of_op(&self, segment: &Segment, op: &PendingOp) -> Result<Option<u64>, Failure> {
        let Some(layout) = segment.spec.layout() else { return Ok(None) };
        let parts = match *op {
            PendingOp::Get(get) => get.parts,
            PendingOp::Put { parts, .. } => parts,
            PendingOp::Atomic { offset, .. } => RangeSet::One { offset, bytes: 8 },
            PendingOp::Lock(ref lock_request) => return segment.row_to_lock(lock_request),
        };
        self.output.row_of(layout, segment.spec.bytes, &parts).map(Some)
    }

    /// Answers the grant of a row's lock, with the version that the row has now: only its record has it.
    pub(crate) fn answer_row_grant(
        &mut self,
        now: Now,
        id: SegmentId,
        requester: Requester,
        (row, token): (u64, LockToken),
    ) -> Result<(), Failure> {
        let segment = self.segments.get(id)?;
        let place = segment.spec.layout().ok_or(Failure::Unsupported)?.record(row).of_segment(segment.at);
        let op = RecordOp::Grant(token);
        self.pending_records.push_back(PendingRecord { now, segment: id, requester, row, place, op, blocking: None });
        self.output.push(Action::ReadRecord { place, word: None });
        Ok(())
    }
}
