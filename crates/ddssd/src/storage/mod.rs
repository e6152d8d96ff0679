//! Segments in memory and in files.
//!
//! `memory.rs` holds the areas of a shard, `file_segments.rs` those on disk; `segment_folder.rs` knows their files.
//! `registry.rs` is the persistent table of segments, `undo_log.rs` makes a commit atomic across a crash, and
//! `large_undo.rs` a commit in slices; `history.rs` stores old versions. `recovery.rs` restores all of it at the start; `offline.rs` reads it without a
//! daemon. `state_dir.rs` locks the folders, `area_access.rs` says which users may map an area, and
//! `registered_areas.rs` registers areas with the fabric.

pub(crate) mod area_access;
pub(crate) mod file_segments;
pub(crate) mod history;
pub(crate) mod large_undo;
pub(crate) mod memory;
pub(crate) mod pool_error;
pub(crate) mod recovery;
pub(crate) mod registered_areas;
pub(crate) mod segment_folder;
pub(crate) mod state_dir;
pub(crate) mod undo_log;
