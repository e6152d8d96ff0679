//! Checks of received vector times, and managers of indices.

use crate::engine::call::Failure;
use crate::engine::context::Context;
use crate::limits::INDEX_END;
use crate::model::{Rank, VectorTime};

/// Fails if a peer claims intervals that this rank has not closed.
pub(super) fn check_time(ctx: &Context<'_>, from: Rank, time: &VectorTime) -> Result<(), Failure> {
    let is_possible = time.get(ctx.rank()) < ctx.state.sync.intervals.open();
    if is_possible { Ok(()) } else { Err(Failure::Protocol(from)) }
}

/// Fails if an index is outside the space.
pub(super) fn check_index(index: u32) -> Result<(), Failure> {
    if index < INDEX_END { Ok(()) } else { Err(Failure::OutOfRange("index", index.into())) }
}

/// Returns the rank that manages an index.
pub(super) fn manager(ctx: &Context<'_>, index: u32) -> Rank {
    Rank::manager_of(index, ctx.state.config.ranks)
}

/// Fails if the sender does not manage an index.
pub(super) fn check_from_manager(ctx: &Context<'_>, from: Rank, index: u32) -> Result<(), Failure> {
    if manager(ctx, index) == from { Ok(()) } else { Err(Failure::Protocol(from)) }
}

/// Fails if this rank does not manage an index.
pub(super) fn check_manager(ctx: &Context<'_>, from: Rank, index: u32) -> Result<(), Failure> {
    if manager(ctx, index) == ctx.rank() { Ok(()) } else { Err(Failure::Protocol(from)) }
}
