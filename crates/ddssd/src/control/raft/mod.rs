//! The Raft group of the cluster and its replicated state.
//!
//! `types` binds the Raft library to our commands; `log` and `snapshot` are its files. `state_machine` applies
//! committed entries to the `directory` by `commands`.

mod commands;
pub(crate) mod directory;
pub(crate) mod log;
mod node_removal;
pub(crate) mod offline;
mod reclaim;
mod records;
mod replicated_counts;
pub(crate) mod snapshot;
pub(crate) mod state_machine;
pub(crate) mod types;
