//! Tables: many rows under one name, each with a version of its own. `table.rs` moves bytes, `typed_table.rs` values.
//! `shared_map.rs` has the calls of maps, whose keys and values lie in buckets: `map_buckets.rs` searches and changes
//! them, `bucket.rs` has their layout.

pub(crate) mod bucket;
mod map_buckets;
pub(crate) mod map_handle;
mod shared_map;
#[cfg(test)]
mod shared_map_tests;
pub(crate) mod table;
pub(crate) mod typed_table;
