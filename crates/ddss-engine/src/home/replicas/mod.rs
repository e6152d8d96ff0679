//! Segments with two copies: `roles.rs` follows decisions of the cluster, `replicated.rs` executes operations that replicas have
//! acknowledged, and `offered.rs` creates and drops replicas of other homes.

pub(crate) mod offered;
pub(crate) mod replicated;
pub(crate) mod roles;
