//! Values of more than one request. `transfers.rs` moves them in parts, `upload_guard.rs` frees the parts of a put that
//! failed.

use super::{only_aio, only_blocking, twin};

mod transfers;
mod upload_guard;
