//! A result that a thread hands to a task.

use atomic_waker::AtomicWaker;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

/// A result that one thread sets once, and one task waits for.
pub(crate) struct Ended<T> {
    result: Mutex<Option<T>>,
    waker: AtomicWaker,
}

impl<T> Default for Ended<T> {
    fn default() -> Self {
        Self { result: Mutex::new(None), waker: AtomicWaker::new() }
    }
}

impl<T> Ended<T> {
    /// Sets the result and wakes the task.
    pub(crate) fn end(&self, result: T) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.waker.wake();
    }

    /// Takes the result if it is set, else registers the task.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<T> {
        self.waker.register(context.waker());
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner).take();
        result.map_or(Poll::Pending, Poll::Ready)
    }
}
