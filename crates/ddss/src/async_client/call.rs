//! A single call as a future.

use crate::call::arena::ArenaRun;
use crate::call::channels::NoCompletion;
use crate::plan::{CallPlan, Reply};
use crate::reactor::reactor::Reactor;
use crate::reactor::shared_channel::StartedCall;
use ddss_core::{Completion, Outcome};
use ddss_ipc::lock_free::CallId;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

enum Stage {
    /// Not begun; waiting for capacity under that ticket, if there is one.
    Planned(Option<u64>),
    InFlight(CallId),
    /// Waits in the daemon without a place.
    Parked(CallId),
    Over,
}

/// Receives the completion and the bytes of a successful call.
pub(super) type Receiver<'a> = dyn FnMut(&Completion, &Reply<'_>) + Send + 'a;

/// State of a call from its plan to its completion.
pub(super) struct Call<'a> {
    reactor: Arc<Reactor>,
    plan: &'a CallPlan<'a>,
    /// Flag of a batch that is still gathering: while true, a begun call waits for the others of its batch. The task
    /// that set the flag polls once more.
    gathering: Option<&'a AtomicBool>,
    take: &'a mut Receiver<'a>,
    deadline: Instant,
    stage: Stage,
}

impl<'a> Call<'a> {
    pub(super) fn new(
        reactor: Arc<Reactor>,
        deadline: Instant,
        plan: &'a CallPlan<'a>,
        gathering: Option<&'a AtomicBool>,
        take: &'a mut Receiver<'a>,
    ) -> Self {
        Self { reactor, plan, gathering, take, deadline, stage: Stage::Planned(None) }
    }

    fn is_gathering(&self) -> bool {
        self.gathering.is_some_and(|gathering| gathering.load(Ordering::Relaxed))
    }

    fn begin(&mut self, ticket: Option<u64>, context: &Context<'_>) -> Result<StartedCall, NoCompletion> {
        let (channel, plan, bytes) = (&self.reactor.channel, self.plan, self.plan.arena_bytes());
        let wanted = (plan.priority, bytes);
        let goes_out = !self.is_gathering();
        let begun = channel.begin(ticket, wanted, self.deadline, context.waker(), goes_out, |run| {
            plan.encode(&channel.arena, ArenaRun::range_of(run, bytes))
        })?;
        match begun {
            StartedCall::InFlight(_) => self.reactor.wake_if_needed(self.deadline),
            // The reactor checks the queue from the first waiting task on.
            StartedCall::Queued(_) if ticket.is_none() => self.reactor.wake(),
            StartedCall::Queued(_) => {}
        }
        Ok(begun)
    }
}

impl Future for Call<'_> {
    type Output = Result<Completion, NoCompletion>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let call = &mut *self;
        if let Stage::Planned(ticket) = call.stage {
            match call.begin(ticket, context) {
                Ok(StartedCall::InFlight(id)) => {
                    call.stage = Stage::InFlight(id);
                    if call.is_gathering() {
                        return Poll::Pending;
                    }
                }
                Ok(StartedCall::Queued(ticket)) => {
                    call.stage = Stage::Planned(Some(ticket));
                    return Poll::Pending;
                }
                Err(none) => {
                    call.stage = Stage::Over;
                    return Poll::Ready(Err(none));
                }
            }
        }
        let (id, is_parked) = match call.stage {
            Stage::InFlight(id) => (id, false),
            Stage::Parked(id) => (id, true),
            Stage::Planned(_) | Stage::Over => panic!("a future is not polled after its end"),
        };
        let (channel, plan, take) = (&call.reactor.channel, call.plan, &mut *call.take);
        if call.gathering.is_some() {
            channel.send_gathered();
        }
        let mut look = |completion: &Completion, run| {
            if completion.outcome == Outcome::Done && !completion.parked {
                let range = ArenaRun::range_of(run, plan.arena_bytes());
                take(completion, &plan.reply(completion, &channel.arena, range));
            }
            *completion
        };
        let mut end = if is_parked {
            channel.take_parked(id, context.waker(), &mut look)
        } else {
            channel.take_completion(id, context.waker(), || plan.is_harmless, &mut look)
        };
        if let Some(Ok(Completion { parked: true, .. })) = end {
            call.stage = Stage::Parked(id);
            end = channel.take_parked(id, context.waker(), &mut look);
            // The thread has to learn the deadline.
            call.reactor.wake_if_needed(call.deadline);
        }
        match end {
            None => Poll::Pending,
            Some(end) => {
                call.stage = Stage::Over;
                Poll::Ready(end)
            }
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        match self.stage {
            Stage::InFlight(id) => self.reactor.channel.abandon(id, self.plan.may_wait()),
            Stage::Parked(id) => self.reactor.channel.abandon_parked(id),
            Stage::Planned(Some(ticket)) => self.reactor.channel.leave_queue(ticket),
            Stage::Planned(None) | Stage::Over => {}
        }
    }
}
