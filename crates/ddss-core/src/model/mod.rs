//! Segments as users see them: coherence models, specifications, names, permissions, headers and records. `address.rs` and
//! `ranges.rs` define places in memory; `segment.rs`, `table.rs`, `bucket.rs` and `record.rs` define layouts in memory
//! and on disk; `spec.rs` defines the request for a new segment.

pub(crate) mod address;
pub(crate) mod bucket;
pub(crate) mod coherence;
pub(crate) mod map;
pub(crate) mod ranges;
pub(crate) mod record;
pub(crate) mod segment;
pub(crate) mod spec;
pub(crate) mod table;
