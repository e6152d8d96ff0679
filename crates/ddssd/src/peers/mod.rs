//! Connections to the other nodes.

pub(crate) mod connect;
pub(crate) mod fabric;
pub(crate) mod handshake_worker;
pub(crate) mod links;
