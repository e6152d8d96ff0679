//! One call as a future.

use super::reactor::Reactor;
use super::road::{Begun, CallId};
use crate::arena::Run;
use crate::lanes::NoCompletion;
use ddss_core::{ArenaRange, Completion, Operation, Outcome};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// Makes the operation once it is known where in the arena its bytes are.
pub(super) type Make = fn(ArenaRange, &Plan) -> Operation;

/// What a call is about.
#[derive(Clone)]
pub(super) struct Plan {
    /// Bytes that go out through the arena.
    pub(super) outgoing: Vec<u8>,
    /// Bytes that come back.
    pub(super) incoming: usize,
    /// What is asked for, but for its place in the arena; see [`as_given`].
    pub(super) operation: Operation,
}

/// Makes the operation that the plan has.
pub(super) fn as_given(range: ArenaRange, plan: &Plan) -> Operation {
    plan.operation.with_range(range)
}

impl Plan {
    /// Whether what it makes leaves nothing behind.
    pub(super) fn is_harmless(&self, make: Make) -> bool {
        make(ArenaRange { slot: 0, bytes: 0 }, self).is_harmless()
    }
}

enum Stage {
    /// Not begun; in line for room under that ticket, if it is.
    Planned(Option<u64>),
    UnderWay(CallId),
    Over,
}

/// A call from its plan to its end.
pub(super) struct Call {
    reactor: Arc<Reactor>,
    plan: Plan,
    make: Make,
    deadline: Instant,
    stage: Stage,
}

impl Call {
    pub(super) fn new(reactor: Arc<Reactor>, deadline: Instant, plan: Plan, make: Make) -> Self {
        Self { reactor, plan, make, deadline, stage: Stage::Planned(None) }
    }

    fn begin(&mut self, ticket: Option<u64>, context: &Context<'_>) -> Result<Begun, NoCompletion> {
        let road = &self.reactor.road;
        let bytes = self.plan.outgoing.len().max(self.plan.incoming);
        let (plan, make) = (&self.plan, self.make);
        let begun = road.begin(ticket, bytes, self.deadline, context.waker(), |run| {
            let range = run.map_or(ArenaRange { slot: 0, bytes: 0 }, |run| run.range(bytes));
            if !plan.outgoing.is_empty() {
                let at = range.offset() as usize;
                road.arena.write(at, &plan.outgoing).expect("a run lies inside the arena");
            }
            make(range, plan)
        })?;
        self.reactor.mind();
        Ok(begun)
    }

    fn take(&self, completion: &Completion, run: Option<Run>) -> Vec<u8> {
        let mut bytes = vec![0; self.plan.incoming];
        match run {
            _ if completion.outcome != Outcome::Done => bytes.clear(),
            _ if completion.inline => bytes.copy_from_slice(&completion.data[..self.plan.incoming]),
            Some(run) => {
                let at = run.range(0).offset() as usize;
                self.reactor.road.arena.read(at, &mut bytes).expect("a run lies inside the arena");
            }
            None => {}
        }
        bytes
    }
}

impl Future for Call {
    type Output = Result<(Completion, Vec<u8>), NoCompletion>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let call = &mut *self;
        if let Stage::Planned(ticket) = call.stage {
            match call.begin(ticket, context) {
                Ok(Begun::UnderWay(id)) => call.stage = Stage::UnderWay(id),
                Ok(Begun::Queued(ticket)) => {
                    call.stage = Stage::Planned(Some(ticket));
                    return Poll::Pending;
                }
                Err(none) => {
                    call.stage = Stage::Over;
                    return Poll::Ready(Err(none));
                }
            }
        }
        let Stage::UnderWay(id) = call.stage else { panic!("a future is not polled after its end") };
        let look = |completion: &Completion, run| (*completion, call.take(completion, run));
        match call.reactor.road.look(id, context.waker(), look) {
            None => Poll::Pending,
            Some(end) => {
                call.stage = Stage::Over;
                Poll::Ready(end)
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        match self.stage {
            Stage::UnderWay(id) => self.reactor.road.abandon(id),
            Stage::Planned(Some(ticket)) => self.reactor.road.give_up_line(ticket),
            Stage::Planned(None) | Stage::Over => {}
        }
    }
}
