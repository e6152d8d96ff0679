//! Flows: graphs of modules that several processes run together.
//!
//! The table `river/NAME` is the group of the members, whose settings have the hash of the graph. The table `river/NAME/flow` has
//! the status, a row a member, and the graph. An edge is a queue `river/NAME/flow/EDGE`, one for each instance that its messages
//! name, or a list of work `river/NAME/flow/EDGE/units`. Users cannot choose these names.
//!
//! `tables` is the table, `ports` the ends of edges, `member` the instances of a process and its thread, `builder` the begin,
//! `running` the end, `inspect` and `remove` what a process without a place may do.

mod builder;
mod error;
mod inspect;
mod member;
mod options;
mod ports;
mod remove;
mod running;
mod tables;

pub use builder::Flow;
pub use ddss_river_core::{Each, EdgeKind, GraphError, Life};
pub use error::{FlowError, ModuleError};
pub use inspect::{EdgeInfo, FlowInfo, FlowMember, ModuleInfo};
pub use member::{Context, Module};
pub use options::FlowOptions;
pub use ports::{Edge, Input, Message, Output};
pub use remove::{cancel, prepare};
pub use running::Running;
pub use tables::FlowStatus;
