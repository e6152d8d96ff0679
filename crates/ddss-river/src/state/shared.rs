//! The lock, and who is woken behind it.

use super::counters::Counters;
use super::ends::Ends;
use ddss_group::Wake;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

/// State of a queue that the callers and the service thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    ends: Mutex<Ends>,
    wake: Arc<Wake>,
    pub(crate) counters: Counters,
}

impl Shared {
    pub(crate) fn new(ends: Ends, wake: Arc<Wake>, counters: Counters) -> Self {
        Self { ends: Mutex::new(ends), wake, counters }
    }

    fn lock(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a call of the service thread, and wakes the calls that wait for what it has changed.
    pub(crate) fn serve<T>(&self, call: impl FnOnce(&mut Ends) -> T) -> T {
        let mut ends = self.lock();
        let result = call(&mut ends);
        let woken = ends.take_woken();
        drop(ends);
        woken.into_iter().for_each(|(waker, _)| waker.wake());
        result
    }

    /// Runs a call of the application, and wakes the service thread if it has something to send.
    pub(crate) fn call<T>(&self, call: impl FnOnce(&mut Ends) -> T) -> T {
        let (result, has_posts) = self.serve(|ends| (call(ends), ends.has_posts()));
        if has_posts {
            self.wake.wake();
        }
        result
    }

    /// Makes an attempt. Without a result the task is woken at the next change, and at the deadline.
    pub(crate) fn poll<T>(
        &self,
        context: &mut Context<'_>,
        deadline: Instant,
        attempt: impl FnOnce(&mut Ends) -> Option<T>,
    ) -> Poll<Option<T>> {
        self.call(|ends| match attempt(ends) {
            Some(result) => Poll::Ready(Some(result)),
            None if Instant::now() >= deadline => Poll::Ready(None),
            None => {
                ends.wait(context.waker(), deadline);
                Poll::Pending
            }
        })
    }
}
