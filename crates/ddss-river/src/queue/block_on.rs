//! The smallest executor there is.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Longest sleep. The service thread wakes calls at their deadlines.
const SLEEP_MAX: Duration = Duration::from_secs(1);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    block_on_until(future, None).expect("a result, since there is no deadline")
}

/// Runs a future on this thread, for some time. `None` means that it was not ready, and is dropped.
pub(crate) fn block_on_for<T>(future: impl Future<Output = T>, time: Duration) -> Option<T> {
    block_on_until(future, Some(Instant::now() + time))
}

fn block_on_until<T>(future: impl Future<Output = T>, deadline: Option<Instant>) -> Option<T> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return Some(done);
        }
        let left = deadline.map_or(SLEEP_MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left.min(SLEEP_MAX));
    }
}
