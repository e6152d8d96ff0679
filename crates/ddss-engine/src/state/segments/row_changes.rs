//! The newest changes of a table's rows, for watchers of all rows.

use ddss_core::Version;
use ddss_core::limits::ROW_CHANGES_MAX;
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
    pub(super) fn catch_up(&mut self, seen: Version, first: Version) {
        if self.newest < seen && seen < first {
            *self = Self::new(first);
        }
    }

    /// Returns the change that follows that number, with its own number; no row if some changes are not recorded any more.
    /// `None` if there is none yet.
    pub(super) fn after(&mut self, number: Version) -> Option<(Version, Option<u64>)> {
        self.unread = 0;
        let behind = self.newest.0.checked_sub(number.0).filter(|&behind| behind > 0)?;
        let first = usize::try_from(behind).ok().and_then(|behind| self.rows.len().checked_sub(behind));
        Some(match first {
            Some(first) => (Version(number.0 + 1), Some(self.rows[first])),
            None => (self.newest, None),
        })
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
