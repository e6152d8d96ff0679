//! Values of more than one request. `transfers.rs` moves them in parts, `cursor.rs` and `async_cursor.rs` serve code that
//! streams.

pub(crate) mod async_cursor;
pub(crate) mod cursor;
pub(crate) mod transfers;
mod upload_guard;
