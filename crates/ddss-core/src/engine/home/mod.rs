//! Operations on segments whose home is this node.

pub(crate) mod cancel;
pub(crate) mod fast_path;
pub(crate) mod home_ops;
pub(crate) mod inline_path;
pub(crate) mod lifecycle;
pub(crate) mod lock_ops;
pub(crate) mod metadata;
pub(crate) mod peer_messages;
