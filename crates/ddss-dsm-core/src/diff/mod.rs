//! Changed bytes of a page: runs, and their packed form.

mod packed;
mod runs;

pub use packed::{PACKED_RUN_BYTES, PackedError, PackedRuns, pack};
pub use runs::{Run, find_runs};
