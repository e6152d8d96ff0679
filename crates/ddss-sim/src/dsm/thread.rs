//! Threads of a program, and what the checker learns from them.

use super::happens_before::HappensBefore;
use super::program::Op;
use ddss_dsm_core::{CallId, Failure};

/// State of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ThreadState {
    /// The thread can continue.
    Ready,
    /// Waits for a call.
    Waiting(CallId),
    /// Is at a barrier, for which one call of its rank waits.
    AtBarrier,
    /// Has done all steps.
    Finished,
    /// Ended because a call failed.
    Failed(Failure),
    /// Died with its rank.
    Dead,
}

/// A thread.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub(crate) rank: usize,
    pub(crate) steps: Vec<Op>,
    /// Number of the next step.
    pub(crate) next: usize,
    pub(crate) state: ThreadState,
}

impl Thread {
    pub(crate) fn new(rank: usize, steps: Vec<Op>) -> Self {
        let state = if steps.is_empty() { ThreadState::Finished } else { ThreadState::Ready };
        Self { rank, steps, next: 0, state }
    }

    /// Returns the next step.
    pub(crate) fn step(&self) -> Option<&Op> {
        self.steps.get(self.next)
    }

    /// Goes on behind the step.
    pub(crate) fn advance(&mut self) {
        self.next += 1;
        self.state = if self.next == self.steps.len() { ThreadState::Finished } else { ThreadState::Ready };
    }

    /// Returns true if the thread will do nothing more.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, ThreadState::Finished | ThreadState::Failed(_) | ThreadState::Dead)
    }
}

/// Reports the start of a synchronisation to the checker.
pub(crate) fn report_start(model: &mut HappensBefore, thread: usize, op: &Op) {
    match *op {
        Op::Unlock(lock) => model.unlock(thread, lock),
        Op::Barrier(number) => model.arrive(thread, number),
        Op::Post(semaphore) => model.post(thread, semaphore),
        Op::Add(counter) => model.start_add(thread, counter),
        Op::Wait(semaphore) => model.start_wait(thread, semaphore),
        Op::Lock(_) | Op::Open { .. } | Op::Read { .. } | Op::Write { .. } => {}
    }
}

/// Reports the end of a synchronisation to the checker.
pub(crate) fn report_end(model: &mut HappensBefore, thread: usize, op: &Op, value: u64) {
    match *op {
        Op::Lock(lock) => model.locked(thread, lock),
        Op::Barrier(number) => model.depart(thread, number),
        Op::Wait(semaphore) => model.waited(thread, semaphore),
        Op::Add(counter) => model.added(thread, counter, value),
        Op::Unlock(_) | Op::Post(_) | Op::Open { .. } | Op::Read { .. } | Op::Write { .. } => {}
    }
}
