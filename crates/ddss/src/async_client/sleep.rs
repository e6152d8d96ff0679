//! Timers for tasks. The reactor wakes them, so that the executor needs no timer.

use super::reactor::Reactor;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

struct Pausing {
    number: u64,
    until: Instant,
    waker: Waker,
}

#[derive(Default)]
struct Inside {
    pausing: Vec<Pausing>,
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
        let over: Vec<Pausing> = inside.pausing.extract_if(.., |pausing| pausing.until <= now).collect();
        let next = inside.pausing.iter().map(|pausing| pausing.until).min();
        drop(inside);
        over.into_iter().for_each(|pausing| pausing.waker.wake());
        next
    }
}

/// Future that is ready when its time is over.
pub(crate) struct Pause {
    reactor: Arc<Reactor>,
    until: Instant,
    number: Option<u64>,
}

impl Pause {
    pub(super) fn new(reactor: Arc<Reactor>, time: Duration) -> Self {
        Self { reactor, until: Instant::now() + time, number: None }
    }
}

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let until = self.until;
        if Instant::now() >= until {
            return Poll::Ready(());
        }
        let reactor = Arc::clone(&self.reactor);
        let mut inside = reactor.channel.pauses.inside();
        let mine = self.number.and_then(|number| inside.pausing.iter_mut().find(|pausing| pausing.number == number));
        if let Some(mine) = mine {
            mine.waker.clone_from(context.waker());
            return Poll::Pending;
        }
        inside.numbers += 1;
        let number = inside.numbers;
        inside.pausing.push(Pausing { number, until, waker: context.waker().clone() });
        drop(inside);
        self.number = Some(number);
        reactor.wake();
        Poll::Pending
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.reactor.channel.pauses.inside().pausing.retain(|pausing| pausing.number != number);
        }
    }
}
