//! Conversion between bytes and numbers, text or JSON (`--as`).

use crate::error::CommandError;
use serde_json::Value;

/// Interpretation of the bytes of a segment.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ValueFormat {
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

/// Decodes little-endian numbers of `N` bytes each.
fn numbers<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> Value) -> Result<Vec<Value>, CommandError> {
    let chunks = bytes.chunks_exact(N);
    if !chunks.remainder().is_empty() {
        return Err(CommandError::InvalidInput(format!("cannot decode {} bytes: not a multiple of {N}", bytes.len())));
    }
    Ok(chunks.map(|chunk| value(std::array::from_fn(|i| chunk[i]))).collect())
}

impl ValueFormat {
    /// Decodes bytes into one value, or into a list of numbers.
    pub(crate) fn decode(self, bytes: &[u8]) -> Result<Value, CommandError> {
        let list = match self {
            ValueFormat::U8 => numbers(bytes, |b| u8::from_le_bytes(b).into()),
            ValueFormat::U16 => numbers(bytes, |b| u16::from_le_bytes(b).into()),
            ValueFormat::U32 => numbers(bytes, |b| u32::from_le_bytes(b).into()),
            ValueFormat::U64 => numbers(bytes, |b| u64::from_le_bytes(b).into()),
            ValueFormat::I64 => numbers(bytes, |b| i64::from_le_bytes(b).into()),
            ValueFormat::F32 => numbers(bytes, |b| f64::from(f32::from_le_bytes(b)).into()),
            ValueFormat::F64 => numbers(bytes, |b| f64::from_le_bytes(b).into()),
            ValueFormat::Utf8 => return Ok(text(bytes)?.into()),
            ValueFormat::Json => {
                let parsed = serde_json::from_str(text(bytes)?);
                return parsed
                    .map_err(|error| CommandError::InvalidInput(format!("cannot decode the bytes as JSON: {error}")));
            }
            ValueFormat::Hex => return Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()),
        };
        list.map(Value::Array)
    }

    /// Encodes text into bytes; spaces or commas separate numbers.
    pub(crate) fn encode(self, words: &str) -> Result<Vec<u8>, CommandError> {
        let wrong = |word: &str| CommandError::InvalidInput(format!("{word:?} is not a valid {self:?}").to_lowercase());
        let mut bytes = Vec::new();
        macro_rules! each {
            ($kind:ty) => {
                for word in words.split([' ', ',', '\n', '\t']).filter(|word| !word.is_empty()) {
                    bytes.extend(word.parse::<$kind>().map_err(|_| wrong(word))?.to_le_bytes());
                }
            };
        }
        match self {
            ValueFormat::U8 => each!(u8),
            ValueFormat::U16 => each!(u16),
            ValueFormat::U32 => each!(u32),
            ValueFormat::U64 => each!(u64),
            ValueFormat::I64 => each!(i64),
            ValueFormat::F32 => each!(f32),
            ValueFormat::F64 => each!(f64),
            ValueFormat::Utf8 => bytes.extend_from_slice(words.as_bytes()),
            ValueFormat::Json => {
                let value: Value = serde_json::from_str(words)
                    .map_err(|error| CommandError::InvalidInput(format!("cannot parse the input as JSON: {error}")))?;
                bytes.extend_from_slice(value.to_string().as_bytes());
            }
            ValueFormat::Hex => {
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

    /// Formats bytes as one line.
    pub(crate) fn format(self, bytes: &[u8]) -> Result<String, CommandError> {
        Ok(match self.decode(bytes)? {
            Value::Array(values) if self != ValueFormat::Json => {
                values.iter().map(Value::to_string).collect::<Vec<_>>().join(" ")
            }
            Value::String(text) if self != ValueFormat::Json => text,
            value => value.to_string(),
        })
    }
}

/// Decodes text without the zeroes that follow it.
fn text(bytes: &[u8]) -> Result<&str, CommandError> {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    std::str::from_utf8(&bytes[..end])
        .map_err(|error| CommandError::InvalidInput(format!("cannot decode the bytes as UTF-8: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip_and_invalid_input_is_refused() {
        for (kind, words) in [
            (ValueFormat::U64, "1 18446744073709551615"),
            (ValueFormat::F32, "0.5 -2.0"),
            (ValueFormat::I64, "-7"),
            (ValueFormat::Utf8, "grüße"),
            (ValueFormat::Hex, "00ff"),
        ] {
            let bytes = kind.encode(words).unwrap();
            assert_eq!(kind.format(&bytes).unwrap(), words);
        }
        assert_eq!(ValueFormat::Json.format(b"{\"a\": 1}\0\0").unwrap(), "{\"a\":1}");
        for (kind, words) in [
            (ValueFormat::U8, "256"),
            (ValueFormat::F64, "x"),
            (ValueFormat::Json, "{"),
            (ValueFormat::Hex, "abc"),
            (ValueFormat::Hex, "zz"),
        ] {
            assert!(kind.encode(words).is_err(), "{words}");
        }
        assert!(ValueFormat::U64.decode(&[0; 9]).is_err() && ValueFormat::Utf8.decode(&[0xff]).is_err());
    }
}
