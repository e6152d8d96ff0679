//! The identity of a node in its cluster.
//!
//! `identity` and `incarnation` are files in the state folder, which `state_file` writes. `member` is the cluster's record of
//! a node.

mod identity;
pub(crate) mod incarnation;
pub(crate) mod member;
pub(crate) mod state_file;

pub(crate) use identity::{
    Addresses, ClusterLineage, Identity, are_names_compared, clear_left_mark, delete_cluster_state, end_founding,
    forget_names_compared, has_left, last_memory_folder, mark_names_compared, may_found, record_memory_folder,
};
