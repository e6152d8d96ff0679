//! Tables: many rows under one name, each with a version of its own. `table.rs` moves bytes, `typed_table.rs` values.
//! `shared_map.rs` has the calls of maps, whose keys and values lie in buckets: `map_changes.rs` lets
//! the home change one of them, `map_buckets.rs` searches and changes several, `bucket.rs` has a copy of one, and
//! `local_bucket.rs` reads one in place.

pub(crate) mod bucket;
mod local_bucket;
mod map_buckets;
mod map_changes;
pub(crate) mod map_handle;
mod shared_map;
#[cfg(test)]
mod shared_map_tests;
pub(crate) mod table;
pub(crate) mod typed_table;
