//! Values of more than one request. `transfers.rs` moves them in parts, `cursor.rs` serves code that streams.

pub(crate) mod cursor;
pub(crate) mod transfers;
mod upload_guard;
