//! Streams that threads begin while another thread forks.
//!
//! The kernel copies the descriptors of a process first and its memory later. A stream that another thread begins in between is in the
//! child's memory and not among its descriptors: the child would close numbers that it never had, or mark a stream of its parent as
//! closed. So no stream begins meanwhile: it stays on TCP.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::limits::LOCK_WAIT;
use crate::signals::Uninterrupted;

/// Threads that are inside `fork`.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Threads that begin a stream.
static BEGINNINGS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Streams that this thread begins: a signal handler may fork meanwhile, or begin another one.
    static OWN: Cell<u32> = const { Cell::new(0) };
}

/// A thread begins a stream, or moves one into shared memory. No handler of a signal runs meanwhile: it might never return.
#[derive(Debug)]
pub(crate) struct Beginning {
    /// Dropped after the counts have changed.
    _uninterrupted: Uninterrupted,
}

impl Beginning {
    /// `None`: another thread forks.
    pub(crate) fn new() -> Option<Self> {
        let begun = Self { _uninterrupted: Uninterrupted::begin() };
        OWN.set(OWN.get() + 1);
        BEGINNINGS.fetch_add(1, Ordering::SeqCst);
        (FORKS.load(Ordering::SeqCst) == 0).then_some(begun)
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        subtract_one(&BEGINNINGS);
        OWN.set(OWN.get() - 1);
    }
}

/// Lets no thread begin a stream until [`after_fork`], and waits for those that do, at most for the time of a lock.
pub(crate) fn before_fork() {
    FORKS.fetch_add(1, Ordering::SeqCst);
    if BEGINNINGS.load(Ordering::SeqCst) <= OWN.get() {
        return;
    }
    let start = Instant::now();
    while BEGINNINGS.load(Ordering::SeqCst) > OWN.get() && start.elapsed() < LOCK_WAIT {
        std::thread::yield_now();
    }
}

/// Lets streams begin again, in the parent.
pub(crate) fn after_fork() {
    subtract_one(&FORKS);
}

/// A child that was made past the library may have forgotten the counts of its parent already.
fn subtract_one(count: &AtomicU32) {
    let _ = count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
}

/// Forgets the threads of the parent, in the child.
pub(crate) fn forget_other_threads() {
    FORKS.store(0, Ordering::SeqCst);
    BEGINNINGS.store(OWN.get(), Ordering::SeqCst);
}
