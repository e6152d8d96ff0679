//! Calls that wait for a newer version of a segment, of a row, or of any row of a table.

use crate::action::{Action, RangeSet};
use crate::config::Now;
use crate::operations::handler::Operations;
use crate::requester::ReplyFields;
use crate::state::lock_queue::Watcher;
use crate::state::pending::{PendingRecord, RecordOp};
use ddss_core::{ANY_ROW, Access, Failure, Principal, SegmentId, TableLayout, Version};

impl Operations<'_> {
    /// Watches for a version above `watcher.above`, or answers at once. In a table the version is that of the row at
    /// `offset`, or the number of the newest change of its rows.
    pub(crate) fn await_at_home(
        &mut self,
        now: Now,
        id: SegmentId,
        principal: Principal,
        offset: u64,
        watcher: Watcher,
    ) -> Result<(), Failure> {
        if self.segments.is_names(id) {
            return self.watches().await_names(watcher);
        }
        self.segments.check_home(now, self.replicas, id)?;
        let segment = self.segments.get_mut(id)?;
        segment.permissions.allow(principal, Access::Read)?;
        if let Some(layout) = segment.spec.layout() {
            if offset == ANY_ROW {
                // The clock never gives a number twice, not even after a restart.
                let first = Version(self.clock.next(now.wall_us).0);
                return self.watches().await_any_row(id, watcher, first);
            }
            return self.begin_record_watch(now, id, (layout, offset), watcher);
        }
        let fields = ReplyFields::of(segment.stamp(), 0);
        self.watches().watch(id, watcher, Some(fields).filter(|reached| reached.version > watcher.above))
    }

    /// Reads the record that a watcher asks for, since only the record has the row's version.
    pub(crate) fn begin_record_watch(
        &mut self,
        now: Now,
        id: SegmentId,
        (layout, offset): (TableLayout, u64),
        watcher: Watcher,
    ) -> Result<(), Failure> {
        let segment = self.segments.get(id)?;
        let row = self.output.row_of(layout, segment.spec.bytes, &RangeSet::One { offset, bytes: 0 })?;
        let place = layout.record(row).of_segment(segment.at);
        let (requester, op) = (watcher.requester, RecordOp::Watch(Watcher { row, ..watcher }));
        let pending = PendingRecord { now, segment: id, requester, row, place, op, blocking: None };
        self.output.read_record(Action::ReadRecord { place, word: None }, pending);
        Ok(())
    }
}
