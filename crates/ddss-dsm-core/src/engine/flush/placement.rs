//! Waits until the writes of closed intervals are in the memory of their homes.

use crate::engine::action::{Action, Area, LocalPlace};
use crate::engine::context::Context;
use crate::engine::fault_injection::planted;
use crate::engine::tag::Tag;

/// Sends queued diffs as far as the window allows.
pub(crate) fn send_diffs(ctx: &mut Context<'_>) {
    let last_flush = ctx.state.pages.placements.last_flush();
    while let Some(diff) = ctx.state.pages.diffs.pop(last_flush) {
        ctx.send_encoded(diff.to, diff.message);
    }
}

/// Starts a wait for all writes up to an interval: posts a read behind the writes to each home.
pub(crate) fn start_placement(ctx: &mut Context<'_>, interval: u32) {
    let diffs_below = ctx.state.pages.diffs.next_sequence();
    let (id, homes) = ctx.state.pages.placements.start(interval, diffs_below);
    for from in homes.iter() {
        ctx.state.statistics.fences += 1;
        let tag = Tag::Fence(id, from);
        ctx.out.push(Action::Read { from, tag, area: Area::Lines, offset: 0, bytes: 8, into: LocalPlace::Discard });
    }
}

/// Returns true if the record of the open interval overwrites none whose writes may not be placed: a reader of an
/// overwritten record takes them as placed. Otherwise starts a wait for them.
pub(crate) fn has_room(ctx: &mut Context<'_>) -> bool {
    let has_room = !ctx.state.may_close() || ctx.state.sync.intervals.has_room();
    if has_room || planted!(ctx.state, OverwrittenUnplaced) {
        return true;
    }
    if ctx.state.pages.placements.youngest().is_none() {
        let last = ctx.state.sync.intervals.open() - 1;
        start_placement(ctx, last);
        // Nothing may be in flight.
        finish_placements(ctx);
    }
    ctx.state.sync.intervals.has_room()
}

/// Ends the waits that are over. Returns true if one was.
pub(crate) fn finish_placements(ctx: &mut Context<'_>) -> bool {
    let mut any = false;
    while let Some(interval) = ctx.state.pages.placements.finish_first(ctx.state.pages.diffs.first_open()) {
        ctx.state.sync.intervals.set_placed(interval);
        any = true;
    }
    any
}
