//! Locks: the manager forwards each request to the rank that asked last, and the token stays with its last holder.

use super::release::push_release;
use super::time::{check_from_manager, check_index, check_manager, check_time, manager};
use crate::engine::call::{CallId, Failure};
use crate::engine::context::Context;
use crate::engine::fault_injection::planted;
use crate::engine::state::{Acquired, Release, Step, Token};
use crate::message::Message;
use crate::model::{Notice, Rank, VectorTime};

/// Acquires a lock for a call.
pub(crate) fn call_lock(ctx: &mut Context<'_>, call: CallId, index: u32) -> Result<(), Failure> {
    check_index(index)?;
    let is_manager = manager(ctx, index) == ctx.rank();
    ctx.state.sync.locks.entry(index, is_manager).waiters.push_back(call);
    settle(ctx, index);
    Ok(())
}

/// Releases a lock.
pub(crate) fn call_unlock(ctx: &mut Context<'_>, call: CallId, index: u32) -> Result<(), Failure> {
    check_index(index)?;
    let is_manager = manager(ctx, index) == ctx.rank();
    if !ctx.state.sync.locks.entry(index, is_manager).is_held {
        return Err(Failure::Misuse("release lock", index));
    }
    ctx.state.sync.queue.steps.push_back(Step::Release(Release::Unlock(index), Some(call)));
    Ok(())
}

/// Frees a lock whose holder's interval is closed.
pub(super) fn released(ctx: &mut Context<'_>, index: u32) {
    let is_manager = manager(ctx, index) == ctx.rank();
    ctx.state.sync.locks.entry(index, is_manager).is_held = false;
    settle(ctx, index);
}

/// Gives the lock to the first waiter: its notices are applied. A waiter of this rank comes before a rank that has
/// asked in the meantime. Otherwise two ranks could pass the token back and forth forever.
pub(super) fn acquired(ctx: &mut Context<'_>, index: u32) {
    let lock = ctx.state.sync.locks.entry(index, false);
    lock.token = Token::Here;
    if let Some(call) = lock.waiters.pop_front() {
        lock.is_held = true;
        ctx.state.statistics.locks += 1;
        ctx.complete(call, Ok(0));
    }
    settle(ctx, index);
}

/// Hands the token on, hands the lock to the next call, or asks for the token.
fn settle(ctx: &mut Context<'_>, index: u32) {
    let time = ctx.state.sync.intervals.time();
    let manager = manager(ctx, index);
    let lock = ctx.state.sync.locks.entry(index, manager == ctx.state.config.rank);
    if lock.token == Token::Here && !lock.is_held {
        if let Some((to, known)) = lock.next.take() {
            lock.token = Token::Absent;
            push_release(ctx, Release::Grant(index, to, known));
        } else if let Some(call) = lock.waiters.pop_front() {
            lock.is_held = true;
            ctx.state.statistics.locks += 1;
            ctx.complete(call, Ok(0));
        }
    }
    let lock = ctx.state.sync.locks.entry(index, false);
    if lock.token == Token::Absent && !lock.waiters.is_empty() {
        lock.token = Token::Requested;
        ctx.send(manager, &Message::LockRequest { lock: index, time });
    }
}

/// At the manager: forwards a request to the rank that asked before.
pub(crate) fn on_request(ctx: &mut Context<'_>, from: Rank, index: u32, time: VectorTime) -> Result<(), Failure> {
    check_manager(ctx, from, index)?;
    check_time(ctx, from, &time)?;
    let last = ctx.state.sync.locks.entry(index, true).last_asker.replace(from);
    match last.unwrap_or(ctx.rank()) {
        last if last == from => Err(Failure::Protocol(from)),
        last if last == ctx.rank() => hand_on(ctx, from, index, from, time),
        last => {
            ctx.state.statistics.forwards += 1;
            ctx.send(last, &Message::LockForward { lock: index, requester: from, time });
            Ok(())
        }
    }
}

/// At the rank that asked last: the manager names the next holder.
pub(crate) fn forward(
    ctx: &mut Context<'_>,
    from: Rank,
    index: u32,
    requester: Rank,
    time: VectorTime,
) -> Result<(), Failure> {
    check_from_manager(ctx, from, index)?;
    if requester == ctx.rank() {
        return Err(Failure::Protocol(from));
    }
    check_time(ctx, from, &time)?;
    hand_on(ctx, from, index, requester, time)
}

/// Hands the token to the next holder as soon as this rank does not use it.
fn hand_on(ctx: &mut Context<'_>, from: Rank, index: u32, requester: Rank, time: VectorTime) -> Result<(), Failure> {
    let is_manager = manager(ctx, index) == ctx.rank();
    let granted_twice = planted!(ctx.state, LockGrantedTwice);
    let lock = ctx.state.sync.locks.entry(index, is_manager);
    if lock.token == Token::Absent || lock.next.is_some() {
        return Err(Failure::Protocol(from));
    }
    if granted_twice && lock.is_held {
        lock.token = Token::Absent;
        push_release(ctx, Release::Grant(index, requester, time));
        return Ok(());
    }
    lock.next = Some((requester, time));
    settle(ctx, index);
    Ok(())
}

/// Sends the token with this rank's notices, or without them if they are too long for a message.
pub(super) fn grant(ctx: &mut Context<'_>, lock: u32, to: Rank, known: &VectorTime, time: VectorTime) {
    let own = ctx.rank();
    let notices = ctx.state.sync.intervals.notices(known.get(own), time.get(own));
    let mut bytes = Vec::new();
    ctx.state.codec.encode(&Message::LockGrant { lock, time, notices }, &mut bytes);
    if ctx.state.codec.fits(bytes.len()) {
        ctx.send_encoded(to, bytes);
    } else {
        ctx.send(to, &Message::LockGrant { lock, time, notices: None });
    }
}

/// Takes the token, and acquires.
pub(crate) fn on_grant(
    ctx: &mut Context<'_>,
    from: Rank,
    index: u32,
    time: VectorTime,
    notices: Option<Vec<Notice>>,
) -> Result<(), Failure> {
    check_time(ctx, from, &time)?;
    let lock = ctx.state.sync.locks.entry(index, false);
    if lock.token != Token::Requested {
        return Err(Failure::Protocol(from));
    }
    lock.token = Token::Acquiring;
    let granter = notices.map(|notices| (from, notices));
    ctx.state.sync.queue.push_acquire(time, granter, Acquired::Lock(index));
    Ok(())
}
