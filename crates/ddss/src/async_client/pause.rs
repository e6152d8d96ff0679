//! A pause of a task.

use super::reactor::Reactor;
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
    number: Option<u64>,
}

impl Pause {
    pub(super) fn new(reactor: Option<Arc<Reactor>>, time: Duration) -> Self {
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
        let Some(reactor) = self.reactor.clone() else { return Poll::Ready(()) };
        if let Some(number) = reactor.channel.pauses.set(self.number, until, context.waker()) {
            self.number = Some(number);
            reactor.wake();
        }
        Poll::Pending
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if let (Some(number), Some(reactor)) = (self.number, &self.reactor) {
            reactor.channel.pauses.remove(number);
        }
    }
}
