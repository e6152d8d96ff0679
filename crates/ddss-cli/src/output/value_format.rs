//! Bytes as a person writes them: numbers, text, JSON.

use crate::error::CommandError;
use serde_json::Value;

/// What bytes are taken for.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    U8,
    U16,
    U32,
    U64,
    I64,
    F32,
    F64,
    Utf8,
    Json,
    Hex,
}

/// Little-endian numbers of `N` bytes each.
fn numbers<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> Value) -> Result<Vec<Value>, CommandError> {
    let chunks = bytes.chunks_exact(N);
    if !chunks.remainder().is_empty() {
        return Err(CommandError::Kind(format!("{} bytes are no whole number of {N} bytes each", bytes.len())));
    }
    Ok(chunks.map(|chunk| value(std::array::from_fn(|i| chunk[i]))).collect())
}

impl Kind {
    /// Reads bytes: one value, or one for each number.
    pub(crate) fn read(self, bytes: &[u8]) -> Result<Value, CommandError> {
        let list = match self {
            Kind::U8 => numbers(bytes, |b| u8::from_le_bytes(b).into()),
            Kind::U16 => numbers(bytes, |b| u16::from_le_bytes(b).into()),
            Kind::U32 => numbers(bytes, |b| u32::from_le_bytes(b).into()),
            Kind::U64 => numbers(bytes, |b| u64::from_le_bytes(b).into()),
            Kind::I64 => numbers(bytes, |b| i64::from_le_bytes(b).into()),
            Kind::F32 => numbers(bytes, |b| f64::from(f32::from_le_bytes(b)).into()),
            Kind::F64 => numbers(bytes, |b| f64::from_le_bytes(b).into()),
            Kind::Utf8 => return Ok(text(bytes)?.into()),
            Kind::Json => {
                let parsed = serde_json::from_str(text(bytes)?);
                return parsed.map_err(|error| CommandError::Kind(format!("the bytes are no JSON: {error}")));
            }
            Kind::Hex => return Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()),
        };
        list.map(Value::Array)
    }

    /// The bytes of what a person wrote: numbers with spaces or commas between them.
    pub(crate) fn write(self, words: &str) -> Result<Vec<u8>, CommandError> {
        let wrong = |word: &str| CommandError::Kind(format!("{word:?} is no {self:?}").to_lowercase());
        let mut bytes = Vec::new();
        macro_rules! each {
            ($kind:ty) => {
                for word in words.split([' ', ',', '\n', '\t']).filter(|word| !word.is_empty()) {
                    bytes.extend(word.parse::<$kind>().map_err(|_| wrong(word))?.to_le_bytes());
                }
            };
        }
        match self {
            Kind::U8 => each!(u8),
            Kind::U16 => each!(u16),
            Kind::U32 => each!(u32),
            Kind::U64 => each!(u64),
            Kind::I64 => each!(i64),
            Kind::F32 => each!(f32),
            Kind::F64 => each!(f64),
            Kind::Utf8 => bytes.extend_from_slice(words.as_bytes()),
            Kind::Json => {
                let value: Value = serde_json::from_str(words)
                    .map_err(|error| CommandError::Kind(format!("that is no JSON: {error}")))?;
                bytes.extend_from_slice(value.to_string().as_bytes());
            }
            Kind::Hex => {
                let digits: String = words.chars().filter(|letter| !letter.is_whitespace()).collect();
                if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
                    return Err(wrong(words));
                }
                for at in (0..digits.len()).step_by(2) {
                    bytes.push(u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong(words))?);
                }
            }
        }
        Ok(bytes)
    }

    /// As a line for a person.
    pub(crate) fn in_words(self, bytes: &[u8]) -> Result<String, CommandError> {
        Ok(match self.read(bytes)? {
            Value::Array(values) if self != Kind::Json => {
                values.iter().map(Value::to_string).collect::<Vec<_>>().join(" ")
            }
            Value::String(text) if self != Kind::Json => text,
            value => value.to_string(),
        })
    }
}

/// Text up to its end: what follows the last character is filled with zeroes.
fn text(bytes: &[u8]) -> Result<&str, CommandError> {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    std::str::from_utf8(&bytes[..end]).map_err(|error| CommandError::Kind(format!("the bytes are no text: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_nonsense_is_refused() {
        // If this broke, a number put by hand would be another one.
        for (kind, words) in [
            (Kind::U64, "1 18446744073709551615"),
            (Kind::F32, "0.5 -2.0"),
            (Kind::I64, "-7"),
            (Kind::Utf8, "grüße"),
            (Kind::Hex, "00ff"),
        ] {
            let bytes = kind.write(words).unwrap();
            assert_eq!(kind.in_words(&bytes).unwrap(), words);
        }
        assert_eq!(Kind::Json.in_words(b"{\"a\": 1}\0\0").unwrap(), "{\"a\":1}");
        for (kind, words) in
            [(Kind::U8, "256"), (Kind::F64, "x"), (Kind::Json, "{"), (Kind::Hex, "abc"), (Kind::Hex, "zz")]
        {
            assert!(kind.write(words).is_err(), "{words}");
        }
        assert!(Kind::U64.read(&[0; 9]).is_err() && Kind::Utf8.read(&[0xff]).is_err());
    }
}
