//! The replicated state of the cluster: log, state machine, directory, snapshots.

pub(crate) mod directory;
pub(crate) mod log;
pub(crate) mod network;
pub(crate) mod snapshot;
pub(crate) mod state_machine;
pub(crate) mod types;
