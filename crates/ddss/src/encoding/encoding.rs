//! Encodings of keys and values.

use ddss_core::{BadArgument, Failure};
use std::borrow::{Borrow, Cow};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A type of values, and the bytes that stand for it: of a [`Cell`](crate::Cell), of the rows of a
/// [`Table`](crate::Table), of the keys and values of a [`Map`](crate::Map).
///
/// | type | a put takes | a get returns | bytes |
/// | --- | --- | --- | --- |
/// | plain bytes, as `zerocopy` knows them | `&T` | `T` | the value itself |
/// | `[u8]` | `&[u8]` | `Vec<u8>` | all of the row or cell, of which a put may write the beginning |
/// | `str` | `&str` | `String` | filled up with zeroes, so it cannot end with one |
/// | `Postcard<T>` (feature `postcard`) | `&T` | `T` | its length, and the value as `postcard` encodes it |
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
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

    /// Memory for the bytes of a get.
    #[doc(hidden)]
    type Buffer;

    /// Number of bytes, if the type decides it.
    #[doc(hidden)]
    const LEN: Option<usize>;

    /// Number of bytes of the first get, if it may show that there are more.
    #[doc(hidden)]
    const FIRST_READ: Option<usize> = None;

    /// Encodes a value.
    #[doc(hidden)]
    fn encode<'a>(
        argument: &'static str,
        value: &'a Self::Input,
        room: Room,
        _: Seal,
    ) -> Result<Cow<'a, [u8]>, BadArgument>;

    /// Makes the memory for that many bytes.
    #[doc(hidden)]
    fn buffer(len: usize, _: Seal) -> Self::Buffer;

    /// Returns the memory for a get.
    #[doc(hidden)]
    fn bytes_mut(buffer: &mut Self::Buffer, _: Seal) -> &mut [u8];

    /// Decodes what a get has read.
    #[doc(hidden)]
    fn decode(buffer: Self::Buffer, _: Seal) -> Decoded<Self::Output>;

    /// Decodes the `len` bytes that `fill` writes. `None` if it fails, or they stand for no value of this type.
    #[doc(hidden)]
    fn read(len: usize, fill: impl FnOnce(&mut [u8]) -> Option<()>, _: Seal) -> Option<Self::Output> {
        let mut buffer = Self::buffer(len, Seal);
        fill(Self::bytes_mut(&mut buffer, Seal))?;
        match Self::decode(buffer, Seal) {
            Decoded::Value(value) => Some(value),
            Decoded::Longer(_) | Decoded::Invalid(_) => None,
        }
    }
}

/// An argument that only this crate can name: no other crate has handles or encodings of its own.
#[derive(Debug)]
pub struct Seal;

/// Bytes for a value.
#[derive(Clone, Copy, Debug)]
pub enum Room {
    /// All of them belong to the value.
    Exact(usize),
    /// The value may have fewer.
    UpTo(usize),
}

impl Room {
    pub(crate) const fn len(self) -> usize {
        match self {
            Room::Exact(len) | Room::UpTo(len) => len,
        }
    }
}

/// Result of decoding.
#[derive(Debug)]
pub enum Decoded<T> {
    /// The bytes stand for this value.
    Value(T),
    /// The value has this many bytes, more than were read.
    #[cfg_attr(
        not(feature = "postcard"),
        allow(dead_code, reason = "only values of postcard have lengths of their own")
    )]
    Longer(u64),
    /// The bytes stand for no value, for this reason.
    Invalid(String),
}

