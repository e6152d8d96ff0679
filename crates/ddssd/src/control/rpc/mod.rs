//! Calls between the control planes of two nodes.
//!
//! `types` has the calls and replies, `stream` the encrypted transport. `server` answers calls; `stream_pool` and
//! `batches` reuse streams and combine calls on the client side.

pub(crate) mod batches;
pub(crate) mod server;
pub(crate) mod stream;
pub(crate) mod stream_pool;
pub(crate) mod types;
