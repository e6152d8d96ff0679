//! Many calls under way at the same time on one lane.

use crate::arena::Run;
use crate::batch::Step;
use crate::lanes::{Call, Held, Late, NoCompletion};
use ddss_core::{ArenaRange, Completion, Failure, Operation, Outcome, Request, RequestId};
use ddss_ipc::{WaitClass, Waited};
use std::time::Instant;

/// How one of them ended: with its completion and the bytes that it brought.
pub(crate) type Ended = Result<(Completion, Vec<u8>), NoCompletion>;

/// One that has begun.
struct Begun {
    id: u64,
    index: usize,
    run: Option<Run>,
    operation: Operation,
}

impl Begun {
    fn held(&self) -> Held {
        self.run.map_or(Held::Nothing, Held::Shared)
    }
}

impl Call<'_> {
    /// Submits all of them, as fast as there is room, and waits for the last one.
    pub(crate) fn run_all(mut self, steps: &[&Step]) -> Vec<Ended> {
        self.collect_late();
        let mut ends: Vec<Option<Ended>> = steps.iter().map(|_| None).collect();
        let mut under_way: Vec<Begun> = Vec::new();
        let mut next = 0;
        loop {
            let before = next;
            while let Some(step) = steps.get(next) {
                match self.begin(step, next, under_way.is_empty()) {
                    Some(begun) => under_way.push(begun),
                    None if under_way.is_empty() => ends[next] = Some(Err(NoCompletion::Busy)),
                    None => break,
                }
                next += 1;
            }
            if next > before {
                self.seat.lane.ring();
            }
            if under_way.is_empty() {
                break;
            }
            let patience = self.deadline() + crate::lanes::Lanes::GRACE;
            let gone = match self.seat.lane.wait(WaitClass::Polling, patience) {
                Waited::Ready => None,
                Waited::TimedOut => Some(false),
                Waited::Gone => Some(true),
            };
            if let Some(gone) = gone {
                for begun in under_way.drain(..) {
                    let harmless = begun.operation.is_harmless();
                    let none = if gone { NoCompletion::Gone } else { NoCompletion::Late { harmless } };
                    ends[begun.index] = Some(Err(none));
                    self.seat.late.push(Late { id: begun.id, held: begun.held(), lock: None });
                }
                break;
            }
            while let Some(entry) = self.seat.lane.reap() {
                let completion = Completion::decode(&entry);
                match under_way.iter().position(|begun| RequestId(begun.id) == completion.request) {
                    Some(at) => {
                        let begun = under_way.swap_remove(at);
                        ends[begun.index] = Some(self.take(&completion, &begun, steps[begun.index].incoming));
                    }
                    None => self.ended_late(&completion),
                }
            }
        }
        // Whatever was not begun did nothing.
        ends.into_iter().map(|end| end.unwrap_or(Err(NoCompletion::Busy))).collect()
    }

    /// Submits one, if there is room; the first one waits for room in the arena.
    fn begin(&mut self, step: &Step, index: usize, first: bool) -> Option<Begun> {
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
        let begun = Begun { id, index, run, operation };
        if self.seat.lane.submit(request.encode()).is_err() {
            self.release(begun.held());
            return None;
        }
        Some(begun)
    }

    fn take(&self, completion: &Completion, begun: &Begun, incoming: usize) -> Ended {
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
