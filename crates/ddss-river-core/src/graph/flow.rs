//! Modules and edges.

use super::error::GraphError;
use crate::limits::{EDGES_MAX, MODULE_NAME_BYTES_MAX, MODULES_MAX};
use crate::model::EdgeId;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// A module of a flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ModuleId(pub(super) u16);

/// Number of instances of a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Each {
    /// One in the flow.
    Flow,
    /// One on each node.
    Node,
    /// One on each processor core.
    Core,
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
    /// Returns true if a producer waits while its consumers are slow.
    pub(super) const fn is_bounded(self) -> bool {
        !matches!(self, Self::Units)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Module {
    pub(super) name: String,
    each: Each,
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
        self.modules.push(Module { name: name.to_owned(), each });
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
        for Module { name, each } in &self.modules {
            hasher.write(&[name.len() as u8, *each as u8]);
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
