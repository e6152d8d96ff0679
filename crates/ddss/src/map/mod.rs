//! Maps without their calls: `bucket.rs` is a copy of a bucket, `local_bucket.rs` one that is read in place, `entry.rs` the
//! layout and the ends of changes, `shape.rs` what a map's description says. `scan.rs` goes through all buckets, and
//! `known_entries.rs` belongs to a watch.

pub(crate) mod bucket;
pub(crate) mod entry;
pub(crate) mod known_entries;
pub(crate) mod local_bucket;
pub(crate) mod scan;
pub(crate) mod shape;
