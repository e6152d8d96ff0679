//! The end of a space for a call that has passed its deadline.

use crate::engine::call::Failure;
use crate::engine::context::Context;
use crate::message::Message;
use crate::model::{Rank, RankSet};

/// Asks rank 0 to end the space: it knows which ranks are missing. Rank 0, and a rank that asks again, end it themselves.
pub(crate) fn call_give_up(ctx: &mut Context<'_>) {
    let rank = ctx.rank();
    if rank == Rank::ZERO || std::mem::replace(&mut ctx.state.sync.has_given_up, true) {
        ctx.state.violation = Some(Failure::GaveUp { rank, missing: missing_at(ctx, rank) });
    } else {
        ctx.send(Rank::ZERO, &Message::GaveUp { rank, missing: RankSet::default() });
    }
}

/// Returns the ranks that have not come to the barrier of a rank. Only rank 0 knows of any.
pub(crate) fn missing_at(ctx: &Context<'_>, rank: Rank) -> RankSet {
    let mut missing = RankSet::default();
    let barrier = ctx.state.sync.rendezvous.barriers.values().find(|barrier| barrier.arrived.contains(rank));
    if let Some(barrier) = barrier {
        for rank in ctx.state.config.all_ranks().filter(|rank| !barrier.arrived.contains(*rank)) {
            missing.insert(rank);
        }
    }
    missing
}
