//! One call as a future.

use super::dispatcher::StartedCall;
use super::reactor::Reactor;
use crate::call::arena::ArenaRun;
use crate::call::channels::NoCompletion;
use crate::call::priority::Priority;
use ddss_core::limits::ARENA_SLOT_BYTES;
use ddss_core::{ArenaRange, Completion, Operation, Outcome};
use ddss_ipc::{CallId, SharedMemory};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

/// Makes the operation once it is known where in the arena its bytes are.
pub(super) type Encoder = fn(ArenaRange, &CallPlan<'_>) -> Operation;

/// What a call is about. Its bytes stay where its caller has them, until there is room for them in the arena.
#[derive(Clone, Copy)]
pub(super) struct CallPlan<'a> {
    /// What goes out through the arena.
    pub(super) outgoing: Outgoing<'a>,
    /// Bytes that come back.
    pub(super) incoming: usize,
    /// What is asked for, but for its place in the arena; see [`as_given`].
    pub(super) operation: Operation,
    /// Of a batch: as long as that is true, a call that begins waits for the others, and who has set it polls once more.
    pub(super) gathering: Option<&'a AtomicBool>,
}

/// Bytes on their way into the arena.
#[derive(Clone, Copy)]
pub(super) enum Outgoing<'a> {
    Bytes(&'a [u8]),
    /// A table, and from the next slot on what it is about.
    Parts(&'a [u8], &'a [(u64, &'a [u8])]),
}

impl Outgoing<'_> {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Outgoing::Bytes(bytes) => bytes.len(),
            Outgoing::Parts(_, parts) => ARENA_SLOT_BYTES + parts.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(),
        }
    }

    fn write(&self, arena: &SharedMemory, at: usize) {
        let write = |at, bytes| arena.write(at, bytes).expect(INSIDE);
        match self {
            Outgoing::Bytes(bytes) => write(at, bytes),
            Outgoing::Parts(table, parts) => {
                write(at, table);
                let mut at = at + ARENA_SLOT_BYTES;
                for (_, bytes) in *parts {
                    write(at, bytes);
                    at += bytes.len();
                }
            }
        }
    }
}

/// What came back, for as long as it stays there.
pub(super) enum Reply<'a> {
    Inline(&'a [u8]),
    Arena(&'a SharedMemory, usize),
}

impl Reply<'_> {
    /// Copies from the `at`th byte on.
    pub(super) fn read(&self, at: usize, into: &mut [u8]) {
        match self {
            Reply::Inline(bytes) => into.copy_from_slice(&bytes[at..at + into.len()]),
            Reply::Arena(arena, begin) => arena.read(begin + at, into).expect(INSIDE),
        }
    }
}

/// Takes what a call that is done brought.
pub(super) type Decoder<'a> = dyn FnMut(&Reply<'_>) + Send + 'a;

const INSIDE: &str = "a run lies inside the arena";

/// Makes the operation that the plan has.
pub(super) fn as_given(range: ArenaRange, plan: &CallPlan<'_>) -> Operation {
    plan.operation.with_range(range)
}

impl CallPlan<'_> {
    fn is_gathering(&self) -> bool {
        self.gathering.is_some_and(|gathering| gathering.load(Ordering::Relaxed))
    }

    /// Whether what it makes leaves nothing behind.
    pub(super) fn is_harmless(&self, make: Encoder) -> bool {
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
pub(super) struct Call<'a> {
    reactor: Arc<Reactor>,
    plan: CallPlan<'a>,
    make: Encoder,
    take: &'a mut Decoder<'a>,
    deadline: Instant,
    stage: Stage,
}

impl<'a> Call<'a> {
    pub(super) fn new(
        reactor: Arc<Reactor>,
        deadline: Instant,
        plan: CallPlan<'a>,
        make: Encoder,
        take: &'a mut Decoder<'a>,
    ) -> Self {
        Self { reactor, plan, make, take, deadline, stage: Stage::Planned(None) }
    }

    fn begin(&mut self, ticket: Option<u64>, context: &Context<'_>) -> Result<StartedCall, NoCompletion> {
        let road = &self.reactor.road;
        let bytes = self.plan.outgoing.bytes().max(self.plan.incoming);
        let wanted = (Priority::of(&self.plan.operation), bytes);
        let (plan, make) = (&self.plan, self.make);
        let goes_out = !plan.is_gathering();
        let begun = road.begin(ticket, wanted, self.deadline, context.waker(), goes_out, |run| {
            let range = run.map_or(ArenaRange { slot: 0, bytes: 0 }, |run| run.range(bytes));
            if plan.outgoing.bytes() > 0 {
                plan.outgoing.write(&road.arena, range.offset() as usize);
            }
            make(range, plan)
        })?;
        match begun {
            StartedCall::UnderWay(_) => self.reactor.mind(),
            // Who is in line for the first time is looked after from now on.
            StartedCall::Queued(_) if ticket.is_none() => self.reactor.wake(),
            StartedCall::Queued(_) => {}
        }
        Ok(begun)
    }
}

/// Hands over what a call brought, if it did what it should.
fn hand_over(
    completion: &Completion,
    run: Option<ArenaRun>,
    arena: &SharedMemory,
    incoming: usize,
    take: &mut Decoder<'_>,
) {
    match run {
        _ if completion.outcome != Outcome::Done || incoming == 0 => {}
        _ if completion.inline => take(&Reply::Inline(&completion.data[..incoming.min(completion.data.len())])),
        Some(run) => take(&Reply::Arena(arena, run.range(0).offset() as usize)),
        None => {}
    }
}

impl Future for Call<'_> {
    type Output = Result<Completion, NoCompletion>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let call = &mut *self;
        if let Stage::Planned(ticket) = call.stage {
            match call.begin(ticket, context) {
                Ok(StartedCall::UnderWay(id)) => {
                    call.stage = Stage::UnderWay(id);
                    if call.plan.is_gathering() {
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
        let Stage::UnderWay(id) = call.stage else { panic!("a future is not polled after its end") };
        let (road, plan, take) = (&call.reactor.road, &call.plan, &mut *call.take);
        if plan.gathering.is_some() {
            road.send_gathered();
        }
        let look = |completion: &Completion, run| {
            hand_over(completion, run, &road.arena, plan.incoming, take);
            *completion
        };
        match road.look(id, context.waker(), || plan.is_harmless(call.make), look) {
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
            Stage::UnderWay(id) => self.reactor.road.abandon(id, self.plan.operation.may_wait()),
            Stage::Planned(Some(ticket)) => self.reactor.road.give_up_line(ticket),
            Stage::Planned(None) | Stage::Over => {}
        }
    }
}
