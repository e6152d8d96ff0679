//! The newest changes of a table's rows, for watchers of all rows.

use crate::fault_injection::planted;
use crate::state::segments::Segments;
use ddss_core::limits::ROW_CHANGES_MAX;
use ddss_core::{Failure, SegmentId, Version};
use std::collections::VecDeque;

/// Rows that changed, the newest at the back. Each change has a number; the first one is greater than all numbers of earlier
/// daemons.
#[derive(Debug)]
pub(crate) struct RowChanges {
    newest: Version,
    rows: VecDeque<u64>,
    /// Changes since a watcher last asked.
    unread: usize,
}

impl RowChanges {
    /// Begins without changes, behind that number.
    pub(super) fn new(newest: Version) -> Self {
        Self { newest, rows: VecDeque::new(), unread: 0 }
    }

    /// Records a change and returns its number; `None` if no watcher has asked for so long that it would have missed some.
    pub(super) fn note(&mut self, row: u64) -> Option<Version> {
        if self.unread == ROW_CHANGES_MAX {
            return None;
        }
        if self.rows.len() == ROW_CHANGES_MAX {
            self.rows.pop_front();
        }
        self.rows.push_back(row);
        self.unread += 1;
        self.newest.0 += 1;
        Some(self.newest)
    }

    /// Begins again behind `first`, if a watcher has seen a number between that of the newest change and `first`: another
    /// home gave it, and no later one here would be greater.
    fn catch_up(&mut self, seen: Version, first: Version) {
        if self.newest < seen && seen < first {
            *self = Self::new(first);
        }
    }

    /// Returns the change that follows that number, with its own number; no row if some changes are not recorded any more.
    /// `None` if there is none yet.
    fn after(&mut self, number: Version) -> Option<(Version, Option<u64>)> {
        self.unread = 0;
        let behind = self.newest.0.checked_sub(number.0).filter(|&behind| behind > 0)?;
        let first = usize::try_from(behind).ok().and_then(|behind| self.rows.len().checked_sub(behind));
        Some(match first {
            Some(first) => (Version(number.0 + 1), Some(self.rows[first])),
            None => (self.newest, None),
        })
    }
}

impl Segments {
    /// Returns the change of a table's rows that follows that number. Changes are recorded from the first call on, behind the
    /// number `first`.
    pub(crate) fn row_change_after(
        &mut self,
        id: SegmentId,
        number: Version,
        first: Version,
    ) -> Result<Option<(Version, Option<u64>)>, Failure> {
        let counts_on = planted!(self, RowChangesOfEarlierTerm);
        let changes = self.get_mut(id)?.row_changes(first);
        if !counts_on {
            changes.catch_up(number, first);
        }
        Ok(changes.after(number))
    }

    /// Records a change of a row; returns its number if watchers of all rows want to know.
    pub(crate) fn note_row_change(&mut self, id: SegmentId, row: u64) -> Option<Version> {
        let is_untold = planted!(self, UntoldRowChange);
        self.get_mut(id).ok().filter(|segment| !is_untold || segment.replication.is_none())?.note_row_change(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watcher_gets_each_change_in_order_or_learns_that_it_missed_some() {
        // If this broke, a watcher would keep an old value for ever.
        let mut changes = RowChanges::new(Version(100));
        assert_eq!(changes.after(Version(0)), Some((Version(100), None)), "the first call begins");
        assert_eq!(changes.after(Version(100)), None);
        for row in [7, 8, 7] {
            changes.note(row).expect("a watcher has asked");
        }
        assert_eq!(changes.after(Version(100)), Some((Version(101), Some(7))));
        assert_eq!(changes.after(Version(101)), Some((Version(102), Some(8))));
        assert_eq!(changes.after(Version(102)), Some((Version(103), Some(7))));
        assert_eq!((changes.after(Version(103)), changes.after(Version(500))), (None, None));
        for row in 0..ROW_CHANGES_MAX as u64 {
            assert_eq!(changes.note(row), Some(Version(104 + row)));
        }
        assert_eq!(changes.after(Version(102)), Some((changes.newest, None)), "it was away for too long");
        assert_eq!(changes.after(Version(103)), Some((Version(104), Some(0))));
        for row in 0..ROW_CHANGES_MAX as u64 {
            changes.note(row).expect("a watcher has asked");
        }
        assert_eq!(changes.note(1), None, "nobody wants to know");
    }
}
