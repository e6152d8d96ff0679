//! The control plane: the membership of the cluster and the directory of names and their homes.
//!
//! It is one Raft group on a thread of its own, apart from the progress thread. The two talk through a
//! [`ControlBridge`]. Three or five nodes vote (one node, in clusters of fewer than three); every other node is a
//! learner, so each node resolves names locally. A name that is missing locally is confirmed with the leader once. So
//! no client gets *not found* for a name that another node has created before.
//!
//! Files: `runtime` starts the thread and its tasks; `raft/` holds the replicated state, `rpc/` the calls between
//! control planes, `membership/` joining and leaving. `identity/` has the files that name a node. `failure_detector`, `majority_watch` and `stall` decide
//! which nodes are usable; `replication` handles leases and failover.

mod admin;
#[cfg(test)]
mod attack_tests;
mod bridge;
mod departing_nodes;
mod failure_detector;
mod fenced_nodes;
mod handshake_limit;
mod identity;
mod majority;
mod majority_watch;
mod membership;
mod owned_names;
mod raft;
mod replication;
mod rpc;
mod runtime;
mod stall;

pub(crate) use bridge::{ControlBridge, ControlEvent, ControlRequest};
pub(crate) use identity::incarnation::Incarnation;
pub(crate) use identity::{
    Addresses, ClusterLineage, Identity, are_names_compared, clear_left_mark, delete_cluster_state, end_founding,
    forget_names_compared, has_left, last_memory_folder, may_found, record_memory_folder,
};
pub use membership::recovery::recover;
pub(crate) use membership::recovery::{complete_recovery, drop_replicated_state};
pub(crate) use runtime::{BridgeEnd, ControlConfig, ControlPlane, join};
