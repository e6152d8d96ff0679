//! Simulated cluster: nodes, network and faults in virtual time. `simulator` owns the state and the event loop, `observation`
//! what a run sees of the nodes; `executor` carries out the actions of the engines, and `raft_stub` stands for the control plane,
//! with its log in `decisions`.
//! `segments` specifies the permanent segments, `workload` chooses the calls of clients, and `completions` checks the replies.

pub(crate) mod completions;
pub(crate) mod decisions;
pub(crate) mod executor;
pub(crate) mod faults;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod observation;
pub(crate) mod raft_stub;
pub(crate) mod segments;
pub(crate) mod simulator;
pub(crate) mod workload;
