//! Operations on segments whose home is another node.

pub(crate) mod name_claims;
pub(crate) mod read_cache;
pub(crate) mod remote_get;
pub(crate) mod remote_locks;
pub(crate) mod remote_ops;
pub(crate) mod served_get;
