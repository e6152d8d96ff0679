//! Operations on segments whose home is this node. `home_ops.rs` decides gets, puts and atomics, `lock_ops.rs` the
//! locks; `fast_path.rs` and `inline_path.rs` shorten the common cases. `peer_messages.rs` is the entry for other
//! nodes; the other files cover creation, metadata and cancellation.

pub(crate) mod cancel;
pub(crate) mod fast_path;
pub(crate) mod home_ops;
pub(crate) mod inline_path;
pub(crate) mod lifecycle;
pub(crate) mod lock_ops;
pub(crate) mod metadata;
pub(crate) mod peer_messages;
pub(crate) mod quota_checks;
