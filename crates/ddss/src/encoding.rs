//! Encodings of keys and values.

use ddss_core::{BadArgument, Failure};
use std::borrow::{Borrow, Cow};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A type of keys or values of a [`Map`](crate::Map), and the bytes that stand for it.
///
/// | type | a put takes | a get returns | bytes |
/// | --- | --- | --- | --- |
/// | plain bytes, as `zerocopy` knows them | `&T` | `T` | the value itself |
/// | `[u8]` | `&[u8]` | `Vec<u8>` | as many as the map has for it |
/// | `str` | `&str` | `String` | filled up with zeroes, so it cannot end with one |
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.folder()))?;
/// use ddss::{Map, Spec};
/// let ports: Map<str, u64> = client.map("ports").allocate(Spec::new(100).entry_len(16, 8))?;
/// ports.put("http", &80)?;
/// assert_eq!(ports.get("http")?.map(|entry| entry.value), Some(80));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Encoding: 'static {
    /// Type of the argument of a put.
    type Input: ?Sized;
    /// Type of the result of a get.
    type Output: Borrow<Self::Input>;

    /// Number of bytes, if the type decides it.
    #[doc(hidden)]
    const LEN: Option<usize>;

    /// Encodes a value as `len` bytes.
    #[doc(hidden)]
    fn encode<'a>(
        argument: &'static str,
        value: &'a Self::Input,
        len: usize,
        _: Seal,
    ) -> Result<Cow<'a, [u8]>, BadArgument>;

    /// Decodes the `len` bytes that `fill` writes. `None` if it fails, or they stand for no value of this type.
    #[doc(hidden)]
    fn read(len: usize, fill: impl FnOnce(&mut [u8]) -> Option<()>, _: Seal) -> Option<Self::Output>;
}

/// An argument that only this crate can name: no other crate has handles or encodings of its own.
#[derive(Debug)]
pub struct Seal;

impl<T: FromBytes + IntoBytes + Immutable + 'static> Encoding for T {
    type Input = T;
    type Output = T;
    const LEN: Option<usize> = Some(size_of::<T>());

    #[inline]
    fn encode<'a>(_: &'static str, value: &'a T, _: usize, _: Seal) -> Result<Cow<'a, [u8]>, BadArgument> {
        Ok(Cow::Borrowed(value.as_bytes()))
    }

    #[inline]
    fn read(_: usize, fill: impl FnOnce(&mut [u8]) -> Option<()>, _: Seal) -> Option<T> {
        let mut value = T::new_zeroed();
        fill(value.as_mut_bytes())?;
        Some(value)
    }
}

impl Encoding for [u8] {
    type Input = [u8];
    type Output = Vec<u8>;
    const LEN: Option<usize> = None;

    fn encode<'a>(argument: &'static str, value: &'a [u8], len: usize, _: Seal) -> Result<Cow<'a, [u8]>, BadArgument> {
        if value.len() == len {
            return Ok(Cow::Borrowed(value));
        }
        Err(BadArgument::new(argument, value.len(), len, Failure::BadSize))
    }

    fn read(len: usize, fill: impl FnOnce(&mut [u8]) -> Option<()>, _: Seal) -> Option<Vec<u8>> {
        let mut value = vec![0; len];
        fill(&mut value)?;
        Some(value)
    }
}

impl Encoding for str {
    type Input = str;
    type Output = String;
    const LEN: Option<usize> = None;

    fn encode<'a>(argument: &'static str, value: &'a str, len: usize, _: Seal) -> Result<Cow<'a, [u8]>, BadArgument> {
        if value.len() > len {
            return Err(BadArgument::new(argument, value.len(), format_args!("0 to {len}"), Failure::BadSize));
        }
        if value.ends_with('\0') {
            return Err(BadArgument::new(argument, "a zero at the end", "text that ends otherwise", Failure::BadSize));
        }
        let mut bytes = value.as_bytes().to_vec();
        bytes.resize(len, 0);
        Ok(Cow::Owned(bytes))
    }

    fn read(len: usize, fill: impl FnOnce(&mut [u8]) -> Option<()>, _: Seal) -> Option<String> {
        let mut bytes = vec![0; len];
        fill(&mut bytes)?;
        let text = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        bytes.truncate(text);
        String::from_utf8(bytes).ok()
    }
}
