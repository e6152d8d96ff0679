//! Works on releases and acquires in order.

use super::release::push_release;
use super::{acquire, barrier, counter, lock, semaphore};
use crate::engine::context::Context;
use crate::engine::flush::{close_interval, finish_placements, has_room, start_placement};
use crate::engine::state::{Acquired, PendingRelease, Release, Step};

/// Works on all steps that can continue.
pub(crate) fn advance(ctx: &mut Context<'_>) {
    loop {
        let placed = finish_placements(ctx);
        let released = publish_releases(ctx);
        if !process_front(ctx) && !placed && !released {
            return;
        }
    }
}

/// Works on the first step. Returns true if it is done.
fn process_front(ctx: &mut Context<'_>) -> bool {
    match ctx.state.sync.queue.steps.pop_front() {
        None => false,
        Some(Step::Acquire(acquire)) => {
            let effect = acquire.effect;
            if let Some(waiting) = acquire::process(ctx, acquire) {
                ctx.state.sync.queue.steps.push_front(Step::Acquire(waiting));
                return false;
            }
            match effect {
                Acquired::Lock(index) => lock::acquired(ctx, index),
                Acquired::Call(call, value) => ctx.complete(call, Ok(value)),
                Acquired::Barrier(call) => {
                    ctx.state.statistics.barriers += 1;
                    ctx.complete(call, Ok(0));
                }
            }
            true
        }
        Some(Step::Release(release, call)) => {
            if !has_room(ctx) {
                ctx.state.sync.queue.steps.push_front(Step::Release(release, call));
                return false;
            }
            close_interval(ctx);
            call.into_iter().for_each(|call| ctx.complete(call, Ok(0)));
            match release {
                Release::Unlock(index) => lock::released(ctx, index),
                Release::Place(_) => {
                    let last = ctx.state.sync.intervals.open() - 1;
                    start_placement(ctx, last);
                    push_release(ctx, release);
                }
                _ => push_release(ctx, release),
            }
            true
        }
    }
}

/// Publishes the releases whose writes are placed. Returns true if there was one.
fn publish_releases(ctx: &mut Context<'_>) -> bool {
    let mut any = false;
    while let Some(first) = ctx.state.sync.queue.releases.front() {
        if first.placement.is_some_and(|id| ctx.state.pages.placements.is_open(id)) {
            break;
        }
        let Some(PendingRelease { time, release, .. }) = ctx.state.sync.queue.releases.pop_front() else { break };
        any = true;
        match release {
            Release::Unlock(index) => lock::released(ctx, index),
            Release::Grant(index, to, known) => lock::grant(ctx, index, to, &known, time),
            Release::Arrive(index) => barrier::send_arrival(ctx, index, time),
            Release::Post(index) => semaphore::send_post(ctx, index, time),
            Release::Add(index, delta) => counter::send_addition(ctx, index, delta, time),
            Release::Place(call) => ctx.complete(call, Ok(0)),
        }
    }
    any
}
