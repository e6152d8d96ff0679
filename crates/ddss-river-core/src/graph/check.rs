//! Checks of a graph before it runs.

use super::error::GraphError;
use super::flow::{Each, EdgeKind, FlowGraph, ModuleId};

impl FlowGraph {
    /// Checks that the flow can run: every module is attached, and there is no cycle.
    ///
    /// # Errors
    /// The first module without an edge, or the modules of a cycle.
    pub fn check(&self) -> Result<(), GraphError> {
        if self.modules.is_empty() {
            return Err(GraphError::Empty);
        }
        let outside = |module: &ModuleId| self.each(*module) == Each::Outside;
        let wrong =
            self.edges.iter().find(|edge| outside(&edge.to) || outside(&edge.from) && edge.kind != EdgeKind::Units);
        if let Some(edge) = wrong {
            return Err(GraphError::Outside(self.name(edge.from).to_owned(), self.name(edge.to).to_owned()));
        }
        let is_attached = |module: &ModuleId| self.edges.iter().any(|edge| edge.from == *module || edge.to == *module);
        if let Some(module) = self.modules().find(|module| !is_attached(module)) {
            return Err(GraphError::Unattached(self.name(module).to_owned()));
        }
        self.find_cycle().map_or(Ok(()), |cycle| Err(GraphError::Cycle(cycle)))
    }

    /// Compares the hash of the flow with that of this graph.
    ///
    /// # Errors
    /// Both hashes, if they differ.
    pub fn compare(&self, flow: u64) -> Result<(), GraphError> {
        let own = self.hash();
        if own == flow { Ok(()) } else { Err(GraphError::Different { flow, own }) }
    }

    /// Returns the modules of a cycle; the first one is also the last.
    fn find_cycle(&self) -> Option<Vec<String>> {
        // Modules to which nothing leads are taken off, until all are off, or each has an edge from another one.
        let mut left: Vec<bool> = vec![true; self.modules.len()];
        let is_left = |left: &[bool], module: ModuleId| left[usize::from(module.0)];
        loop {
            let has_input =
                |module: &ModuleId| self.edges.iter().any(|edge| edge.to == *module && is_left(&left, edge.from));
            let Some(first) = self.modules().find(|module| is_left(&left, *module) && !has_input(module)) else {
                break;
            };
            left[usize::from(first.0)] = false;
        }
        let mut way = vec![self.modules().find(|module| is_left(&left, *module))?];
        loop {
            let last = way[way.len() - 1];
            let before = self.edges.iter().find(|edge| edge.to == last && is_left(&left, edge.from))?.from;
            way.push(before);
            if let Some(start) = way[..way.len() - 1].iter().position(|module| *module == before) {
                return Some(way[start..].iter().rev().map(|module| self.name(*module).to_owned()).collect());
            }
        }
    }
}
