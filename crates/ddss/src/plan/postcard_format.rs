//! Bytes of a value in the format of [`postcard`] in a segment.
//!
//! ```text
//!  0                8
//! +----------------+------------------+
//! | bytes + 1, u64 | the encoded value |   0: no value was put
//! +----------------+------------------+
//! ```

use crate::error::Error;
use crate::error::reason::Reason;
use ddss_core::{BadArgument, Failure};
use serde::Serialize;
use std::any::type_name;

/// Bytes in front of the value.
pub(crate) const HEAD_BYTES: usize = 8;
/// Bytes of the first read. A longer value takes a second one.
pub(crate) const FIRST_READ_BYTES: u64 = 4096;

/// Encodes a value with its length for a segment of that size.
pub(crate) fn encode<T: Serialize>(value: &T, name: &str, bytes: u64) -> Result<Vec<u8>, Error> {
    let refuse = |refused| Error::bad_argument("put", name, refused);
    let mut encoded = postcard::to_extend(value, vec![0; HEAD_BYTES])
        .map_err(|error| refuse(BadArgument::new("value", error, "what postcard can encode", Failure::Malformed)))?;
    if encoded.len() as u64 > bytes {
        let (length, most) = (encoded.len() - HEAD_BYTES, bytes.saturating_sub(HEAD_BYTES as u64));
        let range = format_args!("0 to {most} in this segment").to_string();
        return Err(refuse(BadArgument::new("bytes of the value", length, range, Failure::BadSize)));
    }
    let length = (encoded.len() - HEAD_BYTES) as u64 + 1;
    encoded[..HEAD_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(encoded)
}

/// Returns the bytes of the value with its head; `None` if no value was put.
pub(crate) fn encoded_bytes(read: &[u8]) -> Option<u64> {
    let (head, _) = read.split_first_chunk::<HEAD_BYTES>()?;
    u64::from_le_bytes(*head).checked_add(HEAD_BYTES as u64 - 1).filter(|_| *head != [0; HEAD_BYTES])
}

/// Returns the error of a segment that holds no value of that type.
pub(crate) fn no_value<T>(name: &str, found: &str) -> Error {
    let range = format!("a value of {}", type_name::<T>());
    let refused = BadArgument::new("content", found, range, Failure::Malformed);
    Reason::WrongShape { action: "decode", target: name.to_owned(), refused }.into()
}
