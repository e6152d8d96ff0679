//! Operations on the records of a table whose home is this node.
//!
//! The versions of records are in the table's memory only, so each operation reads one first
//! ([`Action::ReadRecord`]). The decision follows at once (`completions.rs`): its actions come before all other actions that are
//! due, so no other operation runs between the read and the commit.

use crate::action::{Action, RangeSet};
use crate::config::Now;
use crate::operations::handler::Operations;
use crate::state::lock_queue::{PendingOp, Waiter};
use crate::state::pending::{PendingRecord, RecordOp};
use ddss_core::{Failure, PutConditions, SegmentId, TableLayout};

impl Operations<'_> {
    /// Reads the record of an operation that passed all other checks.
    pub(crate) fn begin_record_op(
        &mut self,
        now: Now,
        id: SegmentId,
        waiter: &Waiter,
        layout: TableLayout,
    ) -> Result<(), Failure> {
        let &Waiter { requester, op, .. } = waiter;
        let (parts, token, word) = match op {
            PendingOp::Get(get) => (get.parts, None, None),
            PendingOp::Put { parts, conditions, .. } => (parts, conditions.token, None),
            PendingOp::Atomic { offset, token, .. } => (RangeSet::One { offset, bytes: 8 }, token, Some(offset)),
            PendingOp::Lock(_) => return Err(Failure::Unsupported),
        };
        let row = self.output.row_of(layout, self.segments.get(id)?.spec.bytes, &parts)?;
        let conditions = PutConditions { token, ..PutConditions::default() };
        self.check_conditions(now, id, requester, conditions, Some(row))?;
        let segment = self.segments.get(id)?;
        let place = layout.record(row).of_segment(segment.at);
        let read = match op {
            PendingOp::Put { source, conditions: PutConditions { entry: Some(change), .. }, .. } => {
                let description = layout.record(0).of_segment(segment.at).data;
                Action::FindEntry { place, offset: layout.bounds(row).0, description, change, source }
            }
            _ => Action::ReadRecord { place, word },
        };
        let (op, changes) = (RecordOp::Call(op), !matches!(op, PendingOp::Get(_)));
        // A change of a replicated table may have to wait for the replica: no other begins before that is decided.
        let blocking = (changes && segment.replication.is_some()).then_some(*waiter);
        if blocking.is_some() {
            self.segments.get_mut(id)?.lock_queue.begin_word_read();
        }
        self.output.read_record(read, PendingRecord { now, segment: id, requester, row, place, op, blocking });
        Ok(())
    }
}
