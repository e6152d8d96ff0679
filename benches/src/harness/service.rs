//! The service thread of a measurement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use super::{Cores, Spinner, pin};

/// Result of one turn of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The service needs another turn.
    Again,
    /// The client has disconnected.
    Over,
}

/// A pinned thread that runs turn after turn until it is put to sleep, and sleeps until it is woken.
#[derive(Debug)]
pub struct Service {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
    yields: bool,
}

/// State shared with the thread. Orders are numbered: an odd number means run, an even one sleep.
#[derive(Debug, Default)]
struct State {
    /// The newest order. Only the owner of the service stores it.
    order: AtomicU64,
    /// The newest executed order to sleep. Only the thread stores it.
    followed: AtomicU64,
    over: AtomicBool,
}

impl Service {
    /// Starts a service, asleep, on its core. A turn must end by itself within a short time.
    pub fn start(cores: Cores, mut turn: impl FnMut() -> Turn + Send + 'static) -> Service {
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let thread = thread::spawn(move || {
            // This also runs if a turn panics, so that the caller does not wait for a dead thread.
            let _followed = FollowsAll(&shared.followed);
            pin(cores.service).expect("the core is one of those that this process may use");
            while !shared.over.load(Ordering::Acquire) {
                let order = shared.order.load(Ordering::Acquire);
                if order % 2 == 0 {
                    shared.followed.store(order, Ordering::Release);
                    thread::park();
                } else if turn() == Turn::Over {
                    break;
                }
            }
        });
        Service { state, thread: Some(thread), yields: cores.is_shared() }
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        self.state.order.store(self.newest() | 1, Ordering::Release);
        self.unpark();
    }

    /// Puts the thread to sleep, and returns when it has left its core.
    pub fn rest(&self) {
        let order = self.newest().next_multiple_of(2);
        self.state.order.store(order, Ordering::Release);
        let mut spinner = Spinner::new(self.yields);
        while self.state.followed.load(Ordering::Acquire) < order {
            spinner.again();
        }
    }

    fn newest(&self) -> u64 {
        self.state.order.load(Ordering::Relaxed)
    }

    fn unpark(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

struct FollowsAll<'a>(&'a AtomicU64);

impl Drop for FollowsAll<'_> {
    fn drop(&mut self) {
        self.0.store(u64::MAX, Ordering::Release);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Release);
        self.unpark();
        if let Some(thread) = self.thread.take() {
            // A service that panicked has reported it; dropping has nothing to add.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a service that should sleep would take the core from the next measurement.
    #[test]
    fn service_polls_only_while_awake() {
        let turns = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&turns);
        let service = Service::start(Cores::of_this_machine(), move || {
            counted.fetch_add(1, Ordering::SeqCst);
            Turn::Again
        });
        for _ in 0..100 {
            let before = turns.load(Ordering::SeqCst);
            service.wake();
            let mut spinner = Spinner::new(true);
            while turns.load(Ordering::SeqCst) == before {
                spinner.again();
            }
            service.rest();
            let after = turns.load(Ordering::SeqCst);
            for _ in 0..10 {
                thread::yield_now();
            }
            assert_eq!(turns.load(Ordering::SeqCst), after, "it took a turn in its sleep");
        }
    }

    // If this failed, a bench would hang at its end after the other side has disconnected.
    #[test]
    fn finished_service_can_sleep_and_be_dropped() {
        let service = Service::start(Cores::of_this_machine(), || Turn::Over);
        service.wake();
        service.rest();
        drop(service);
    }
}
