//! The threads and tasks without which a node is none: one that ends by itself takes the node with it. A node of which a part is
//! dead and the rest alive is worse than one that is gone: clients wait at it until their deadlines, and the cluster takes it for
//! alive, so that no mirror takes over. What was acknowledged is safe in either case: the next daemon in its folder goes on with it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// All vital parts of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Supervisor(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// The same for who waits in a task.
    ended: tokio::sync::Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The first one that ended by itself.
    ended: Option<&'static str>,
    /// The node belongs to its cluster no more, and ends for that.
    departure: Option<Departure>,
    /// The node is stopping: from now on all of them end.
    stopping: bool,
}

/// How a node went out of its cluster. It ends then: what its clients write is in no cluster any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Departure {
    /// An operator had it leave.
    Left,
    /// An operator had the others remove it.
    Removed,
    /// A copy of its state folder is the node now.
    Superseded,
}

impl Supervisor {
    /// What a part holds for as long as it lives.
    pub(crate) fn part(&self, name: &'static str) -> CriticalTask {
        CriticalTask { name, vitals: self.clone(), is_done: false }
    }

    /// From now on parts end because they shall.
    pub(crate) fn stop(&self) {
        self.state().stopping = true;
        self.0.changed.notify_all();
    }

    /// The first part that ended by itself.
    pub(crate) fn ended(&self) -> Option<&'static str> {
        self.state().ended
    }

    /// Notes that the node is out of its cluster; false if that was known.
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

    /// How the node went out of its cluster, if it did.
    pub(crate) fn departure(&self) -> Option<Departure> {
        self.state().departure
    }

    /// Waits until a part has ended by itself, the node is out of its cluster, or it stops, for that long at the most. False if
    /// none of it has happened.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let waiting = |state: &mut State| state.ended.is_none() && state.departure.is_none() && !state.stopping;
        let waited = self.0.changed.wait_timeout_while(self.state(), patience, waiting);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Waits until a part has ended by itself.
    pub(crate) async fn an_end(&self) {
        let ended = self.0.ended.notified();
        if self.ended().is_none() {
            ended.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held by a part of the node; to drop it is to have ended.
#[derive(Debug)]
pub(crate) struct CriticalTask {
    name: &'static str,
    vitals: Supervisor,
    is_done: bool,
}

impl CriticalTask {
    /// It has done what it was there for, and is not missed.
    pub(crate) fn done(mut self) {
        self.is_done = true;
    }

    /// A test of the daemon can have a part end or hang: in a debug build, `DDSS_TEST_FAULT` names a file, and the part of which that
    /// stands in there does so when it looks.
    #[inline]
    pub(crate) fn look(&self) {
        #[cfg(debug_assertions)]
        if let Some(path) = std::env::var_os("DDSS_TEST_FAULT")
            && let Ok(order) = std::fs::read_to_string(&path)
            && let Some(fault) = order.strip_prefix(self.name)
        {
            match fault {
                " panics" => panic!("{} was told to", self.name),
                // Until the order is taken back.
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
        let mut state = self.vitals.state();
        if self.is_done || state.stopping || state.ended.is_some() {
            return;
        }
        state.ended = Some(self.name);
        drop(state);
        self.vitals.0.changed.notify_all();
        self.vitals.0.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn a_part_that_ends_by_itself_is_told_of_and_one_that_was_told_to_is_not() {
        // If this broke, a node whose progress thread has died would go on being a member of its cluster, or a daemon that was
        // stopped would say that it ended badly.
        let vitals = Supervisor::default();
        let (first, second, task) = (vitals.part("first"), vitals.part("second"), vitals.part("task"));
        task.done();
        assert_eq!(vitals.ended(), None);
        let waits = std::thread::spawn({
            let vitals = vitals.clone();
            move || vitals.wait(PATIENCE)
        });
        let panicked = std::thread::spawn(move || {
            let _held = second;
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        assert!(waits.join().unwrap());
        assert_eq!(vitals.ended(), Some("second"));
        drop(first);
        assert_eq!(vitals.ended(), Some("second"), "the first to end is the cause");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(vitals.an_end());

        let departed = Supervisor::default();
        assert!(departed.depart(Departure::Removed) && !departed.depart(Departure::Left), "the first one is the cause");
        assert_eq!((departed.wait(PATIENCE), departed.departure()), (true, Some(Departure::Removed)));
        assert_eq!(departed.ended(), None);

        let stopped = Supervisor::default();
        let part = stopped.part("part");
        assert!(!stopped.wait(Duration::from_millis(1)));
        stopped.stop();
        drop(part);
        assert_eq!((stopped.wait(PATIENCE), stopped.ended()), (true, None));
    }
}
