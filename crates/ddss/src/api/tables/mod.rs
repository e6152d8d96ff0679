//! Tables: many rows under one name, each with a version of its own. `table.rs` is the handle, `typed_table.rs` holds values,
//! `row.rs` has the calls of a row. `byte_map.rs` has the calls of maps, `shared_map.rs` with types. Keys and values lie in
//! buckets: `map_changes.rs` lets the home change one of them, `map_buckets.rs` searches and changes several, `map_scan.rs`
//! goes through all of them, and `map_watch.rs` watches them.

use super::{Client, twin};

mod byte_map;
mod map_buckets;
mod map_changes;
pub(super) mod map_handle;
mod map_scan;
pub(super) mod map_watch;
pub(super) mod row;
mod shared_map;
pub(super) mod table;
pub(super) mod typed_table;
