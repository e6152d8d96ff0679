//! Membership of the cluster: founding, joining, leaving and removal of nodes.
//!
//! `registration` checks a node's identity with the other nodes. `founding` starts a cluster. `decommission` removes a
//! node on the leader, `voters` chooses the voters, and `leadership` hands the leadership over. `recovery` begins a new cluster with what one node has of a lost
//! one.

pub(crate) mod decommission;
pub(crate) mod founding;
pub(crate) mod leadership;
pub(crate) mod recovery;
pub(crate) mod registration;
pub(crate) mod voters;
