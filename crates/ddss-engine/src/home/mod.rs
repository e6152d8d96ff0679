//! The home: what this node does for segments that it stores. `handler.rs` names the state that it borrows; each file decides
//! which of the handlers below does a step, and `follow_up.rs` does the work that a step leaves. `execute.rs` takes operations,
//! `ticks.rs` time, `roles.rs` decisions of the cluster, and `replica_messages.rs` messages of other homes and of replicas.
//! `metadata.rs` and `upload_calls.rs` have the rest. `fast_path.rs` and `inline_path.rs` shorten the common put.
//!
//! The home calls `operations/`, `lifecycle/`, `uploads/`, `replication/`, `replica/` and `outgoing_bytes.rs`. None of them calls
//! the home.

pub(crate) mod execute;
pub(crate) mod fast_path;
pub(crate) mod follow_up;
pub(crate) mod handler;
pub(crate) mod inline_path;
pub(crate) mod metadata;
pub(crate) mod replica_messages;
pub(crate) mod roles;
pub(crate) mod ticks;
pub(crate) mod upload_calls;

#[cfg(test)]
mod tests;
