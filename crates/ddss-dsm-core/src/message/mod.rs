//! Messages between ranks.

mod codec;
mod error;
mod kinds;
mod reader;
mod writer;

pub use codec::Codec;
pub use error::MessageError;
pub use kinds::Message;
