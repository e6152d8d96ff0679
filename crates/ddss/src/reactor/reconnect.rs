//! Search for the next daemon on behalf of tasks. Attaching may block and a task must not, so a thread searches while
//! some task waits, each task until its own deadline.

use crate::error::Error;
use crate::error::reason::Reason;
use crate::session::Inner;
use crate::session::ended::Ended;
use crate::session::of_process::OfProcess;
use ddss_ipc::AttachError;
use std::future::Future;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Tasks of this process that wait for the next daemon of one shard.
pub(crate) type Reconnect = OfProcess<WaitList>;

/// The list of these tasks.
#[derive(Default)]
pub(crate) struct WaitList(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// True while a thread searches that will check the list again before it ends.
    is_searched: bool,
    tasks: Vec<Arc<Waiter>>,
}

struct Waiter {
    since: Instant,
    deadline: Instant,
    waits: bool,
    ended: Ended<Result<(), Error>>,
}

/// Future that is ready when there is a new daemon, or when its deadline passes. Dropping it removes the waiter.
pub(crate) struct ReconnectFuture(Arc<Waiter>);

impl Future for ReconnectFuture {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.ended.poll(context)
    }
}

impl Reconnect {
    /// Maximum time of a single attempt: a task that comes meanwhile may have an earlier deadline.
    const ATTEMPT_MAX: Duration = Duration::from_millis(100);

    fn line(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the search unless a thread already searches.
    pub(crate) fn begin(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        deadline: Instant,
        waits: bool,
    ) -> Result<ReconnectFuture, Error> {
        let waiting = Arc::new(Waiter { since: Instant::now(), deadline, waits, ended: Ended::default() });
        let mut line = self.line();
        if !line.is_searched {
            let (search, inner) = (Arc::clone(self), Arc::clone(inner));
            let thread = std::thread::Builder::new().name("ddss-search".to_owned());
            thread.spawn(move || search.run(&inner)).map_err(Reason::Thread)?;
            line.is_searched = true;
        }
        line.tasks.push(Arc::clone(&waiting));
        Ok(ReconnectFuture(waiting))
    }

    fn run(&self, inner: &Inner) {
        let _told = PanicNotifier { search: self, why: &|| inner.no_daemon_error(ErrorKind::Other) };
        while let Some(first) = self.first_deadline() {
            let looked = inner.try_attach(first.min(Instant::now() + Self::ATTEMPT_MAX));
            let error = looked.err().flatten();
            let is_there = inner.current_session().is_some();
            self.notify(inner, is_there, error.as_ref());
            if !is_there && error.is_none() {
                std::thread::sleep(Inner::RETRY_INTERVAL);
            }
        }
    }

    /// Returns the earliest deadline of the waiters. `None`: the search is over.
    fn first_deadline(&self) -> Option<Instant> {
        let mut line = self.line();
        line.tasks.retain(|waiting| Arc::strong_count(waiting) > 1);
        line.is_searched = !line.tasks.is_empty();
        line.tasks.iter().map(|waiting| waiting.deadline).min()
    }

    /// Notifies the waiters that need no further search.
    fn notify(&self, inner: &Inner, is_there: bool, error: Option<&Error>) {
        let soon = Instant::now() + Inner::RETRY_INTERVAL;
        let is_over = |one: &Waiter| is_there || soon >= inner.retry_until(error, one.since, one.deadline, one.waits);
        let told: Vec<_> = self.line().tasks.extract_if(.., |waiting| is_over(waiting)).collect();
        for waiting in told {
            waiting.ended.end(if is_there { Ok(()) } else { Err(same(inner, error)) });
        }
    }
}

/// Notifies all waiters if the searching thread panics; the next waiter starts a new search.
struct PanicNotifier<'a> {
    search: &'a Reconnect,
    why: &'a dyn Fn() -> Error,
}

impl Drop for PanicNotifier<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let mut line = self.search.line();
        line.is_searched = false;
        let waiting = std::mem::take(&mut line.tasks);
        drop(line);
        for one in waiting {
            one.ended.end(Err((self.why)()));
        }
    }
}

/// Builds the error of a failed search, once for each waiter.
fn same(inner: &Inner, error: Option<&Error>) -> Error {
    match error.map(Error::reason) {
        Some(Reason::VersionMismatch { ours, theirs, text }) => {
            Reason::VersionMismatch { ours: *ours, theirs: *theirs, text: text.clone() }.into()
        }
        Some(&Reason::ShardsChanged { before, now }) => Reason::ShardsChanged { before, now }.into(),
        Some(Reason::Attach(AttachError::Refused { text })) => {
            Reason::Attach(AttachError::Refused { text: text.clone() }).into()
        }
        Some(Reason::NoDaemon { source, .. }) => inner.no_daemon_error(source.kind()),
        _ => inner.no_daemon_error(ErrorKind::TimedOut),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_notified_when_search_panics() {
        // If this broke, tasks would wait forever for a dead thread, which also checks their deadlines.
        let (search, now) = (Reconnect::new().unwrap(), Instant::now());
        let waiting = Waiter { since: now, deadline: now, waits: true, ended: Ended::default() };
        let waiting = Arc::new(waiting);
        *search.line() = Waiting { is_searched: true, tasks: vec![Arc::clone(&waiting)] };
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _told = PanicNotifier { search: &search, why: &|| Reason::Thread(ErrorKind::Other.into()).into() };
            panic!("what cannot happen");
        }));
        assert!(looked.is_err());
        let Poll::Ready(Err(told)) = waiting.ended.poll(&Context::from_waker(std::task::Waker::noop())) else {
            panic!("the waiter does not know")
        };
        assert!(matches!(told.reason(), Reason::Thread(_)), "{told}");
        let line = search.line();
        assert!(!line.is_searched && line.tasks.is_empty());
    }
}