/// A type whose values are their bytes, as `zerocopy` knows them: derive [`FromBytes`], [`IntoBytes`] and [`Immutable`].
///
/// All processes must agree on the layout. Use `#[repr(C)]`, and the integers of [`zerocopy::little_endian`] in clusters
/// with more than one architecture.
///
/// ```
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(FromBytes, IntoBytes, Immutable)]
/// #[repr(C)]
/// struct Point {
///     x: u64,
///     y: u64,
/// }
///
/// # let node = ddssd::EphemeralNode::start()?;
/// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
/// let points: ddss::Array<Point> = client.segment("points").allocate(1600)?.array(0)?;
/// points.put(7, &Point { x: 1, y: 2 })?;
/// assert_eq!((points.get(7)?.y, points.len()), (2, 100));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Plain: Encoding<Input = Self, Output = Self> + Sized {
    /// Views values as their bytes.
    #[doc(hidden)]
    fn slice_bytes(values: &[Self], _: Seal) -> &[u8];

    /// Views values as their bytes.
    #[doc(hidden)]
    fn slice_bytes_mut(values: &mut [Self], _: Seal) -> &mut [u8];
}

impl<T: FromBytes + IntoBytes + Immutable + 'static> Plain for T {
    #[inline]
    fn slice_bytes(values: &[Self], _: Seal) -> &[u8] {
        values.as_bytes()
    }

    #[inline]
    fn slice_bytes_mut(values: &mut [Self], _: Seal) -> &mut [u8] {
        values.as_mut_bytes()
    }
}

impl<T: FromBytes + IntoBytes + Immutable + 'static> Encoding for T {
    type Input = T;
    type Output = T;
    type Buffer = T;
    const LEN: Option<usize> = Some(size_of::<T>());

    #[inline]
    fn encode<'a>(_: &'static str, value: &'a T, _: Room, _: Seal) -> Result<Cow<'a, [u8]>, BadArgument> {
        Ok(Cow::Borrowed(value.as_bytes()))
    }

    #[inline]
    fn buffer(_: usize, _: Seal) -> T {
        T::new_zeroed()
    }

    #[inline]
    fn bytes_mut(buffer: &mut T, _: Seal) -> &mut [u8] {
        buffer.as_mut_bytes()
    }

    #[inline]
    fn decode(buffer: T, _: Seal) -> Decoded<T> {
        Decoded::Value(buffer)
    }

    // With fewer copies than by way of a buffer: a large value would not fit on the stack that often.
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
    type Buffer = Vec<u8>;
    const LEN: Option<usize> = None;

    fn encode<'a>(argument: &'static str, value: &'a [u8], room: Room, _: Seal) -> Result<Cow<'a, [u8]>, BadArgument> {
        match room {
            Room::Exact(len) if value.len() != len => {
                Err(BadArgument::new(argument, value.len(), len, Failure::BadSize))
            }
            Room::UpTo(len) if value.len() > len => {
                Err(BadArgument::new(argument, value.len(), format_args!("0 to {len}"), Failure::OutOfRange))
            }
            _ => Ok(Cow::Borrowed(value)),
        }
    }

    fn buffer(len: usize, _: Seal) -> Vec<u8> {
        vec![0; len]
    }

    fn bytes_mut(buffer: &mut Vec<u8>, _: Seal) -> &mut [u8] {
        buffer
    }

    fn decode(buffer: Vec<u8>, _: Seal) -> Decoded<Vec<u8>> {
        Decoded::Value(buffer)
    }
}

impl Encoding for str {
    type Input = str;
    type Output = String;
    type Buffer = Vec<u8>;
    const LEN: Option<usize> = None;

    fn encode<'a>(argument: &'static str, value: &'a str, room: Room, _: Seal) -> Result<Cow<'a, [u8]>, BadArgument> {
        let len = room.len();
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

    fn buffer(len: usize, _: Seal) -> Vec<u8> {
        vec![0; len]
    }

    fn bytes_mut(buffer: &mut Vec<u8>, _: Seal) -> &mut [u8] {
        buffer
    }

    fn decode(mut buffer: Vec<u8>, _: Seal) -> Decoded<String> {
        let text = buffer.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        buffer.truncate(text);
        String::from_utf8(buffer).map_or_else(|error| Decoded::Invalid(error.to_string()), Decoded::Value)
    }
}
