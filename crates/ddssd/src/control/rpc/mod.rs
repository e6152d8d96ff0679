//! Calls between the control planes of two nodes.
//!
//! `types` has the calls and replies, `stream` the encrypted transport. `server` answers calls (`lease_grants` those for leases); `client`
//! makes them: `stream_pool` and `batches` reuse streams and combine calls. `context` is the state that all tasks share.
//! `raft_network` carries the calls of the Raft group. `removal` ends this node when a reply says that it was removed.

pub(crate) mod batches;
pub(crate) mod client;
pub(crate) mod context;
pub(crate) mod last_contact;
pub(crate) mod lease_grants;
pub(crate) mod name_sample;
pub(crate) mod raft_network;
pub(crate) mod removal;
pub(crate) mod server;
pub(crate) mod stream;
pub(crate) mod stream_pool;
pub(crate) mod types;
