//! Ends of intervals: diffs to the homes, their placement, and diffs of peers.

mod apply;
mod close;
mod placement;

pub(crate) use apply::{acknowledge, apply_diff, apply_stamp};
pub(crate) use close::close_interval;
pub(crate) use placement::{finish_placements, has_room, start_placement};
