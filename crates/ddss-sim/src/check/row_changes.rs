//! Changes of rows of which a watcher of all rows is notified.

use crate::cluster::simulator::Simulator;
use crate::load::calls::{Kind, PendingCall, RowWatch, Target};
use ddss_core::Completion;

impl Simulator {
    /// Records that a watcher was notified of a change of a row, or that it missed changes.
    pub(crate) fn note_row_change(&mut self, node: usize, index: usize, asked: &PendingCall, completion: &Completion) {
        let (Kind::AwaitAnyRow(above), number) = (asked.kind, completion.version.0) else { return };
        let row = completion.timestamp.0.checked_sub(1);
        if number <= above || row.is_some_and(|row| row >= Target::ROWS) {
            return self.violation(format!("change {number} of row {row:?} came after {above}: {asked:?}"));
        }
        let watch = self.nodes[node].clients[index].watch.filter(|watch| watch.target.id == asked.target.id);
        let known = watch.map_or([0; Target::ROWS as usize], |watch| watch.known);
        self.report.row_changes_seen += u64::from(row.is_some());
        self.report.row_changes_missed += u64::from(row.is_none() && above > 0);
        let known = std::array::from_fn(|each| match row {
            Some(row) if row != each as u64 => known[each],
            _ => known[each].max(self.newest(&asked.target.with_row(each as u64))),
        });
        self.nodes[node].clients[index].watch = Some(RowWatch { target: asked.target, number, known });
    }
}
