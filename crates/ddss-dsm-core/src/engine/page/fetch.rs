//! Fetches pages for the application.

use crate::engine::action::{Action, Area, LocalPlace};
use crate::engine::call::{CallId, Failure};
use crate::engine::context::Context;
use crate::engine::fault_injection::planted;
use crate::engine::state::Stage;
use crate::engine::tag::Tag;
use crate::limits::LINE_BYTES;
use crate::message::Message;
use crate::model::{Access, Ordering, PageId, PageRange, Rank, VectorTime};

/// Makes pages accessible for a call.
pub(crate) fn touch(ctx: &mut Context<'_>, call: CallId, pages: PageRange, access: Access) -> Result<(), Failure> {
    let mut missing = Vec::new();
    for page in pages.iter() {
        match ctx.state.pages.table.access(page) {
            current if current >= access => {}
            Access::Read => make_writable(ctx, page)?,
            _ => missing.push(page),
        }
    }
    if missing.is_empty() {
        ctx.complete(call, Ok(0));
    }
    // The call waits for all of them before the first one can be complete.
    missing.iter().for_each(|page| ctx.state.calls.wait_for(call, *page, access));
    missing.into_iter().for_each(|page| start(ctx, page));
    Ok(())
}

/// Takes the twin of a page and lets the application write.
fn make_writable(ctx: &mut Context<'_>, page: PageId) -> Result<(), Failure> {
    if ctx.state.pages.table.access(page) == Access::Write {
        return Ok(());
    }
    if ctx.state.pages.twins.len() >= ctx.state.config.tuning.twins {
        return Err(Failure::Full("twins"));
    }
    let mut twin = ctx.state.pages.twins.take_buffer(ctx.state.config.page_bytes);
    ctx.memory.read_cache(page, &mut twin);
    ctx.state.pages.twins.insert(page, twin);
    ctx.set_access(page, Access::Write);
    Ok(())
}

/// Starts to fetch a page, unless it is in flight.
fn start(ctx: &mut Context<'_>, page: PageId) {
    if ctx.state.pages.table.start_fetch(page)
        && let Some(slot) = ctx.state.pages.fetches.start(page)
    {
        ctx.state.pages.table.set_slot(page, slot);
        advance(ctx, slot);
    }
}

/// Continues a fetch, and then those that wait for its slot.
pub(super) fn advance(ctx: &mut Context<'_>, slot: u16) {
    let mut slot = slot;
    while request(ctx, slot) {
        let Some(next) = finish(ctx, slot) else { return };
        slot = next;
    }
}

/// Ends a fetch whose page is in its cache frame, and continues with those that wait for its slot.
pub(super) fn finish_and_advance(ctx: &mut Context<'_>, slot: u16) {
    if let Some(next) = finish(ctx, slot) {
        advance(ctx, next);
    }
}

/// Asks for the page. Returns true if it is in its cache frame already.
fn request(ctx: &mut Context<'_>, slot: u16) -> bool {
    let fetch = ctx.state.pages.fetches.entry(slot);
    fetch.is_outdated = false;
    let page = fetch.page;
    if ctx.state.pages.table.has_unacknowledged(page) && !planted!(ctx.state, FetchBehindPacked) {
        // A read would not see what this rank has sent as a message.
        ctx.state.pages.fetches.entry(slot).stage = Stage::Blocked;
        return false;
    }
    let Some(home) = find_home(ctx, slot, page) else { return false };
    if home == ctx.rank() {
        return copy_own(ctx, slot, page);
    }
    let config = ctx.state.config;
    if config.protocol.reads_one_sided() {
        read(ctx, slot, page, home);
    } else {
        send_request(ctx, slot, page, home);
    }
    false
}

/// Returns the home of a page, or asks for it. In the protocols that request pages the default home answers with the page.
fn find_home(ctx: &mut Context<'_>, slot: u16, page: PageId) -> Option<Rank> {
    if let Some(home) = ctx.state.pages.table.home(page) {
        return Some(home);
    }
    let default = ctx.state.pages.table.default_home(page);
    let word = ctx.rank().home_word();
    if default == ctx.rank() {
        let found = if planted!(ctx.state, ClaimWithoutWord) { 0 } else { ctx.memory.claim_home(page, word) };
        let home = if found == 0 { Some(default) } else { Rank::of_home_word(found, ctx.state.config.ranks) };
        match home {
            Some(home) => ctx.state.pages.table.set_home(page, home),
            // Every peer that reads this word reports the same.
            None => ctx.state.violation = Some(Failure::Protocol(default)),
        }
        return home;
    }
    if ctx.state.config.protocol.reads_one_sided() {
        ctx.state.statistics.swaps += 1;
        ask(ctx, slot, default, Stage::Claiming);
        let offset = ctx.state.pages.table.word_offset(page);
        ctx.out.push(Action::Swap { at: default, tag: Tag::Claim(slot), offset, word });
    } else {
        send_request(ctx, slot, page, default);
    }
    None
}

