//! Nodes as real processes, for tests.
//!
//! `daemon` starts a `ddssd` in a directory of `temp_node`, by `process`, which kills it when it is dropped. `victim_node`
//! and `victim_member` add attackers and a legitimate client; `scripted_client` is a client process.

pub(crate) mod daemon;
pub(crate) mod process;
pub(crate) mod scripted_client;
pub(crate) mod temp_node;
pub(crate) mod victim_member;
pub(crate) mod victim_node;
