//! Operations on segments whose home is this node. `handler.rs` names the state that they borrow. `home_ops.rs` decides
//! gets, puts and atomics, `lock_ops.rs` the locks; `fast_path.rs` and `inline_path.rs` shorten the common cases; `rows/`
//! decides the same for tables and maps, and `replicas/` for segments with two copies. The other files cover uploads, creation,
//! names and metadata.
//!
//! The home calls `locks/`, `commits/`, `uploads/`, `replication/`, `replica/` and `outgoing_bytes.rs`. None of them calls the home.

pub(crate) mod execute;
pub(crate) mod fast_path;
pub(crate) mod handler;
pub(crate) mod home_ops;
pub(crate) mod inline_path;
pub(crate) mod lifecycle;
pub(crate) mod lock_ops;
pub(crate) mod metadata;
pub(crate) mod name_claims;
pub(crate) mod replicas;
pub(crate) mod rows;
pub(crate) mod uploads;

#[cfg(test)]
mod tests;
