//! Values of any type that `serde` knows, in the format of [`postcard`]: the length, then the value.
//!
//! ```text
//!  0                8
//! +----------------+------------------+
//! | bytes + 1, u64 | the encoded value |   0: no value was put
//! +----------------+------------------+
//! ```

use super::encoding::{Decoded, Encoding, Room, Seal};
use ddss_core::{BadArgument, Failure};
use serde::{Serialize, de::DeserializeOwned};
use std::borrow::Cow;
use std::marker::PhantomData;

/// Bytes in front of the value.
const HEAD_BYTES: usize = 8;

/// Encoding of any type that `serde` knows, in the format of `postcard`.
///
/// The value may have another length with each put, up to the bytes that its cell, row or map entry has; 8 of them are
/// its length. A get of bytes that were not put as such a value is refused with
/// [`ErrorKind::WrongShape`](crate::ErrorKind::WrongShape).
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// use ddss::{Cell, Postcard};
/// let user: Cell<Postcard<(String, Vec<u32>)>> = client.segment("user").allocate(1000)?.cell(0)?;
/// user.put(&("guest".to_owned(), vec![1, 2, 3]))?;
/// user.update(|(name, scores)| {
///     name.push_str(" of honour");
///     scores.push(4);
/// })?;
/// let found = user.get()?;
/// assert_eq!((found.0.as_str(), found.1.len(), found.stamp.version.0), ("guest of honour", 4, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Postcard<T>(PhantomData<fn() -> T>);

impl<T: Serialize + DeserializeOwned + 'static> Encoding for Postcard<T> {
    type Input = T;
    type Output = T;
    type Buffer = Vec<u8>;
    const LEN: Option<usize> = None;
    const FIRST_READ: Option<usize> = Some(4096);

    fn encode<'a>(argument: &'static str, value: &'a T, room: Room, _: Seal) -> Result<Cow<'a, [u8]>, BadArgument> {
        let mut encoded = postcard::to_extend(value, vec![0; HEAD_BYTES])
            .map_err(|error| BadArgument::new("value", error, "what postcard can encode", Failure::Malformed))?;
        let (length, most) = (encoded.len() - HEAD_BYTES, room.len().saturating_sub(HEAD_BYTES));
        if encoded.len() > room.len() {
            return Err(BadArgument::new(argument, length, format_args!("0 to {most}"), Failure::BadSize));
        }
        encoded[..HEAD_BYTES].copy_from_slice(&(length as u64 + 1).to_le_bytes());
        if let Room::Exact(len) = room {
            encoded.resize(len, 0);
        }
        Ok(Cow::Owned(encoded))
    }

    fn buffer(len: usize, _: Seal) -> Vec<u8> {
        vec![0; len]
    }

    fn bytes_mut(buffer: &mut Vec<u8>, _: Seal) -> &mut [u8] {
        buffer
    }

    fn decode(buffer: Vec<u8>, _: Seal) -> Decoded<T> {
        let Some((head, rest)) = buffer.split_first_chunk::<HEAD_BYTES>().filter(|(head, _)| **head != [0; 8]) else {
            return Decoded::Invalid("nothing that was put as a value".to_owned());
        };
        let length = u64::from_le_bytes(*head) - 1;
        match usize::try_from(length).ok().and_then(|length| rest.get(..length)) {
            Some(encoded) => {
                postcard::from_bytes(encoded).map_or_else(|error| Decoded::Invalid(error.to_string()), Decoded::Value)
            }
            None => Decoded::Longer(length.saturating_add(HEAD_BYTES as u64)),
        }
    }
}
