//! Values of more than one request. `transfers.rs` moves them in parts, `cursor.rs` and `async_cursor.rs` serve code that
//! streams. `read_window.rs` decides what a reader reads.

pub(crate) mod async_cursor;
pub(crate) mod cursor;
mod read_window;
pub(crate) mod transfers;
mod upload_guard;
