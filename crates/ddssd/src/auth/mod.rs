//! Authentication of nodes: two nodes prove to each other that they belong to the cluster before either accepts a
//! message.
//!
//! `node_handshake.rs` is Noise with the cluster key mixed in first. The data path carries
//! the two messages of the handshake as the private data of a connection, the control plane as the first bytes of a
//! stream. Later messages are sealed (`channel.rs`, with `cipher.rs` below it).

mod channel;
mod cipher;
mod node_handshake;

pub(crate) use channel::{Channel, SEAL_BYTES};
pub(crate) use node_handshake::{Answer, HELLO_BYTES, HandshakeError, Initiator, Purpose, agree, respond};
