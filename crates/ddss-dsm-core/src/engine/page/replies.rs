//! Answers to the reads, swaps and messages of a fetch.

use super::fetch::{advance, finish_and_advance, needed};
use crate::engine::call::Failure;
use crate::engine::context::Context;
use crate::engine::fault_injection::planted;
use crate::engine::state::Stage;
use crate::message::Message;
use crate::model::{Ordering, PageId, Rank, VectorTime};

/// Returns true if a notice for the page was applied after the fetch began.
fn is_outdated(ctx: &Context<'_>, slot: u16) -> bool {
    let fetch = ctx.state.pages.fetches.get(slot);
    fetch.is_some_and(|fetch| fetch.is_outdated) && !planted!(ctx.state, NoticeDuringFetch)
}

/// Records that a rank has answered.
fn prove(ctx: &mut Context<'_>, slot: u16, from: Option<Rank>) {
    if let Some((rank, flush)) = ctx.state.pages.fetches.get(slot).and_then(|fetch| fetch.asked)
        && from.is_none_or(|from| from == rank)
    {
        ctx.state.pages.placements.prove(rank, flush);
    }
}

/// Continues behind a swap of a home word, which found `word`.
pub(crate) fn on_claimed(ctx: &mut Context<'_>, slot: u16, word: u64) -> Result<(), Failure> {
    let Some(fetch) = ctx.state.pages.fetches.get(slot).filter(|fetch| fetch.stage == Stage::Claiming) else {
        return Ok(());
    };
    prove(ctx, slot, None);
    let home = if word == 0 { Some(ctx.rank()) } else { Rank::of_home_word(word, ctx.state.config.ranks) };
    let default = ctx.state.pages.table.default_home(fetch.page);
    ctx.state.pages.table.set_home(fetch.page, home.ok_or(Failure::Protocol(default))?);
    advance(ctx, slot);
    Ok(())
}

/// Counts a read of a fetch; behind the last one the page is complete, or is read again.
pub(crate) fn on_read(ctx: &mut Context<'_>, slot: u16) {
    let Some(fetch) = ctx.state.pages.fetches.get(slot) else { return };
    let Stage::Reading(reads) = fetch.stage else { return };
    if reads > 1 {
        ctx.state.pages.fetches.entry(slot).stage = Stage::Reading(reads - 1);
        return;
    }
    prove(ctx, slot, None);
    if is_outdated(ctx, slot) {
        ctx.state.statistics.retries += 1;
        return advance(ctx, slot);
    }
    let is_complete = ctx.state.config.ordering == Ordering::Placed
        || planted!(ctx.state, UncheckedLine)
        || VectorTime::of_line(&ctx.memory.read_line(slot)).covers(&needed(ctx, fetch.page));
    if is_complete { finish_and_advance(ctx, slot) } else { retry(ctx, slot, fetch.page, fetch.retries + 1) }
}

/// Reads again after a pause. After many tries the home reports when the page has its stamps.
fn retry(ctx: &mut Context<'_>, slot: u16, page: PageId, retries: u32) {
    ctx.state.statistics.retries += 1;
    let tuning = ctx.state.config.tuning;
    let fetch = ctx.state.pages.fetches.entry(slot);
    fetch.retries = retries;
    if retries <= tuning.retries_max {
        let pause_us = tuning.backoff_us << (retries - 1).min(16);
        fetch.stage = Stage::BackingOff(ctx.now_us + pause_us.min(tuning.backoff_max_us));
        return;
    }
    fetch.stage = Stage::Awaiting;
    let home = ctx.state.pages.table.home(page).expect("a page is read from its home");
    let needed = needed(ctx, page);
    ctx.send(home, &Message::Await { page, slot, needed });
}

/// Returns an error unless a fetch of the page is at a stage in the slot, and its home may be `from`.
fn check(ctx: &Context<'_>, from: Rank, page: PageId, slot: u16, stage: Stage) -> Result<(), Failure> {
    let fetch = ctx.state.pages.fetches.get(slot).filter(|fetch| fetch.page == page && fetch.stage == stage);
    let home = ctx.state.pages.table.home(page);
    if fetch.is_some() && home.is_none_or(|home| home == from) { Ok(()) } else { Err(Failure::Protocol(from)) }
}

/// Reads a page that now has its stamps.
pub(crate) fn on_reached(ctx: &mut Context<'_>, from: Rank, page: PageId, slot: u16) -> Result<(), Failure> {
    check(ctx, from, page, slot, Stage::Awaiting)?;
    advance(ctx, slot);
    Ok(())
}

/// Takes a page that its home has written into the landing slot.
pub(crate) fn on_written(ctx: &mut Context<'_>, from: Rank, page: PageId, slot: u16) -> Result<(), Failure> {
    check(ctx, from, page, slot, Stage::Requested)?;
    // A forwarded request proves nothing about the home.
    prove(ctx, slot, Some(from));
    ctx.state.pages.table.set_home(page, from);
    if is_outdated(ctx, slot) {
        ctx.state.statistics.retries += 1;
        advance(ctx, slot);
    } else {
        ctx.memory.fill_from_landing(page, slot);
        finish_and_advance(ctx, slot);
    }
    Ok(())
}

/// Takes a page whose first asker was this rank.
pub(crate) fn on_appointed(ctx: &mut Context<'_>, from: Rank, page: PageId, slot: u16) -> Result<(), Failure> {
    check(ctx, from, page, slot, Stage::Requested)?;
    if ctx.state.pages.table.default_home(page) != from || ctx.state.pages.table.home(page).is_some() {
        return Err(Failure::Protocol(from));
    }
    ctx.state.pages.table.set_home(page, ctx.rank());
    advance(ctx, slot);
    Ok(())
}
