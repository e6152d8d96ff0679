//! The parts of a flow that another attempt need not repeat.

use super::flow::{Each, EdgeKind, FlowGraph, ModuleId};
use crate::model::EdgeId;

/// The parts of a flow that another attempt need not repeat.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Resume {
    /// For each module, whether it need not run again: it has ended, and its results are in lists, or with finished modules.
    pub finished: Vec<bool>,
    /// Lists of work whose units stay. The module at the beginning of any other list adds all units again.
    pub kept: Vec<EdgeId>,
}

impl FlowGraph {
    /// Decides which parts another attempt need not repeat. `ended` has the modules that have ended.
    #[must_use]
    pub fn resume(&self, ended: &[bool]) -> Resume {
        let finished = self.finished(ended);
        // A module that a kept list feeds has put results that nothing repeats.
        let mut is_fed = vec![false; self.modules.len()];
        let is_kept = |from: ModuleId, is_fed: &[bool]| {
            self.each(from) == Each::Outside || finished[from.index()] || is_fed[from.index()]
        };
        loop {
            let found = self.edges.iter().find(|edge| {
                let is_list = edge.kind == EdgeKind::Units;
                let feeds = if is_list { is_kept(edge.from, &is_fed) } else { is_fed[edge.from.index()] };
                feeds && !is_fed[edge.to.index()]
            });
            let Some(edge) = found else { break };
            is_fed[edge.to.index()] = true;
        }
        let lists = self.edges().filter(|(_, from, _, kind)| *kind == EdgeKind::Units && is_kept(*from, &is_fed));
        let kept = lists.map(|(edge, ..)| edge).collect();
        Resume { finished, kept }
    }

    /// Returns for each module whether it need not run again.
    fn finished(&self, ended: &[bool]) -> Vec<bool> {
        let is_list = |module: ModuleId| self.each(module) == Each::Outside;
        let is_finished = |module: ModuleId| {
            // The results of a module without outputs may have been in the memory of a process.
            let has_outputs = self.edges.iter().any(|edge| edge.from == module);
            has_outputs && !is_list(module) && ended.get(module.index()).is_some_and(|ended| *ended)
        };
        let mut finished: Vec<bool> = self.modules().map(is_finished).collect();
        loop {
            // A module that runs again puts all its messages again, and needs all messages of its queues again.
            let runs_again = self.edges.iter().find_map(|edge| {
                let (from, to) = (edge.from.index(), edge.to.index());
                let repeats = !finished[from] && finished[to] && !is_list(edge.from);
                let needs = finished[from] && !finished[to] && edge.kind != EdgeKind::Units;
                if repeats { Some(to) } else { needs.then_some(from) }
            });
            let Some(module) = runs_again else { return finished };
            finished[module] = false;
        }
    }
}
