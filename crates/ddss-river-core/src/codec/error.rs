//! The error of a received message.

/// A message that no member sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The message ends within a field.
    #[error("cannot read a message that ends within a field: close the connection")]
    Short,
    /// The first byte names no message.
    #[error("cannot read message kind {0}: close the connection")]
    Kind(u8),
    /// A field has a value outside its limit.
    #[error("cannot accept a message with {0} {1}: close the connection")]
    Field(&'static str, u64),
}
