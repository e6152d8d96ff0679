//! Connections to the other nodes.
//!
//! `fabric.rs` selects the fabric. `links.rs` holds the state of each peer, and `connect.rs` sets connections up.
//! `handshake_worker.rs` verifies incoming handshakes off the progress thread.

pub(crate) mod connect;
#[cfg(test)]
mod crossing_tests;
pub(crate) mod fabric;
pub(crate) mod handshake_worker;
pub(crate) mod links;
pub(crate) mod send_queue;
pub(crate) mod work_tag;
