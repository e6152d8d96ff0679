//! Bytes of the messages between members.

mod error;
mod fields;
mod message;
mod row;

pub use error::MessageError;
pub use message::{Message, decode, encode};
pub use row::{decode_row, encode_row};
