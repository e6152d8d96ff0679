//! Reads in place: `local_read.rs` reads a segment in the memory that its home shares, of which `mapped_areas.rs` keeps
//! track.

pub(crate) mod local_read;
pub(crate) mod mapped_areas;
