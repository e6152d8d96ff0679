//! Bytes of users, as text and as JSON.

use crate::output::terminal_text::is_printable_text;
use serde_json::{Map, Value};
use std::fmt::Write;

/// Adds bytes of a user to a JSON object: as text, or in hexadecimal digits if they are none.
pub(super) fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_hex"), hex(bytes).into()),
    };
}

/// Formats bytes of a user as one line.
pub(super) fn one_line(bytes: &[u8]) -> String {
    let is_line = is_printable_text(bytes) && !bytes.iter().any(|byte| matches!(byte, b'\n' | b'\t'));
    if is_line { String::from_utf8_lossy(bytes).into_owned() } else { hex(bytes) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
