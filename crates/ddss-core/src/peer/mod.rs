//! Protocol between the engines of two nodes. `hello.rs` identifies the nodes in the handshake, `message.rs` defines
//! the messages, `replica_reply.rs` the answers of a replica, and `message_codec.rs` encodes them.

pub(crate) mod hello;
pub(crate) mod message;
pub(crate) mod message_codec;
pub(crate) mod replica_reply;
