//! The graph of a flow: modules, edges, and the checks before it runs.

mod check;
mod error;
mod flow;

pub use error::GraphError;
pub use flow::{Each, EdgeKind, FlowGraph, ModuleId};
