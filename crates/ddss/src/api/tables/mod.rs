//! Tables: many rows under one name, each with a version of its own. `table.rs` is the handle, `row.rs` has the
//! calls of a row. `map_handle.rs` and `map.rs` are maps, `byte_map.rs` has their bytes. Keys and values lie in
//! buckets: `map_changes.rs` lets the home change one of them, `map_buckets.rs` searches and changes several, `map_scan.rs`
//! goes through all of them, and `map_watch.rs` watches them. `map_batch.rs` ends calls of batches.

use super::{Client, only_aio, twin};

mod byte_map;
mod map;
mod map_batch;
mod map_buckets;
mod map_changes;
pub(super) mod map_handle;
pub(super) mod map_scan;
pub(super) mod map_watch;
pub(super) mod row;
pub(super) mod table;
