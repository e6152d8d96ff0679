//! Releases whose interval is closed.

use crate::engine::context::Context;
use crate::engine::fault_injection::planted;
use crate::engine::state::{PendingRelease, Release};

/// Lets a release wait until all writes of closed intervals are placed, as far as they have to be.
pub(super) fn push_release(ctx: &mut Context<'_>, release: Release) {
    let youngest = ctx.state.pages.placements.youngest();
    let placement = if planted!(ctx.state, UnplacedRelease) { None } else { youngest };
    let time = ctx.state.sync.intervals.time();
    ctx.state.sync.queue.releases.push_back(PendingRelease { placement, time, release });
}
