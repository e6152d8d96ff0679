//! Protocol between the engines of two nodes. `hello.rs` identifies the nodes in the handshake, `message.rs` defines
//! the messages, and `replica_reply.rs` the answers of a replica.

pub(crate) mod hello;
pub(crate) mod message;
pub(crate) mod replica_reply;
