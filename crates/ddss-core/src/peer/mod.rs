//! The protocol between the engines of two nodes: hello, messages, and their encoding.

pub(crate) mod hello;
pub(crate) mod message;
pub(crate) mod message_codec;
