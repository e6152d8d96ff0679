//! Counters: kept by the manager of their index. An addition is a release and an acquire.

use super::time::{check_from_manager, check_index, check_manager, check_time, manager};
use crate::engine::call::{CallId, Failure};
use crate::engine::context::Context;
use crate::engine::fault_injection::planted;
use crate::engine::state::{Acquired, Release, Rendezvous, Step};
use crate::message::Message;
use crate::model::{Rank, VectorTime};

/// Adds to a counter.
pub(crate) fn call_add(ctx: &mut Context<'_>, call: CallId, index: u32, delta: u64) -> Result<(), Failure> {
    check_index(index)?;
    ctx.state.sync.rendezvous.additions.entry(index).or_default().push_back(call);
    ctx.state.sync.queue.steps.push_back(Step::Release(Release::Add(index, delta), None));
    Ok(())
}

pub(super) fn send_addition(ctx: &mut Context<'_>, counter: u32, delta: u64, time: VectorTime) {
    let manager = manager(ctx, counter);
    ctx.send(manager, &Message::CounterAdd { counter, delta, time });
}

/// At the manager: adds, and reports the value before.
pub(crate) fn add(ctx: &mut Context<'_>, from: Rank, index: u32, delta: u64, time: &VectorTime) -> Result<(), Failure> {
    check_manager(ctx, from, index)?;
    check_time(ctx, from, time)?;
    let counter = ctx.state.sync.rendezvous.counters.entry(index).or_default();
    counter.time.join(time);
    let (value, time) = (counter.value, counter.time);
    counter.value = value.wrapping_add(delta);
    ctx.send(from, &Message::CounterValue { counter: index, value, time });
    Ok(())
}

/// Acquires what earlier additions released, and lets the oldest addition continue.
pub(crate) fn on_value(
    ctx: &mut Context<'_>,
    from: Rank,
    index: u32,
    value: u64,
    time: VectorTime,
) -> Result<(), Failure> {
    check_from_manager(ctx, from, index)?;
    check_time(ctx, from, &time)?;
    let call = Rendezvous::take_oldest(&mut ctx.state.sync.rendezvous.additions, index);
    let call = call.ok_or(Failure::Protocol(from))?;
    if planted!(ctx.state, CounterWithoutAcquire) {
        ctx.complete(call, Ok(value));
        return Ok(());
    }
    ctx.state.sync.queue.push_acquire(time, None, Acquired::Call(call, value));
    Ok(())
}
