//! Lifecycle of segments and replicas here. `claims.rs` claims a name in the cluster and gives it back, `creation.rs` creates,
//! `removal.rs` releases, and `refusals.rs` refuses what a limit forbids. `handler.rs` names the state that they borrow.

pub(crate) mod claims;
pub(crate) mod creation;
pub(crate) mod handler;
pub(crate) mod refusals;
pub(crate) mod removal;
