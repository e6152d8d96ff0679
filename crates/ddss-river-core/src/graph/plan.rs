//! The distribution of instances over the members that begin a flow.

use super::error::GraphError;
use super::flow::{Each, EdgeKind, FlowGraph, ModuleId};
use crate::limits::{ADDRESSED_MAX, INSTANCES_MAX};

/// A member, as the distribution sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    /// Node of the member.
    pub node: u16,
    /// Processor cores of the node.
    pub cores: u16,
}

/// Instances of each module in each of the members that begin a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    members: usize,
    /// Counts of a module, a member behind the other.
    counts: Vec<u16>,
}

impl Plan {
    /// Returns the instances of a module in a member.
    #[must_use]
    pub fn count(&self, module: ModuleId, member: usize) -> u16 {
        if member < self.members { self.counts[module.index() * self.members + member] } else { 0 }
    }

    /// Returns the number of the first instance of a module in a member: instances count from 0 over all members.
    #[must_use]
    pub fn first(&self, module: ModuleId, member: usize) -> u16 {
        (0..member).map(|before| self.count(module, before)).sum()
    }

    /// Returns the instances of a module in all members.
    #[must_use]
    pub fn total(&self, module: ModuleId) -> u16 {
        self.first(module, self.members)
    }
}

impl FlowGraph {
    /// Distributes the instances of the modules over the members that begin the flow. Every member computes the same.
    ///
    /// # Errors
    /// A module without instances or with too many, or a one-to-one edge between different numbers of them.
    pub fn plan(&self, members: &[Site]) -> Result<Plan, GraphError> {
        let mut counts = vec![0_u16; self.modules.len() * members.len()];
        for module in self.modules() {
            let each = self.each(module);
            let wanted: Vec<u64> = wanted(each, members, module.index());
            let total: u64 = wanted.iter().sum();
            let max = if self.is_addressed(module) { ADDRESSED_MAX } else { INSTANCES_MAX };
            if each != Each::Outside && !(1..=u64::from(max)).contains(&total) {
                return Err(GraphError::Instances(self.name(module).to_owned(), total, max));
            }
            let first = module.index() * members.len();
            counts[first..first + members.len()]
                .iter_mut()
                .zip(wanted)
                .for_each(|(count, wanted)| *count = wanted as u16);
        }
        let plan = Plan { members: members.len(), counts };
        for (_, from, to, _) in self.edges().filter(|(.., kind)| *kind == EdgeKind::OneToOne) {
            let (from_count, to_count) = (plan.total(from), plan.total(to));
            if from_count != to_count {
                let (from, to) = (self.name(from).to_owned(), self.name(to).to_owned());
                return Err(GraphError::Unequal { from, from_count, to, to_count });
            }
        }
        Ok(plan)
    }

    /// Returns true if messages name instances of the module.
    fn is_addressed(&self, module: ModuleId) -> bool {
        self.edges().any(|(_, _, to, kind)| to == module && kind.is_addressed())
    }
}

/// Returns the instances of a module in each member. `turn` makes single instances of different modules begin in different
/// members.
fn wanted(each: Each, members: &[Site], turn: usize) -> Vec<u64> {
    let mut counts = vec![0; members.len()];
    let mut spread = |over: &[usize], total: u16, turn: usize| {
        for number in 0..usize::from(total).min(over.len() * usize::from(INSTANCES_MAX)) {
            counts[over[(turn + number) % over.len()]] += 1;
        }
    };
    let all: Vec<usize> = (0..members.len()).collect();
    match each {
        _ if members.is_empty() => {}
        Each::Outside => {}
        Each::Flow => spread(&all, 1, turn),
        Each::Count(count) => spread(&all, count, turn),
        Each::Member => spread(&all, members.len() as u16, 0),
        Each::Node | Each::Core => {
            let is_first =
                |member: &usize| members[..*member].iter().all(|before| before.node != members[*member].node);
            for first in all.iter().copied().filter(is_first) {
                let Site { node, cores } = members[first];
                let there: Vec<usize> = all.iter().copied().filter(|member| members[*member].node == node).collect();
                spread(&there, if each == Each::Core { cores } else { 1 }, turn);
            }
        }
    }
    counts
}
