//! A single call as a future.

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

/// Builds the operation once the arena range of its bytes is known.
pub(super) type Encoder = fn(ArenaRange, &CallPlan<'_>) -> Operation;

/// Parameters of a call. The caller's bytes are copied once there is arena memory for them.
#[derive(Clone, Copy)]
pub(super) struct CallPlan<'a> {
    /// Bytes that the call sends through the arena.
    pub(super) outgoing: Outgoing<'a>,
    /// Number of bytes that the call returns.
    pub(super) incoming: usize,
    /// The operation without its arena range; see [`as_given`].
    pub(super) operation: Operation,
    /// Flag of a batch that is still gathering: while true, a begun call waits for the others of its batch. The task
    /// that set the flag polls once more.
    pub(super) gathering: Option<&'a AtomicBool>,
}

/// Source of the bytes that go into the arena.
#[derive(Clone, Copy)]
pub(super) enum Outgoing<'a> {
    Bytes(&'a [u8]),
    /// A table of ranges and, from the next slot on, their bytes.
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

/// Reply of a completed call, valid while the call's memory is allocated.
pub(super) enum Reply<'a> {
    Inline(&'a [u8]),
    Arena(&'a SharedMemory, usize),
}

impl Reply<'_> {
    /// Copies bytes from index `at` on.
    pub(super) fn read(&self, at: usize, into: &mut [u8]) {
        match self {
            Reply::Inline(bytes) => into.copy_from_slice(&bytes[at..at + into.len()]),
            Reply::Arena(arena, begin) => arena.read(begin + at, into).expect(INSIDE),
        }
    }
}

/// Decodes the reply of a completed call.
pub(super) type Decoder<'a> = dyn FnMut(&Reply<'_>) + Send + 'a;

const INSIDE: &str = "a run lies inside the arena";

/// Returns the operation of the plan unchanged.
pub(super) fn as_given(range: ArenaRange, plan: &CallPlan<'_>) -> Operation {
    plan.operation.with_range(range)
}

impl CallPlan<'_> {
    fn is_gathering(&self) -> bool {
        self.gathering.is_some_and(|gathering| gathering.load(Ordering::Relaxed))
    }

    /// Returns true if the encoded operation has no side effects.
    pub(super) fn is_harmless(&self, make: Encoder) -> bool {
        make(ArenaRange { slot: 0, bytes: 0 }, self).is_harmless()
    }
}

enum Stage {
    /// Not begun; waiting for capacity under that ticket, if there is one.
    Planned(Option<u64>),
    InFlight(CallId),
    Over,
}

/// State of a call from its plan to its completion.
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
        let dispatcher = &self.reactor.dispatcher;
        let bytes = self.plan.outgoing.bytes().max(self.plan.incoming);
        let wanted = (Priority::of(&self.plan.operation), bytes);
        let (plan, make) = (&self.plan, self.make);
        let goes_out = !plan.is_gathering();
        let begun = dispatcher.begin(ticket, wanted, self.deadline, context.waker(), goes_out, |run| {
            let range = run.map_or(ArenaRange { slot: 0, bytes: 0 }, |run| run.range(bytes));
            if plan.outgoing.bytes() > 0 {
                plan.outgoing.write(&dispatcher.arena, range.offset() as usize);
            }
            make(range, plan)
        })?;
        match begun {
            StartedCall::InFlight(_) => self.reactor.wake_if_needed(),
            // The reactor checks the queue from the first waiting task on.
            StartedCall::Queued(_) if ticket.is_none() => self.reactor.wake(),
            StartedCall::Queued(_) => {}
        }
        Ok(begun)
    }
}

/// Passes the reply on if the call succeeded.
fn deliver_reply(
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
                Ok(StartedCall::InFlight(id)) => {
                    call.stage = Stage::InFlight(id);
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
        let Stage::InFlight(id) = call.stage else { panic!("a future is not polled after its end") };
        let (dispatcher, plan, take) = (&call.reactor.dispatcher, &call.plan, &mut *call.take);
        if plan.gathering.is_some() {
            dispatcher.send_gathered();
        }
        let look = |completion: &Completion, run| {
            deliver_reply(completion, run, &dispatcher.arena, plan.incoming, take);
            *completion
        };
        match dispatcher.take_completion(id, context.waker(), || plan.is_harmless(call.make), look) {
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
            Stage::InFlight(id) => self.reactor.dispatcher.abandon(id, self.plan.operation.may_wait()),
            Stage::Planned(Some(ticket)) => self.reactor.dispatcher.leave_queue(ticket),
            Stage::Planned(None) | Stage::Over => {}
        }
    }
}
