//! Calls between the control planes of two nodes.

pub(crate) mod batches;
pub(crate) mod server;
pub(crate) mod stream;
pub(crate) mod stream_pool;
pub(crate) mod types;