/// Records that a rank is asked: its answer proves that all earlier writes to it are placed.
fn ask(ctx: &mut Context<'_>, slot: u16, rank: Rank, stage: Stage) {
    let flush = ctx.state.pages.placements.last_flush();
    let fetch = ctx.state.pages.fetches.entry(slot);
    (fetch.stage, fetch.asked) = (stage, Some((rank, flush)));
}

/// Copies a page of this home, if it has the stamps that it needs.
fn copy_own(ctx: &mut Context<'_>, slot: u16, page: PageId) -> bool {
    let needed = needed(ctx, page);
    let stamps = VectorTime::of_line(&ctx.memory.read_stamps(page));
    if !stamps.covers(&needed) && !planted!(ctx.state, OwnPageTooEarly) {
        ctx.state.pages.fetches.entry(slot).stage = Stage::AwaitingOwn;
        return false;
    }
    ctx.memory.fill_from_home(page);
    ctx.state.statistics.own_pages += 1;
    true
}

/// Returns the stamps that a copy of a page must have: none if releases wait for placement.
pub(super) fn needed(ctx: &Context<'_>, page: PageId) -> VectorTime {
    match ctx.state.config.ordering {
        Ordering::Stamped => ctx.state.pages.table.needed(page),
        Ordering::Placed => VectorTime::default(),
    }
}

/// Reads the version line, then the page: a page that is read behind its line has at least the writes that the line shows.
fn read(ctx: &mut Context<'_>, slot: u16, page: PageId, from: Rank) {
    let bytes = ctx.state.config.page_bytes;
    let (tag, into) = (Tag::Page(slot), LocalPlace::Cache(page));
    let page_read = Action::Read { from, tag, area: Area::HomeFrames, offset: page.offset(bytes), bytes, into };
    if ctx.state.config.ordering == Ordering::Placed {
        ask(ctx, slot, from, Stage::Reading(1));
        ctx.out.push(page_read);
        return;
    }
    let line_bytes = LINE_BYTES as u32;
    let (tag, into, offset) = (Tag::Line(slot), LocalPlace::Line(slot), page.offset(line_bytes));
    let line_read = Action::Read { from, tag, area: Area::Lines, offset, bytes: line_bytes, into };
    ask(ctx, slot, from, Stage::Reading(2));
    let reads = if planted!(ctx.state, PageBeforeLine) { [page_read, line_read] } else { [line_read, page_read] };
    reads.into_iter().for_each(|read| ctx.out.push(read));
}

/// Asks the home or the default home for a page.
fn send_request(ctx: &mut Context<'_>, slot: u16, page: PageId, to: Rank) {
    ask(ctx, slot, to, Stage::Requested);
    let needed = needed(ctx, page);
    ctx.send(to, &Message::PageRequest { page, slot, needed });
}

/// Opens a page that is in its cache frame. Returns the slot of the next page, which waited for this one.
fn finish(ctx: &mut Context<'_>, slot: u16) -> Option<u16> {
    let page = ctx.state.pages.fetches.entry(slot).page;
    ctx.state.pages.table.finish_fetch(page);
    if ctx.state.pages.table.home(page) != Some(ctx.rank()) {
        ctx.state.statistics.fetches += 1;
        ctx.state.pages.count_fetch(page);
    }
    ctx.set_access(page, Access::Read);
    for (call, access) in ctx.state.calls.take_waiting(page) {
        let opened = if access == Access::Write { make_writable(ctx, page) } else { Ok(()) };
        if let Err(failure) = opened {
            ctx.complete(call, Err(failure));
        } else if ctx.state.calls.count_page(call) {
            ctx.complete(call, Ok(0));
        }
    }
    let next = ctx.state.pages.fetches.finish(slot)?;
    let slot = ctx.state.pages.fetches.start(next)?;
    ctx.state.pages.table.set_slot(next, slot);
    Some(slot)
}

/// Repeats the reads whose pause is over.
pub(crate) fn resume_due(ctx: &mut Context<'_>) {
    for slot in ctx.state.pages.fetches.due(ctx.now_us) {
        advance(ctx, slot);
    }
}

/// Continues the fetch of a page whose diffs are acknowledged.
pub(crate) fn resume_unblocked(ctx: &mut Context<'_>, page: PageId) {
    resume(ctx, page, Stage::Blocked);
}

/// Continues the fetch of a page if it is at a stage.
pub(super) fn resume(ctx: &mut Context<'_>, page: PageId, stage: Stage) {
    let slot = ctx.state.pages.table.slot(page);
    let waiting = slot.filter(|slot| ctx.state.pages.fetches.get(*slot).is_some_and(|fetch| fetch.stage == stage));
    if let Some(slot) = waiting {
        advance(ctx, slot);
    }
}
