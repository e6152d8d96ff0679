//! State that the thread of a member and its callers share.

use crate::flow::error::{FlowError, ModuleError};
use crate::flow::tables::Verdict;
use ddss_river_core::{FlowGraph, ModuleId};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// End of an instance: the messages that failed, or its error.
pub(crate) type InstanceEnd = (ModuleId, Result<u64, ModuleError>);

/// End of a flow, as a member sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Ended,
    Failed(Verdict),
    Cancelled,
    Fenced,
    /// The tables are gone.
    Removed,
    /// Calls of the tables fail, and will not succeed.
    Broken(String),
    /// This process has dropped the flow.
    Dropped,
}

/// State that the thread of a member and its callers share.
#[derive(Default)]
pub(crate) struct Progress {
    state: Mutex<FlowState>,
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct FlowState {
    /// Instances that have ended since the thread looked last.
    pub(crate) ends: Vec<InstanceEnd>,
    /// Processes that have joined, until the flow begins.
    pub(crate) joined: u16,
    pub(crate) has_begun: bool,
    pub(crate) is_dropped: bool,
    pub(crate) outcome: Option<Outcome>,
    /// All instances of this process have returned.
    pub(crate) is_over: bool,
    /// Messages of this process that have failed.
    pub(crate) unprocessed: u64,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, FlowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes those who wait for it.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut FlowState) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.notify_all();
        changed
    }

    /// Waits until the state is so. Returns false at the deadline.
    pub(crate) fn wait(&self, deadline: Instant, is_so: impl Fn(&FlowState) -> bool) -> bool {
        let mut state = self.lock();
        loop {
            if is_so(&state) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns a part of the state.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&FlowState) -> T) -> T {
        read(&self.lock())
    }
}

impl Outcome {
    /// Returns the result of the flow.
    pub(crate) fn result(self, flow: &str, graph: &FlowGraph) -> Result<(), FlowError> {
        let flow = flow.to_owned();
        match self {
            Self::Ended => Ok(()),
            Self::Failed(verdict) => Err(verdict.error(flow, graph)),
            Self::Cancelled => Err(FlowError::Cancelled { flow }),
            Self::Fenced => Err(FlowError::Fenced { flow }),
            Self::Broken(reason) => Err(FlowError::Tables { flow, reason }),
            Self::Removed => Err(FlowError::Removed { flow }),
            Self::Dropped => Err(FlowError::Ending { flow }),
        }
    }
}

impl Verdict {
    /// Number in place of a module, if the graph itself cannot run.
    pub(crate) const NO_MODULE: u16 = u16::MAX;

    /// Returns the error that names the module.
    pub(crate) fn error(self, flow: String, graph: &FlowGraph) -> FlowError {
        let Self { module, member, node, reason } = self;
        match graph.modules().nth(module.into()) {
            Some(module) => FlowError::Module { flow, module: graph.name(module).to_owned(), member, node, reason },
            None => FlowError::Refused { flow, reason },
        }
    }
}
