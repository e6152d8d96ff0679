//! Many calls in flight at the same time, on one channel or on the channels of several shards.

use super::arena::ArenaRun;
use super::channels::{AbandonedCall, ArenaLease, Call, ChannelPool, NoCompletion};
use crate::deadline::timeout_us;
use crate::plan::CallPlan;
use ddss_core::{Completion, Failure, Limit, Outcome, Request, RequestId};
use ddss_ipc::{WaitClass, WaitOutcome};
use std::time::{Duration, Instant};

/// End of one call: its completion and the returned bytes, or an unsuccessful completion.
pub(crate) type FinishedCall = Result<Result<(Completion, Vec<u8>), Completion>, NoCompletion>;

/// A call in flight.
struct StartedCall {
    id: u64,
    index: usize,
    run: Option<ArenaRun>,
}

impl StartedCall {
    fn lease(&self) -> ArenaLease {
        self.run.map_or(ArenaLease::Nothing, ArenaLease::Shared)
    }
}

/// The calls of a batch on one channel: completed, in flight, and not begun.
pub(crate) struct Pipeline<'a> {
    call: Call<'a>,
    plans: Vec<&'a CallPlan<'a>>,
    next: usize,
    under_way: Vec<StartedCall>,
    ends: Vec<Option<FinishedCall>>,
}

