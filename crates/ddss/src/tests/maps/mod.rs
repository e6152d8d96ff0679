//! Tests of maps.

mod shared_map;
mod updates;
