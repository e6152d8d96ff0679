//! Modules and edges.

use super::error::GraphError;
use crate::limits::{EDGES_MAX, MODULE_NAME_BYTES_MAX, MODULES_MAX};
use crate::model::EdgeId;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// A module of a flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ModuleId(pub(super) u16);

impl ModuleId {
    /// Returns the position of the module: modules count from 0 in the order in which they were placed.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Number of instances of a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Each {
    /// One in the flow.
    Flow,
    /// One on each node.
    Node,
    /// One on each processor core.
    Core,
    /// One in each member.
    Member,
    /// So many in the flow.
    Count(u16),
    /// None: the module is a list of work outside of the flow.
    Outside,
}

impl Each {
    /// Returns the number in the hash of a graph, and the count behind it.
    pub(super) const fn code(self) -> (u8, Option<u16>) {
        match self {
            Self::Flow => (0, None),
            Self::Node => (1, None),
            Self::Core => (2, None),
            Self::Member => (3, None),
            Self::Count(count) => (4, Some(count)),
            Self::Outside => (5, None),
        }
    }
}

/// Way from the instances of a module to those of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EdgeKind {
    /// Any producer to any consumer, by load.
    Queue,
    /// Stored units, which workers claim. The list has no bound in memory.
    Units,
    /// Producer i to consumer i.
    OneToOne,
    /// By a key of each message.
    ByKey,
    /// Each message to all consumers.
    AllToAll,
}

impl EdgeKind {
    /// Returns true if each message is for certain consumers, so that no other one can take it.
    #[must_use]
    pub const fn is_addressed(self) -> bool {
        matches!(self, Self::OneToOne | Self::ByKey | Self::AllToAll)
    }

    /// Returns the name of the kind.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Units => "units",
            Self::OneToOne => "one to one",
            Self::ByKey => "by key",
            Self::AllToAll => "all to all",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Module {
    pub(super) name: String,
    pub(super) each: Each,
    /// True if the module holds what it has acknowledged.
    pub(super) holds_data: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Edge {
    pub(super) from: ModuleId,
    pub(super) to: ModuleId,
    pub(super) kind: EdgeKind,
}

/// The graph of a flow. Every member builds the same one, in the same order.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct FlowGraph {
    pub(super) modules: Vec<Module>,
    pub(super) edges: Vec<Edge>,
}

impl FlowGraph {
    /// Adds a module.
    ///
    /// # Errors
    /// A name that is empty, too long or in use, or too many modules.
    pub fn place(&mut self, name: &str, each: Each) -> Result<ModuleId, GraphError> {
        if name.is_empty() || name.len() > MODULE_NAME_BYTES_MAX {
            return Err(GraphError::Name(name.to_owned(), MODULE_NAME_BYTES_MAX));
        }
        if self.modules.iter().any(|module| module.name == name) {
            return Err(GraphError::Duplicate(name.to_owned()));
        }
        if self.modules.len() == MODULES_MAX {
            return Err(GraphError::Full("modules", MODULES_MAX));
        }
        self.modules.push(Module { name: name.to_owned(), each, holds_data: false });
        Ok(ModuleId(self.modules.len() as u16 - 1))
    }

    /// Adds an edge.
    ///
    /// # Errors
    /// A module of another flow, a second edge between two modules, or too many edges.
    pub fn attach(&mut self, from: ModuleId, to: ModuleId, kind: EdgeKind) -> Result<EdgeId, GraphError> {
        let unknown = [from, to].into_iter().find(|module| usize::from(module.0) >= self.modules.len());
        if let Some(module) = unknown {
            return Err(GraphError::Unknown(module.0));
        }
        if self.edges.iter().any(|edge| edge.from == from && edge.to == to) {
            return Err(GraphError::Attached(self.name(from).to_owned(), self.name(to).to_owned()));
        }
        if self.edges.len() == EDGES_MAX {
            return Err(GraphError::Full("edges", EDGES_MAX));
        }
        self.edges.push(Edge { from, to, kind });
        Ok(EdgeId(self.edges.len() as u32 - 1))
    }

    /// Marks a module that holds data of messages that it has acknowledged: its loss ends the flow.
    ///
    /// # Errors
    /// A module of another flow.
    pub fn set_holds_data(&mut self, module: ModuleId) -> Result<(), GraphError> {
        let found = self.modules.get_mut(module.index()).ok_or(GraphError::Unknown(module.0))?;
        found.holds_data = true;
        Ok(())
    }

    /// Returns the modules in the order in which they were placed.
    pub fn modules(&self) -> impl Iterator<Item = ModuleId> + use<> {
        (0..self.modules.len() as u16).map(ModuleId)
    }

    /// Returns the placement of a module.
    ///
    /// # Panics
    /// If the module is of another flow.
    #[must_use]
    pub fn each(&self, module: ModuleId) -> Each {
        self.modules[module.index()].each
    }

    /// Returns the edges, in the order in which they were attached: where each begins, where it ends, and its kind.
    pub fn edges(&self) -> impl Iterator<Item = (EdgeId, ModuleId, ModuleId, EdgeKind)> + '_ {
        self.edges.iter().zip(0..).map(|(edge, number)| (EdgeId(number), edge.from, edge.to, edge.kind))
    }

    /// Returns true if other instances can do what a lost instance of the module has not done: each message or unit that it
    /// has not acknowledged is given to them. A further instance of a module with a one-to-one output would have no receiver.
    ///
    /// # Panics
    /// If the module is of another flow.
    #[must_use]
    pub fn is_replaceable(&self, module: ModuleId) -> bool {
        let mut inputs = self.edges.iter().filter(|edge| edge.to == module).peekable();
        let has_inputs = inputs.peek().is_some();
        let has_receiver = |edge: &Edge| edge.from == module && edge.kind == EdgeKind::OneToOne;
        !self.modules[module.index()].holds_data
            && has_inputs
            && !inputs.any(|edge| edge.kind.is_addressed())
            && !self.edges.iter().any(has_receiver)
    }

    /// Returns the name of a module.
    ///
    /// # Panics
    /// If the module is of another flow.
    #[must_use]
    pub fn name(&self, module: ModuleId) -> &str {
        &self.modules[usize::from(module.0)].name
    }

    /// Returns a hash of modules and edges, which is the same in all releases.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let mut hasher = SipHasher13::new();
        hasher.write(&(self.modules.len() as u32).to_le_bytes());
        for Module { name, each, holds_data } in &self.modules {
            let (code, count) = each.code();
            hasher.write(&[name.len() as u8, code | u8::from(*holds_data) << 7]);
            hasher.write(&count.map_or_else(Vec::new, |count| count.to_le_bytes().to_vec()));
            hasher.write(name.as_bytes());
        }
        for Edge { from, to, kind } in &self.edges {
            hasher.write(&from.0.to_le_bytes());
            hasher.write(&to.0.to_le_bytes());
            hasher.write(&[*kind as u8]);
        }
        hasher.finish()
    }
}
