//! Semaphores: counted by the manager of their index.

use super::time::{check_from_manager, check_index, check_manager, check_time, manager};
use crate::engine::call::{CallId, Failure};
use crate::engine::context::Context;
use crate::engine::fault_injection::planted;
use crate::engine::state::{Acquired, Release, Rendezvous, Step};
use crate::limits::SEMAPHORE_MAX;
use crate::message::Message;
use crate::model::{Rank, VectorTime};

/// Adds one: a release.
pub(crate) fn call_post(ctx: &mut Context<'_>, call: CallId, index: u32) -> Result<(), Failure> {
    check_index(index)?;
    ctx.state.sync.queue.steps.push_back(Step::Release(Release::Post(index), Some(call)));
    Ok(())
}

pub(super) fn send_post(ctx: &mut Context<'_>, semaphore: u32, time: VectorTime) {
    let manager = manager(ctx, semaphore);
    ctx.send(manager, &Message::SemaphorePost { semaphore, time });
}

/// Takes one off: an acquire.
pub(crate) fn call_wait(ctx: &mut Context<'_>, call: CallId, index: u32) -> Result<(), Failure> {
    check_index(index)?;
    ctx.state.sync.rendezvous.waits.entry(index).or_default().push_back(call);
    let manager = manager(ctx, index);
    ctx.send(manager, &Message::SemaphoreWait { semaphore: index });
    Ok(())
}

/// At the manager: counts a post, or ends the oldest wait.
pub(crate) fn on_post(ctx: &mut Context<'_>, from: Rank, index: u32, time: &VectorTime) -> Result<(), Failure> {
    check_manager(ctx, from, index)?;
    check_time(ctx, from, time)?;
    let semaphore = ctx.state.sync.rendezvous.semaphores.entry(index).or_default();
    semaphore.time.join(time);
    let time = semaphore.time;
    if let Some(rank) = semaphore.waiters.pop_front() {
        ctx.send(rank, &Message::SemaphoreGrant { semaphore: index, time });
    } else if semaphore.value < SEMAPHORE_MAX {
        semaphore.value += 1;
    } else {
        return Err(Failure::Protocol(from));
    }
    Ok(())
}

/// At the manager: takes one off, or lets the rank wait.
pub(crate) fn on_wait(ctx: &mut Context<'_>, from: Rank, index: u32) -> Result<(), Failure> {
    check_manager(ctx, from, index)?;
    let forgets = planted!(ctx.state, SecondWaiterLost);
    let semaphore = ctx.state.sync.rendezvous.semaphores.entry(index).or_default();
    if forgets && !semaphore.waiters.is_empty() {
        return Ok(());
    }
    if semaphore.value > 0 {
        semaphore.value -= 1;
        let time = semaphore.time;
        ctx.send(from, &Message::SemaphoreGrant { semaphore: index, time });
    } else if semaphore.waiters.len() < crate::limits::CALLS_MAX * ctx.state.config.ranks {
        semaphore.waiters.push_back(from);
    } else {
        return Err(Failure::Protocol(from));
    }
    Ok(())
}

/// Acquires what the posts released, and lets the oldest wait continue.
pub(crate) fn on_grant(ctx: &mut Context<'_>, from: Rank, index: u32, time: VectorTime) -> Result<(), Failure> {
    check_from_manager(ctx, from, index)?;
    check_time(ctx, from, &time)?;
    let call = Rendezvous::take_oldest(&mut ctx.state.sync.rendezvous.waits, index).ok_or(Failure::Protocol(from))?;
    ctx.state.sync.queue.push_acquire(time, None, Acquired::Call(call, 0));
    Ok(())
}
