//! The next daemon, looked for on behalf of tasks. Whoever attaches may have to wait, and a task must not: a thread does it,
//! for as long as some task waits for it, each until its own deadline.

use crate::error::Error;
use crate::session::Inner;
use atomic_waker::AtomicWaker;
use ddss_ipc::AttachError;
use std::future::Future;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Who waits for the next daemon of one plane.
#[derive(Default)]
pub(super) struct Reconnect(Mutex<WaitList>);

#[derive(Default)]
struct WaitList {
    /// A thread looks, and will look at the line again before it ends.
    searching: bool,
    waiting: Vec<Arc<Waiter>>,
}

struct Waiter {
    since: Instant,
    deadline: Instant,
    harmless: bool,
    ended: Mutex<Option<Result<(), Error>>>,
    waker: AtomicWaker,
}

impl Waiter {
    fn end(&self, ended: Result<(), Error>) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
        self.waker.wake();
    }
}

/// Ready when there is another daemon, or nobody came in time. Dropped, it is waited for by one less.
pub(super) struct ReconnectFuture(Arc<Waiter>);

impl Future for ReconnectFuture {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.waker.register(context.waker());
        let ended = self.0.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        ended.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Reconnect {
    /// So long a single look takes at the most: one who comes meanwhile may have less time than those before him.
    const LOOK: Duration = Duration::from_millis(100);

    fn line(&self) -> MutexGuard<'_, WaitList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to look, if nobody does.
    pub(super) fn begin(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        deadline: Instant,
        harmless: bool,
    ) -> Result<ReconnectFuture, Error> {
        let (since, ended, waker) = (Instant::now(), Mutex::new(None), AtomicWaker::new());
        let waiting = Arc::new(Waiter { since, deadline, harmless, ended, waker });
        let mut line = self.line();
        if !line.searching {
            let (search, inner) = (Arc::clone(self), Arc::clone(inner));
            let thread = std::thread::Builder::new().name("ddss-search".to_owned());
            thread.spawn(move || search.run(&inner)).map_err(Error::Thread)?;
            line.searching = true;
        }
        line.waiting.push(Arc::clone(&waiting));
        Ok(ReconnectFuture(waiting))
    }

    fn run(&self, inner: &Inner) {
        let _told = PanicNotifier { search: self, why: &|| inner.nobody(ErrorKind::Other) };
        while let Some(first) = self.first_deadline() {
            let looked = inner.look_again(first.min(Instant::now() + Self::LOOK));
            let error = looked.err().flatten();
            let is_there = inner.attached_now().is_some();
            self.tell(inner, is_there, error.as_ref());
            if !is_there && error.is_none() {
                std::thread::sleep(Inner::REST);
            }
        }
    }

    /// When the first of those has to be told that still wait. None: the search is over.
    fn first_deadline(&self) -> Option<Instant> {
        let mut line = self.line();
        line.waiting.retain(|waiting| Arc::strong_count(waiting) > 1);
        line.searching = !line.waiting.is_empty();
        line.waiting.iter().map(|waiting| waiting.deadline).min()
    }

    /// Tells those who need not look any further.
    fn tell(&self, inner: &Inner, is_there: bool, error: Option<&Error>) {
        let soon = Instant::now() + Inner::REST;
        let is_over = |one: &Waiter| is_there || soon >= inner.patience(error, one.since, one.deadline, one.harmless);
        let told: Vec<_> = self.line().waiting.extract_if(.., |waiting| is_over(waiting)).collect();
        for waiting in told {
            waiting.end(if is_there { Ok(()) } else { Err(same(inner, error)) });
        }
    }
}

/// If the thread that looks panics, nobody waits for it: they are told, and the next one begins anew.
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
        line.searching = false;
        let waiting = std::mem::take(&mut line.waiting);
        drop(line);
        for one in waiting {
            one.end(Err((self.why)()));
        }
    }
}

/// Why nobody was found, once for each who waited.
fn same(inner: &Inner, error: Option<&Error>) -> Error {
    match error {
        Some(&Error::VersionMismatch { ours, theirs }) => Error::VersionMismatch { ours, theirs },
        Some(&Error::PlanesChanged { before, now }) => Error::PlanesChanged { before, now },
        Some(Error::Attach(AttachError::Refused { text })) => {
            Error::Attach(AttachError::Refused { text: text.clone() })
        }
        Some(Error::NoDaemon { source, .. }) => inner.nobody(source.kind()),
        _ => inner.nobody(ErrorKind::TimedOut),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_search_that_panicked() {
        // If this broke, tasks would wait for ever for a thread that is gone: their deadlines are looked at by that thread.
        let (search, now) = (Reconnect::default(), Instant::now());
        let (ended, waker) = (Mutex::new(None), AtomicWaker::new());
        let waiting = Waiter { since: now, deadline: now, harmless: true, ended, waker };
        let waiting = Arc::new(waiting);
        *search.line() = WaitList { searching: true, waiting: vec![Arc::clone(&waiting)] };
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _told = PanicNotifier { search: &search, why: &|| Error::Thread(ErrorKind::Other.into()) };
            panic!("what cannot happen");
        }));
        assert!(looked.is_err());
        assert!(matches!(*waiting.ended.lock().unwrap(), Some(Err(Error::Thread(_)))));
        let line = search.line();
        assert!(!line.searching && line.waiting.is_empty());
    }
}
