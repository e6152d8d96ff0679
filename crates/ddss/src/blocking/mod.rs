//! Blocking calls: the files of `api` without their `async` and `.await`, and what a thread needs beside them.

mod cursor;
mod held_lock;
mod list;
mod watch;

#[path = "../api/mod.rs"]
mod api;

use crate::client::Client;
use ddss_twin::{keep as only_blocking, skip as only_aio, strip as twin};

pub use api::*;
pub use cursor::{Reader, Writer};
pub(crate) use held_lock::HeldLock;
pub use list::List;
pub(crate) use list::{list_map, list_segments};
pub use watch::Watch;
pub(crate) use watch::{watch_map, watch_rows, watch_versions};
