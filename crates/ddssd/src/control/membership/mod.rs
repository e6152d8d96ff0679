//! Membership of the cluster: founding, joining, leaving and removal of nodes, and the identity of each node.
//!
//! `identity` and `incarnation` are files in the state folder; `registration` checks them with the other nodes.
//! `founding` starts a cluster. `decommission` removes a node on the leader (`departing_nodes` fences it meanwhile,
//! `name_sample` reports its segments), `voters` chooses the voters, and `removal` is the removed node's side. `recovery`
//! begins a new cluster with what one node has of a lost one.

pub(crate) mod decommission;
pub(crate) mod departing_nodes;
pub(crate) mod founding;
pub(crate) mod identity;
pub(crate) mod incarnation;
pub(crate) mod name_sample;
pub(crate) mod recovery;
pub(crate) mod registration;
pub(crate) mod removal;
pub(crate) mod state_file;
pub(crate) mod voters;
