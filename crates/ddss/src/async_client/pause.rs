//! Pauses of tasks. The reactor wakes them, so that the executor needs no timer.

use super::reactor::Reactor;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Future that is ready when its time is over.
pub(crate) struct Pause {
    /// `None`: the pause is over at once.
    reactor: Option<Arc<Reactor>>,
    until: Instant,
    timer: Option<Timer>,
}

impl Pause {
    pub(super) fn new(reactor: Option<Arc<Reactor>>, time: Duration) -> Self {
        Self { reactor, until: Instant::now() + time, timer: None }
    }
}

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let until = self.until;
        if Instant::now() >= until {
            return Poll::Ready(());
        }
        let Some(reactor) = self.reactor.clone() else { return Poll::Ready(()) };
        if let Some(timer) = reactor.channel.pauses.set(self.timer, until, context.waker()) {
            self.timer = Some(timer);
            reactor.wake();
        }
        Poll::Pending
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if let (Some(timer), Some(reactor)) = (self.timer, &self.reactor) {
            reactor.channel.pauses.remove(timer);
        }
    }
}

/// Time of a timer, and its number.
pub(super) type Timer = (Instant, u64);

#[derive(Default)]
struct Inside {
    /// In order of time: thousands of tasks may wait for one home.
    pausing: BTreeMap<Timer, Waker>,
    numbers: u64,
}

/// Pending timers of one client, one entry for each future.
#[derive(Default)]
pub(super) struct Pauses(Mutex<Inside>);

impl Pauses {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the expired timers. Returns the time of the next one.
    pub(super) fn turn(&self, now: Instant) -> Option<Instant> {
        let mut inside = self.inside();
        let left = inside.pausing.split_off(&(now, u64::MAX));
        let over = std::mem::replace(&mut inside.pausing, left);
        let next = inside.pausing.first_key_value().map(|(&(until, _), _)| until);
        drop(inside);
        over.into_values().for_each(Waker::wake);
        next
    }

    /// Adds a timer, or replaces the waker of one that was added before. Returns a new one.
    pub(super) fn set(&self, timer: Option<Timer>, until: Instant, waker: &Waker) -> Option<Timer> {
        let mut inside = self.inside();
        if let Some(mine) = timer.and_then(|timer| inside.pausing.get_mut(&timer)) {
            mine.clone_from(waker);
            return None;
        }
        inside.numbers += 1;
        let timer = (until, inside.numbers);
        inside.pausing.insert(timer, waker.clone());
        Some(timer)
    }

    pub(super) fn remove(&self, timer: Timer) {
        self.inside().pausing.remove(&timer);
    }
}
