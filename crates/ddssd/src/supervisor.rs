//! Supervision of critical tasks, the threads and tasks that a node cannot work without: if one ends by itself, the
//! node ends.
//!
//! A node with a dead part is worse than a dead node: clients wait at it until their deadlines, and the cluster takes
//! it for alive, so that no replica takes over. Acknowledged data is safe in either case: the next daemon in the
//! folder continues with it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// State of all critical tasks of one node. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Supervisor(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<SupervisorState>,
    changed: Condvar,
    /// The same for waiters in async tasks.
    ended: tokio::sync::Notify,
}

#[derive(Debug, Default)]
struct SupervisorState {
    /// The first task that failed.
    ended: Option<&'static str>,
    /// Set when the node has left its cluster, and stops for that.
    departure: Option<Departure>,
    /// The node is stopping: from now on tasks end regularly.
    stopping: bool,
}

/// Way in which a node left its cluster. The node then stops: the cluster does not know of its clients' writes any
/// more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Departure {
    /// An operator let it leave.
    Left,
    /// An operator let the other nodes remove it.
    Removed,
    /// A copy of its state folder is the node now.
    Superseded,
}

impl Supervisor {
    /// Registers a critical task; the task owns the returned token for its lifetime.
    pub(crate) fn register(&self, name: &'static str) -> CriticalTask {
        CriticalTask { name, supervisor: self.clone(), is_done: false }
    }

    /// Marks the node as stopping: from now on tasks end regularly.
    pub(crate) fn stop(&self) {
        self.state().stopping = true;
        self.0.changed.notify_all();
    }

    /// Returns the name of the first task that failed.
    pub(crate) fn failed_task(&self) -> Option<&'static str> {
        self.state().ended
    }

    /// Records that the node is out of its cluster. Returns false if that was known.
    pub(crate) fn depart(&self, how: Departure) -> bool {
        let mut state = self.state();
        if state.departure.is_some() {
            return false;
        }
        state.departure = Some(how);
        drop(state);
        self.0.changed.notify_all();
        true
    }

    /// Returns the way in which the node left its cluster.
    pub(crate) fn departure(&self) -> Option<Departure> {
        self.state().departure
    }

    /// Runs `announce` unless the node is out of its cluster. No departure is recorded meanwhile.
    pub(crate) fn unless_departed<T>(&self, announce: impl FnOnce() -> T) -> Result<T, Departure> {
        let state = self.state();
        state.departure.map_or_else(|| Ok(announce()), Err)
    }

    /// Waits up to `patience` for a failed task, a departure or a stop. Returns false on timeout.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let waiting =
            |state: &mut SupervisorState| state.ended.is_none() && state.departure.is_none() && !state.stopping;
        let waited = self.0.changed.wait_timeout_while(self.state(), patience, waiting);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Waits until a task has failed.
    pub(crate) async fn wait_for_failure(&self) {
        let ended = self.0.ended.notified();
        if self.failed_task().is_none() {
            ended.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, SupervisorState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Token of a running critical task; dropping it means that the task has failed.
#[derive(Debug)]
pub(crate) struct CriticalTask {
    name: &'static str,
    supervisor: Supervisor,
    is_done: bool,
}

impl CriticalTask {
    /// Ends the task regularly.
    pub(crate) fn done(mut self) {
        self.is_done = true;
    }

    /// Injects a fault in a debug build: `DDSS_TEST_FAULT` names a file, and the task named in it panics or hangs at
    /// its next check.
    #[inline]
    pub(crate) fn check_fault(&self) {
        #[cfg(debug_assertions)]
        if let Some(path) = std::env::var_os("DDSS_TEST_FAULT")
            && let Ok(order) = std::fs::read_to_string(&path)
            && let Some(fault) = order.strip_prefix(self.name)
        {
            match fault {
                " panics" => panic!("{} was told to", self.name),
                // Until the file changes.
                " hangs" => {
                    while std::fs::read_to_string(&path).is_ok_and(|now| now == order) {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
                _ => {}
            }
        }
    }
}

impl Drop for CriticalTask {
    fn drop(&mut self) {
        let mut state = self.supervisor.state();
        if self.is_done || state.stopping || state.ended.is_some() {
            return;
        }
        state.ended = Some(self.name);
        drop(state);
        self.supervisor.0.changed.notify_all();
        self.supervisor.0.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn failed_task_is_reported_and_regular_end_is_not() {
        // If this broke, a node with a dead progress thread would stay a member of its cluster, or a regularly stopped
        // daemon would report a failure.
        let supervisor = Supervisor::default();
        let (first, second, task) =
            (supervisor.register("first"), supervisor.register("second"), supervisor.register("task"));
        task.done();
        assert_eq!(supervisor.failed_task(), None);
        let waits = std::thread::spawn({
            let supervisor = supervisor.clone();
            move || supervisor.wait(PATIENCE)
        });
        let panicked = std::thread::spawn(move || {
            let _held = second;
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        assert!(waits.join().unwrap());
        assert_eq!(supervisor.failed_task(), Some("second"));
        drop(first);
        assert_eq!(supervisor.failed_task(), Some("second"), "the first to end is the cause");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(supervisor.wait_for_failure());

        let departed = Supervisor::default();
        assert_eq!(departed.unless_departed(|| 5), Ok(5));
        assert!(departed.depart(Departure::Removed) && !departed.depart(Departure::Left), "the first one is the cause");
        let announced = departed.unless_departed(|| panic!("a node that is out of its cluster is not ready"));
        assert_eq!(announced, Err::<(), _>(Departure::Removed));
        assert_eq!((departed.wait(PATIENCE), departed.departure()), (true, Some(Departure::Removed)));
        assert_eq!(departed.failed_task(), None);

        let stopped = Supervisor::default();
        let part = stopped.register("part");
        assert!(!stopped.wait(Duration::from_millis(1)));
        stopped.stop();
        drop(part);
        assert_eq!((stopped.wait(PATIENCE), stopped.failed_task()), (true, None));
    }
}
