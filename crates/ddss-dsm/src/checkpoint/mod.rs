//! Checkpoints: all pages of a space at a barrier, in segments of DDSS.
//!
//! Each rank writes its home pages into a segment of its own. Two segments of each rank alternate, so that the last complete
//! checkpoint is never overwritten. Once all ranks have written, rank 0 names the checkpoint in the *root*: one atomic put. A rank
//! that dies in between leaves the root as it was.

mod format;
mod state;
mod store;

pub(crate) use format::{CompleteCheckpoint, Root};
pub(crate) use state::Checkpoints;
pub(crate) use store::{Part, Reason};
