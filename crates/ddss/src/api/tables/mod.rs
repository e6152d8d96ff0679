//! Tables: many rows under one name, each with a version of its own. `table.rs` moves bytes, `typed_table.rs` values,
//! `row_lock.rs` locks rows. `byte_map.rs` has the calls of maps, `shared_map.rs` with types. Keys and values lie in buckets: `map_changes.rs` lets
//! the home change one of them, `map_buckets.rs` searches and changes several, `map_scan.rs` goes through all of
//! them, `map_watch.rs` watches them, `bucket.rs` has a copy of one, and `local_bucket.rs` reads one in place.

pub(crate) mod bucket;
mod byte_map;
mod local_bucket;
mod map_buckets;
mod map_changes;
pub(crate) mod map_handle;
mod map_scan;
#[cfg(test)]
mod map_tests;
pub(crate) mod map_watch;
pub(crate) mod row_lock;
mod shared_map;
pub(crate) mod table;
pub(crate) mod typed_table;
