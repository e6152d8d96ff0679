//! A number of bytes in a setting: `4294967296`, or `4G`.

use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A number of bytes.
///
/// ```
/// use ddss_admin::ByteSize;
/// assert_eq!("4G".parse(), Ok(ByteSize(4 << 30)));
/// assert_eq!("1536k".parse(), Ok(ByteSize(1536 << 10)));
/// assert!("4Q".parse::<ByteSize>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ByteSize(pub u64);

impl ByteSize {
    const EXPECTED: &str = "a number of bytes, or one with K, M, G or T";
}

/// Parses a number with an optional suffix for KiB, MiB, GiB or TiB.
pub(crate) fn parse_amount(text: &str) -> Option<u64> {
    let power = match text.chars().last()?.to_ascii_uppercase() {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => return text.parse().ok(),
    };
    text[..text.len() - 1].parse::<u64>().ok()?.checked_mul(1 << power)
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_amount(text).map(Self).ok_or_else(|| format!("{text:?} is no size: give {}", Self::EXPECTED))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Accepts a number or a text.
        struct Either;

        impl Visitor<'_> for Either {
            type Value = ByteSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(ByteSize::EXPECTED)
            }

            fn visit_u64<E: Error>(self, bytes: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(bytes))
            }

            fn visit_i64<E: Error>(self, bytes: i64) -> Result<ByteSize, E> {
                let negative = |_| E::invalid_value(Unexpected::Signed(bytes), &self);
                u64::try_from(bytes).map(ByteSize).map_err(negative)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ByteSize, E> {
                parse_amount(text).map(ByteSize).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_any(Either)
    }
}
