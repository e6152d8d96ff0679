//! Serves pages of this home, and requests to this default home.

use super::fetch::resume;
use crate::engine::action::Action;
use crate::engine::call::Failure;
use crate::engine::context::Context;
use crate::engine::state::{ServedRequest, Stage};
use crate::message::Message;
use crate::model::{PageId, Rank, VectorTime};

/// Serves a request for a page. A default home appoints the first asker, and forwards the requests of the others.
pub(crate) fn forward_or_serve(ctx: &mut Context<'_>, page: PageId, request: ServedRequest) -> Result<(), Failure> {
    let ServedRequest { requester, slot, needed, .. } = request;
    if slot >= ctx.state.config.tuning.fetches {
        return Err(Failure::Protocol(requester));
    }
    let home = match ctx.state.pages.table.home(page) {
        Some(home) => home,
        None if ctx.state.pages.table.default_home(page) == ctx.rank() => {
            let found = ctx.memory.claim_home(page, requester.home_word());
            if found == 0 {
                ctx.state.pages.table.set_home(page, requester);
                ctx.send(requester, &Message::Appointed { page, slot });
                return Ok(());
            }
            let home = Rank::of_home_word(found, ctx.state.config.ranks).ok_or(Failure::Protocol(ctx.rank()))?;
            ctx.state.pages.table.set_home(page, home);
            home
        }
        None => return Err(Failure::Protocol(requester)),
    };
    if home == ctx.rank() {
        return serve(ctx, requester, page, request);
    }
    if home == requester || ctx.state.pages.table.default_home(page) != ctx.rank() {
        return Err(Failure::Protocol(requester));
    }
    ctx.state.statistics.forwards += 1;
    ctx.send(home, &Message::PageForward { page, requester, slot, needed });
    Ok(())
}

/// Serves a request for a page of this home, when the page has its stamps. `from` sent the request.
pub(crate) fn serve(ctx: &mut Context<'_>, from: Rank, page: PageId, request: ServedRequest) -> Result<(), Failure> {
    let is_home = ctx.state.pages.table.home(page).is_none_or(|home| home == ctx.rank());
    if !is_home || request.requester == ctx.rank() || request.slot >= ctx.state.config.tuning.fetches {
        return Err(Failure::Protocol(from));
    }
    if VectorTime::of_line(&ctx.memory.read_stamps(page)).covers(&request.needed) {
        answer(ctx, page, request);
    } else if !ctx.state.pages.served.push(page, request) {
        return Err(Failure::Protocol(from));
    }
    Ok(())
}

/// Sends the page, or the report that it has its stamps.
fn answer(ctx: &mut Context<'_>, page: PageId, request: ServedRequest) {
    let ServedRequest { requester: to, slot, sends_page, .. } = request;
    if sends_page {
        ctx.state.statistics.handler_bytes += u64::from(ctx.state.config.page_bytes);
        ctx.out.push(Action::WritePage { to, page, slot });
        ctx.send(to, &Message::PageWritten { page, slot });
    } else {
        ctx.send(to, &Message::Reached { page, slot });
    }
}

/// Continues everything that waits for stamps of a page of this home.
pub(crate) fn resume_stamped(ctx: &mut Context<'_>, page: PageId) {
    let stamps = VectorTime::of_line(&ctx.memory.read_stamps(page));
    for request in ctx.state.pages.served.take_ready(page, &stamps) {
        answer(ctx, page, request);
    }
    resume(ctx, page, Stage::AwaitingOwn);
}
