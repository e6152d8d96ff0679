//! The graph of a flow: modules, edges, the checks before it runs, and the distribution of its instances.

mod bytes;
mod check;
mod error;
mod flow;
mod key;
mod plan;
mod progress;
mod resume;

pub use error::GraphError;
pub use flow::{Each, EdgeKind, FlowGraph, ModuleId};
pub use key::owner_of;
pub use plan::{Plan, Site};
pub use progress::{FlowProgress, Life, MemberReport, ModuleState};
pub use resume::Resume;
