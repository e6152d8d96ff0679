//! Bytes that stand for keys and values: plain types, bytes and text, and the format of `postcard`.

#[allow(clippy::module_inception, reason = "the file has the name of its trait")]
mod encoding;
#[cfg(feature = "postcard")]
mod postcard;

pub(crate) use encoding::{Decoded, Room, Seal};
pub use encoding::{Encoding, Plain};
#[cfg(feature = "postcard")]
pub use postcard::Postcard;
