//! Nodes, network and faults in virtual time.

pub(crate) mod executor;
pub(crate) mod faults;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod raft_stub;
pub(crate) mod simulator;
