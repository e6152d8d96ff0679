//! Bytes of the messages between members.

mod error;
mod fields;
mod message;

pub use error::MessageError;
pub use message::{Message, decode, encode};
