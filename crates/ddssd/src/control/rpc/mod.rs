//! Calls between the control planes of two nodes.
//!
//! `types` has the calls and replies, `stream` the encrypted transport. `server` answers calls (`lease_grants` those for leases); `client`
//! makes them: `stream_pool` and `batches` reuse streams and combine calls. `context` is the state that all tasks share.

pub(crate) mod addresses;
pub(crate) mod batches;
pub(crate) mod client;
pub(crate) mod context;
pub(crate) mod last_contact;
pub(crate) mod lease_grants;
pub(crate) mod server;
pub(crate) mod stream;
pub(crate) mod stream_pool;
pub(crate) mod types;
