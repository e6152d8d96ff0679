//! Operations on segments whose home is this node. `handler.rs` names the state that they borrow. `home_ops.rs` decides
//! gets, puts and atomics, `lock_ops.rs` the locks; `fast_path.rs` and `inline_path.rs` shorten the common cases; `rows/`
//! decides the same for tables and maps. `outgoing_bytes.rs` is the handler of bytes for other nodes. `roles.rs` follows decisions about
//! replicas, `replicated.rs` executes operations that replicas have acknowledged. The other files cover
//! creation, names and metadata.

pub(crate) mod execute;
pub(crate) mod fast_path;
pub(crate) mod handler;
pub(crate) mod home_ops;
pub(crate) mod inline_path;
pub(crate) mod lifecycle;
pub(crate) mod lock_ops;
pub(crate) mod metadata;
pub(crate) mod name_claims;
pub(crate) mod outgoing_bytes;
pub(crate) mod quota_checks;
pub(crate) mod replicated;
pub(crate) mod roles;
pub(crate) mod rows;

#[cfg(test)]
mod tests;
