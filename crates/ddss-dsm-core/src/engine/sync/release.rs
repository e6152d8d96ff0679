//! Releases whose interval is closed.

use crate::engine::call::CallId;
use crate::engine::context::Context;
use crate::engine::fault_injection::planted;
use crate::engine::state::{PendingRelease, Release, Step};

/// Closes the interval, and completes the call when all writes are placed.
pub(crate) fn call_place(ctx: &mut Context<'_>, call: CallId) {
    ctx.state.sync.queue.steps.push_back(Step::Release(Release::Place(call), None));
}

/// Lets a release wait until all writes of closed intervals are placed, as far as they have to be.
pub(super) fn push_release(ctx: &mut Context<'_>, release: Release) {
    let youngest = ctx.state.pages.placements.youngest();
    let placement = if planted!(ctx.state, UnplacedRelease) { None } else { youngest };
    let time = ctx.state.sync.intervals.time();
    ctx.state.sync.queue.releases.push_back(PendingRelease { placement, time, release });
}
