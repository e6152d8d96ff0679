//! A flow that runs.

use super::error::FlowError;
use super::member::{Outcome, Progress};
use super::ports::Ground;
use super::remove::remove_ended;
use super::tables::FlowTable;
use crate::units::after;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks whether the thread of the member lives.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A flow that runs, with this process as a member. Dropping it leaves the flow: others repeat what instances here have not
/// acknowledged, and the loss of a module that holds data ends the flow.
pub struct Running {
    pub(super) ground: Arc<Ground>,
    pub(super) table: FlowTable,
    pub(super) progress: Arc<Progress>,
    pub(super) thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Waits until all processes that begin the flow have joined.
    pub(super) fn wait_for_begin(&self) -> Result<(), FlowError> {
        let waited = self.ground.options.queue.endpoint.timeout;
        let deadline = after(waited);
        if self.progress.wait(deadline, |state| state.has_begun || state.outcome.is_some()) {
            // A flow that failed at once says so in `wait`, unless it could not begin.
            let outcome = self.progress.read(|state| state.outcome.clone().filter(|_| !state.has_begun));
            return outcome.map_or(Ok(()), |outcome| outcome.result(&self.ground.flow, &self.ground.graph));
        }
        let (flow, wanted) = (self.ground.flow.clone(), self.ground.options.processes);
        let joined = self.progress.read(|state| state.joined);
        Err(FlowError::TooFew { flow, joined, wanted, waited })
    }

    /// Waits for the end of the whole flow, in all members.
    ///
    /// # Errors
    /// A module failed or was lost: the error names module, member and node. The flow was cancelled, the others have lost this
    /// process, or messages that it put were not processed.
    pub fn wait(mut self) -> Result<(), FlowError> {
        let has_thread = || self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        while !self.progress.wait(Instant::now() + LOOK_EVERY, |state| state.is_over) && has_thread() {}
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been reported where it happened.
            let _ = thread.join();
        }
        let (outcome, messages) = self.progress.read(|state| (state.outcome.clone(), state.unprocessed));
        let outcome = outcome.unwrap_or(Outcome::Dropped);
        let has_ended = outcome == Outcome::Ended;
        self.ground.leave();
        if has_ended {
            // The last member removes the names. What is left over is removed by `ddss river cancel`.
            let _ = remove_ended(&self.ground.client, &self.ground.flow, &self.table);
        }
        outcome.result(&self.ground.flow, &self.ground.graph)?;
        let flow = self.ground.flow.clone();
        if messages == 0 { Ok(()) } else { Err(FlowError::Unprocessed { flow, messages }) }
    }

    /// Takes the messages of this process that have failed: three instances were lost with them or dropped them.
    #[must_use]
    pub fn failed(&self) -> Vec<Vec<u8>> {
        self.ground.failed()
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("flow", &self.ground.flow).finish_non_exhaustive()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.progress.change(|state| state.is_dropped = true);
            let _ = thread.join();
        }
    }
}
