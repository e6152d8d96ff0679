//! A pause of a task.

use crate::reactor::reactor::Reactor;
use crate::reactor::shared_channel::pauses::Timer;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Future that is ready when its time is over.
pub(crate) struct Pause {
    /// `None`: the pause is over at once.
    reactor: Option<Arc<Reactor>>,
    until: Instant,
    timer: Option<Timer>,
}

impl Pause {
    pub(crate) fn new(reactor: Option<Arc<Reactor>>, time: Duration) -> Self {
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
