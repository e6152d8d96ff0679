//! Specifications of the permanent segments of a run.

use crate::cluster::simulator::Simulator;
use crate::load::calls::Target;
use crate::oracle::permission_oracle::MODE_OPEN;
use ddss_core::{Model, Spec};

impl Simulator {
    /// Returns the specification of a permanent segment.
    pub(crate) fn spec_of(&self, index: usize, words: u64) -> Spec {
        if let Some(table) = self.table_index(index) {
            let row_bytes = if table % 3 == 2 { Target::bucket_layout().row_bytes() as u32 } else { words as u32 * 8 };
            let model = if table % 3 == 1 { Model::Write } else { Model::Strict };
            let is_replicated = self.plan.replicated > 0 && (self.report.seed as usize + table) % 4 == 1;
            let copies = if is_replicated { 2 } else { 1 };
            return Spec { model, mode: MODE_OPEN, copies, ..Spec::table(Target::ROWS, row_bytes) };
        }
        if let Some(replicated) = index.checked_sub(self.plan.segments) {
            let (model, history) = [(Model::Strict, 0), (Model::Strict, 2), (Model::Write, 0)][replicated % 3];
            let spec = Spec { model, history, copies: 2, ..Spec::new(words * 8) };
            return if self.plan.changes_permissions { spec } else { Spec { mode: MODE_OPEN, ..spec } };
        }
        let models = [
            Model::Strict,
            Model::Strict,
            Model::Write,
            Model::Version,
            Model::Delta(3),
            Model::Temporal(2000),
            Model::Read,
            Model::Null,
            Model::Strict,
        ];
        let history = if index % models.len() == 8 { 4 } else { 0 };
        Spec { model: models[index % models.len()], history, mode: MODE_OPEN, ..Spec::new(words * 8) }
    }

    /// Returns the number of a table among the tables, or `None` for a plain segment.
    pub(crate) fn table_index(&self, index: usize) -> Option<usize> {
        index.checked_sub(self.plan.segments + self.plan.replicated)
    }
}
