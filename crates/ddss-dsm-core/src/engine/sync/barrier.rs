//! Barriers: all ranks arrive at rank 0, which lets them depart.

use super::time::{check_index, check_time};
use crate::engine::call::{CallId, Failure};
use crate::engine::context::Context;
use crate::engine::fault_injection::planted;
use crate::engine::state::{Acquired, Release, Step};
use crate::message::Message;
use crate::model::{Rank, VectorTime};

/// Takes this rank to a barrier.
pub(crate) fn call_barrier(ctx: &mut Context<'_>, call: CallId, index: u32) -> Result<(), Failure> {
    check_index(index)?;
    if ctx.state.sync.rendezvous.at_barrier.contains_key(&index) {
        return Err(Failure::Misuse("arrive twice at barrier", index));
    }
    ctx.state.sync.rendezvous.at_barrier.insert(index, call);
    ctx.state.sync.queue.steps.push_back(Step::Release(Release::Arrive(index), None));
    Ok(())
}

pub(super) fn send_arrival(ctx: &mut Context<'_>, barrier: u32, time: VectorTime) {
    ctx.send(Rank::ZERO, &Message::BarrierArrive { barrier, time });
}

/// At rank 0: counts an arrival. Behind the last one all ranks depart.
pub(crate) fn arrive(ctx: &mut Context<'_>, from: Rank, index: u32, time: &VectorTime) -> Result<(), Failure> {
    check_time(ctx, from, time)?;
    let ranks = ctx.state.config.ranks - usize::from(planted!(ctx.state, BarrierTooEarly));
    let barrier = ctx.state.sync.rendezvous.barriers.entry(index).or_default();
    if ctx.state.config.rank != Rank::ZERO || !barrier.arrived.insert(from) {
        return Err(Failure::Protocol(from));
    }
    barrier.time.join(time);
    if barrier.arrived.len() < ranks {
        return Ok(());
    }
    let time = barrier.time;
    ctx.state.sync.rendezvous.barriers.remove(&index);
    for rank in ctx.state.config.all_ranks() {
        ctx.send(rank, &Message::BarrierDepart { barrier: index, time });
    }
    Ok(())
}

/// Acquires what all ranks released, and lets the call continue.
pub(crate) fn depart(ctx: &mut Context<'_>, from: Rank, index: u32, time: VectorTime) -> Result<(), Failure> {
    check_time(ctx, from, &time)?;
    let call = ctx.state.sync.rendezvous.at_barrier.remove(&index).filter(|_| from == Rank::ZERO);
    let call = call.ok_or(Failure::Protocol(from))?;
    ctx.state.sync.queue.push_acquire(time, None, Acquired::Barrier(call));
    Ok(())
}