/// Submits all calls, each to its own channel as fast as capacity permits, and waits for the last one.
pub(crate) fn run_together(parts: &mut [&mut Pipeline<'_>]) {
    /// Maximum wait for a single pipeline while others may have capacity for more calls.
    const WAIT_SLICE: Duration = Duration::from_millis(1);
    loop {
        for part in parts.iter_mut() {
            part.advance();
        }
        let others_go_on = parts.iter().filter(|part| part.next < part.plans.len()).count() > 1;
        let patience = others_go_on.then(|| Instant::now() + WAIT_SLICE);
        let mut waiting = parts.iter_mut().filter(|part| part.is_pending()).peekable();
        if waiting.peek().is_none() {
            return;
        }
        match patience {
            None => waiting.take(1).for_each(|part| part.wait(None)),
            Some(_) => waiting.for_each(|part| part.wait(patience)),
        }
    }
}

impl<'a> Pipeline<'a> {
    pub(crate) fn new(mut call: Call<'a>, plans: Vec<&'a CallPlan<'a>>) -> Self {
        call.collect_abandoned();
        let ends = plans.iter().map(|_| None).collect();
        Self { call, plans, next: 0, under_way: Vec::new(), ends }
    }

    /// Collects completed calls, and begins as many as capacity permits.
    fn advance(&mut self) {
        self.collect_completions();
        let before = self.next;
        while let Some(&plan) = self.plans.get(self.next) {
            match self.call.begin(plan, self.next, self.under_way.is_empty()) {
                Ok(begun) => self.under_way.push(begun),
                Err(none @ (NoCompletion::Late { .. } | NoCompletion::TooLong(_))) => {
                    self.end_rest(none);
                    break;
                }
                Err(none @ NoCompletion::NeverFits(_)) => self.ends[self.next] = Some(Err(none)),
                // Abandoned calls may hold all the room, until the daemon completes them.
                Err(_) if self.is_in_flight() => break,
                Err(none) => self.ends[self.next] = Some(Err(none)),
            }
            self.next += 1;
        }
        if self.next > before {
            self.call.channel_slot.channel.ring_doorbell();
        }
    }

    /// Returns true if the daemon owes a completion on the channel.
    fn is_in_flight(&self) -> bool {
        !self.under_way.is_empty() || !self.call.channel_slot.abandoned.is_empty()
    }

    /// Returns true if calls of the batch have to end, or to begin.
    fn is_pending(&self) -> bool {
        !self.under_way.is_empty() || self.next < self.plans.len()
    }

    fn collect_completions(&mut self) {
        while self.is_in_flight()
            && let Some(entry) = self.call.channel_slot.channel.reap()
        {
            let completion = Completion::decode(&entry);
            match self.under_way.iter().position(|begun| RequestId(begun.id) == completion.request) {
                Some(at) => {
                    let begun = self.under_way.swap_remove(at);
                    self.ends[begun.index] = Some(self.call.take(&completion, &begun, self.plans[begun.index]));
                }
                None => self.call.complete_abandoned(&completion),
            }
        }
    }

    /// Waits until a call has ended, at most until `until`. After the deadline or the daemon's end, calls in flight are
    /// abandoned and no more begin.
    fn wait(&mut self, until: Option<Instant>) {
        let patience = self.call.deadline() + ChannelPool::GRACE;
        let until = until.map_or(patience, |until| until.min(patience));
        let gone = match self.call.channel_slot.channel.wait(WaitClass::Polling, until) {
            WaitOutcome::Ready => return,
            WaitOutcome::TimedOut if until < patience => return,
            WaitOutcome::TimedOut => false,
            WaitOutcome::Gone => true,
        };
        for begun in self.under_way.drain(..) {
            let harmless = self.plans[begun.index].is_harmless;
            let none = if gone { NoCompletion::Gone } else { NoCompletion::Late { harmless } };
            self.ends[begun.index] = Some(Err(none));
            self.call.channel_slot.abandoned.push(AbandonedCall { id: begun.id, lease: begun.lease(), lock: None });
        }
        // Calls that never began can go to the next daemon.
        self.end_rest(if gone { NoCompletion::ShuttingDown } else { NoCompletion::Late { harmless: true } });
    }

    /// Ends the calls that have not begun.
    fn end_rest(&mut self, none: NoCompletion) {
        self.ends[self.next..].fill(Some(Err(none)));
        self.next = self.plans.len();
    }

    /// Returns the result of each call. A call that was not begun had no effect.
    pub(crate) fn results(self) -> Vec<FinishedCall> {
        self.ends.into_iter().map(|end| end.unwrap_or(Err(NoCompletion::Busy(Limit::Channels)))).collect()
    }
}

impl Call<'_> {
    /// Begins a call if capacity permits, and its deadline has not passed; the first call waits for arena memory.
    fn begin(&mut self, plan: &CallPlan<'_>, index: usize, first: bool) -> Result<StartedCall, NoCompletion> {
        let (bytes, deadline) = (plan.arena_bytes(), self.deadline());
        self.channels.shared.check(bytes).map_err(NoCompletion::NeverFits)?;
        let run = match bytes {
            0 => None,
            _ if first => self.channels.shared.take(bytes, deadline),
            _ => self.channels.shared.try_take(bytes),
        };
        if bytes > 0 && run.is_none() {
            return Err(NoCompletion::Busy(Limit::Arena));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(timeout_us) = timeout_us(left).filter(|_| !left.is_zero()) else {
            run.into_iter().for_each(|run| self.release(ArenaLease::Shared(run)));
            let late = NoCompletion::Late { harmless: true };
            return Err(if left.is_zero() { late } else { NoCompletion::TooLong(left) });
        };
        let operation = plan.encode(self.channels.arena(), ArenaRun::range_of(run, bytes));
        let id = self.channel_slot.next_id;
        self.channel_slot.next_id += 1;
        let request = Request { timeout_us, ..Request::new(RequestId(id), operation) };
        let begun = StartedCall { id, index, run };
        if self.channel_slot.channel.submit(request.encode()).is_err() {
            self.release(begun.lease());
            return Err(NoCompletion::Busy(Limit::Channels));
        }
        Ok(begun)
    }

    fn take(&self, completion: &Completion, begun: &StartedCall, plan: &CallPlan<'_>) -> FinishedCall {
        let ended = if completion.outcome == Outcome::Done {
            let mut bytes = vec![0; plan.incoming()];
            let range = ArenaRun::range_of(begun.run, plan.arena_bytes());
            plan.reply(completion, self.channels.arena(), range).read(0, &mut bytes);
            Ok((*completion, bytes))
        } else {
            Err(*completion)
        };
        self.release(begun.lease());
        match completion.outcome {
            Outcome::Failed(Failure::GoingDown) => Err(NoCompletion::ShuttingDown),
            _ => Ok(ended),
        }
    }
}
