//! Authentication of nodes: two nodes prove to each other that they belong to the cluster before either accepts a
//! message.
//!
//! `key.rs` holds the [`ClusterKey`], and `handshake.rs` is Noise with that key mixed in first. The data path carries
//! the two messages of the handshake as the private data of a connection, the control plane as the first bytes of a
//! stream. Later messages are sealed (`channel.rs`, with `cipher.rs` below it).

mod channel;
mod cipher;
mod handshake;
mod key;

pub(crate) use channel::{Channel, SEAL_BYTES};
pub(crate) use handshake::{Answer, HELLO_BYTES, HandshakeError, Initiator, Purpose, agree, respond};
pub use key::{ClusterKey, KeyError};
