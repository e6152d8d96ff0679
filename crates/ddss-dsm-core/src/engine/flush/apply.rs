//! Diffs and stamps of peers, at the home; acknowledgements, at the writer.

use super::placement::send_diffs;
use crate::diff::PackedRuns;
use crate::engine::call::Failure;
use crate::engine::context::Context;
use crate::message::Message;
use crate::model::{PageId, PageRange, Rank, VectorTime};

/// Fails if this rank knows that another one is the home. A peer may know the home before the home itself does: the swap of
/// the home word is complete before its result is here.
fn check_home(ctx: &Context<'_>, from: Rank, page: PageId) -> Result<(), Failure> {
    let is_home = ctx.state.pages.table.home(page).is_none_or(|home| home == ctx.rank());
    if is_home { Ok(()) } else { Err(Failure::Protocol(from)) }
}

/// Writes a stamp; stamps of a rank only grow.
fn write_stamp(ctx: &mut Context<'_>, from: Rank, page: PageId, interval: u32) -> Result<(), Failure> {
    check_home(ctx, from, page)?;
    if VectorTime::of_line(&ctx.memory.read_stamps(page)).get(from) >= interval {
        return Err(Failure::Protocol(from));
    }
    ctx.memory.write_stamp(page, from, interval);
    Ok(())
}

/// Records that the runs of an interval are written for some pages.
pub(crate) fn apply_stamp(
    ctx: &mut Context<'_>,
    from: Rank,
    interval: u32,
    pages: &[PageRange],
) -> Result<(), Failure> {
    for page in pages.iter().flat_map(|range| range.iter()) {
        write_stamp(ctx, from, page, interval)?;
    }
    Ok(())
}

/// Applies a diff message and acknowledges it.
pub(crate) fn apply_diff(
    ctx: &mut Context<'_>,
    from: Rank,
    page: PageId,
    interval: u32,
    sequence: u64,
    runs: PackedRuns<'_>,
) -> Result<(), Failure> {
    check_home(ctx, from, page)?;
    for (offset, run) in runs.iter() {
        ctx.memory.write_home(page, offset, run);
        ctx.state.statistics.handler_bytes += run.len() as u64;
    }
    if interval > 0 {
        write_stamp(ctx, from, page, interval)?;
    }
    ctx.send(from, &Message::DiffAck { sequence });
    Ok(())
}

/// Counts an acknowledgement. Returns the page of the diff.
pub(crate) fn acknowledge(ctx: &mut Context<'_>, from: Rank, sequence: u64) -> Result<PageId, Failure> {
    let acknowledged = ctx.state.pages.diffs.acknowledge(from, sequence);
    let (page, flush) = acknowledged.ok_or(Failure::Protocol(from))?;
    ctx.state.pages.placements.prove(from, flush);
    ctx.state.pages.table.remove_unacknowledged(page);
    send_diffs(ctx);
    Ok(page)
}
