//! Many calls under way at the same time on one lane, and on the lanes of several planes.

use super::arena::ArenaRun;
use super::channels::{AbandonedCall, ArenaLease, Call, ChannelPool, NoCompletion};
use crate::api::batch::CallProgress;
use ddss_core::{ArenaRange, Completion, Failure, Operation, Outcome, Request, RequestId};
use ddss_ipc::{WaitClass, WaitOutcome};
use std::time::{Duration, Instant};

/// How one of them ended: with its completion and the bytes that it brought.
pub(crate) type FinishedCall = Result<(Completion, Vec<u8>), NoCompletion>;

/// One that has begun.
struct StartedCall {
    id: u64,
    index: usize,
    run: Option<ArenaRun>,
    operation: Operation,
}

impl StartedCall {
    fn held(&self) -> ArenaLease {
        self.run.map_or(ArenaLease::Nothing, ArenaLease::Shared)
    }
}

/// The calls of a batch on one lane: some have ended, some are under way, some are to come.
pub(crate) struct Pipeline<'a> {
    call: Call<'a>,
    steps: Vec<&'a CallProgress>,
    next: usize,
    under_way: Vec<StartedCall>,
    ends: Vec<Option<FinishedCall>>,
}

/// Submits all of them, each to its own lane as fast as there is room, and waits for the last one.
pub(crate) fn run_together(parts: &mut [&mut Pipeline<'_>]) {
    /// So long one is waited for, while others may have room for more.
    const TURN: Duration = Duration::from_millis(1);
    loop {
        for part in parts.iter_mut() {
            part.go_on();
        }
        let others_go_on = parts.iter().filter(|part| part.next < part.steps.len()).count() > 1;
        let patience = others_go_on.then(|| Instant::now() + TURN);
        let mut waiting = parts.iter_mut().filter(|part| !part.under_way.is_empty()).peekable();
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
    pub(crate) fn new(mut call: Call<'a>, steps: Vec<&'a CallProgress>) -> Self {
        call.collect_late();
        let ends = steps.iter().map(|_| None).collect();
        Self { call, steps, next: 0, under_way: Vec::new(), ends }
    }

    /// Takes what has ended, and begins as many as there is room for.
    fn go_on(&mut self) {
        self.take_in();
        let before = self.next;
        while let Some(&step) = self.steps.get(self.next) {
            match self.call.begin(step, self.next, self.under_way.is_empty()) {
                Some(begun) => self.under_way.push(begun),
                None if self.under_way.is_empty() => self.ends[self.next] = Some(Err(NoCompletion::Busy)),
                None => break,
            }
            self.next += 1;
        }
        if self.next > before {
            self.call.seat.lane.ring_doorbell();
        }
    }

    fn take_in(&mut self) {
        while !self.under_way.is_empty()
            && let Some(entry) = self.call.seat.lane.reap()
        {
            let completion = Completion::decode(&entry);
            match self.under_way.iter().position(|begun| RequestId(begun.id) == completion.request) {
                Some(at) => {
                    let begun = self.under_way.swap_remove(at);
                    let incoming = self.steps[begun.index].incoming;
                    self.ends[begun.index] = Some(self.call.take(&completion, &begun, incoming));
                }
                None => self.call.ended_late(&completion),
            }
        }
    }

    /// Waits until one of them has ended, but not longer than that. After the deadline, or the end of the daemon, nobody
    /// waits for those under way any more, and no more are begun here.
    fn wait(&mut self, until: Option<Instant>) {
        let patience = self.call.deadline() + ChannelPool::GRACE;
        let until = until.map_or(patience, |until| until.min(patience));
        let gone = match self.call.seat.lane.wait(WaitClass::Polling, until) {
            WaitOutcome::Ready => return,
            WaitOutcome::TimedOut if until < patience => return,
            WaitOutcome::TimedOut => false,
            WaitOutcome::Gone => true,
        };
        for begun in self.under_way.drain(..) {
            let harmless = begun.operation.is_harmless();
            let none = if gone { NoCompletion::Gone } else { NoCompletion::Late { harmless } };
            self.ends[begun.index] = Some(Err(none));
            self.call.seat.late.push(AbandonedCall { id: begun.id, held: begun.held(), lock: None });
        }
        // The next daemon can be asked for those that never began.
        let none = if gone { NoCompletion::GoingDown } else { NoCompletion::Busy };
        self.ends[self.next..].fill(Some(Err(none)));
        self.next = self.steps.len();
    }

    /// How each of them ended. Whatever was not begun did nothing.
    pub(crate) fn ends(self) -> Vec<FinishedCall> {
        self.ends.into_iter().map(|end| end.unwrap_or(Err(NoCompletion::Busy))).collect()
    }
}

impl Call<'_> {
    /// Submits one, if there is room; the first one waits for room in the arena.
    fn begin(&mut self, step: &CallProgress, index: usize, first: bool) -> Option<StartedCall> {
        let bytes = step.outgoing.len().max(step.incoming);
        let run = match bytes {
            0 => None,
            _ if first => Some(self.lanes.shared.take(bytes, self.deadline())?),
            _ => Some(self.lanes.shared.try_take(bytes)?),
        };
        let range = run.map_or(ArenaRange::NOWHERE, |run| run.range(bytes));
        if !step.outgoing.is_empty() {
            self.write(range.offset(), &step.outgoing);
        }
        let operation = step.operation.with_range(range);
        let id = self.seat.next;
        self.seat.next += 1;
        let left = self.deadline().saturating_duration_since(Instant::now());
        let timeout_us = u32::try_from(left.as_micros()).unwrap_or(u32::MAX).max(1);
        let request = Request { timeout_us, ..Request::new(RequestId(id), operation) };
        let begun = StartedCall { id, index, run, operation };
        if self.seat.lane.submit(request.encode()).is_err() {
            self.release(begun.held());
            return None;
        }
        Some(begun)
    }

    fn take(&self, completion: &Completion, begun: &StartedCall, incoming: usize) -> FinishedCall {
        let mut bytes = vec![0; if completion.outcome == Outcome::Done { incoming } else { 0 }];
        match begun.run {
            _ if bytes.is_empty() => {}
            _ if completion.inline => bytes.copy_from_slice(&completion.data[..incoming]),
            Some(run) => {
                let from = run.range(incoming).offset() as usize;
                self.lanes.arena().read(from, &mut bytes).expect("a run lies inside the arena");
            }
            None => {}
        }
        self.release(begun.held());
        match completion.outcome {
            Outcome::Failed(Failure::GoingDown) => Err(NoCompletion::GoingDown),
            _ => Ok((*completion, bytes)),
        }
    }
}
