//! Signals that meet a call: handlers that must wait for a part of it, and calls that continue after one.
//!
//! A thread that holds a lock of this crate runs under [`Uninterrupted`]. A library that knows the handlers of the program asks
//! [`defer`] before each, and lets the signal wait, so that no handler finds a lock that its own thread holds.

use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};
use std::time::Duration;

use libc::pollfd;
use rustix::io::Errno;

use crate::sys;

/// Functions of a library that knows the handlers of the program.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// Lets the signals come that waited.
    pub deliver: fn(),
    /// Sleeps in libc's `poll`, where other threads may cancel this one. The error number is the kernel's.
    pub poll: fn(&mut [pollfd], Option<Duration>) -> Result<usize, i32>,
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

struct Thread {
    depth: AtomicU32,
    has_deferred: AtomicBool,
    /// True after a handler ran that asks for `EINTR`.
    is_interrupted: AtomicBool,
}

thread_local! {
    static THREAD: Thread = const {
        Thread { depth: AtomicU32::new(0), has_deferred: AtomicBool::new(false), is_interrupted: AtomicBool::new(false) }
    };
}

/// A part of a call that no handler interrupts.
#[derive(Debug)]
pub struct Uninterrupted(PhantomData<*const ()>);

impl Uninterrupted {
    /// Begins the part.
    #[inline]
    #[must_use]
    pub fn begin() -> Self {
        // Only this thread and its handlers use the count, and a handler leaves it as it was.
        THREAD.with(|thread| thread.depth.store(thread.depth.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
        compiler_fence(Ordering::SeqCst);
        Self(PhantomData)
    }

    /// Returns the guard of a part whose guard this thread forgot. `None`: the thread is in no such part.
    #[must_use]
    pub fn resume() -> Option<Self> {
        THREAD.with(|thread| thread.depth.load(Ordering::Relaxed) > 0).then(|| Self(PhantomData))
    }
}

impl Drop for Uninterrupted {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        THREAD.with(|thread| {
            let depth = thread.depth.load(Ordering::Relaxed) - 1;
            thread.depth.store(depth, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            if depth == 0 && thread.has_deferred.load(Ordering::Relaxed) {
                thread.has_deferred.store(false, Ordering::Relaxed);
                if let Some(hooks) = HOOKS.get() {
                    (hooks.deliver)();
                }
            }
        });
    }
}

/// Tells this crate that a library calls [`defer`] and [`note_handler`] for each handler.
pub fn set_hooks(hooks: Hooks) {
    let _ = HOOKS.set(hooks);
}

/// Sleeps until one of the descriptors is ready.
pub(crate) fn poll(list: &mut [pollfd], timeout: Option<Duration>) -> Result<usize, Errno> {
    match HOOKS.get() {
        Some(hooks) => (hooks.poll)(list, timeout).map_err(Errno::from_raw_os_error),
        None => sys::poll(list, timeout),
    }
}

/// Returns true if the handler that is about to run must wait until the thread ends an uninterrupted part.
pub fn defer() -> bool {
    THREAD.with(|thread| {
        let must_wait = thread.depth.load(Ordering::Relaxed) > 0;
        if must_wait {
            thread.has_deferred.store(true, Ordering::Relaxed);
        }
        must_wait
    })
}

/// Records a handler that runs now.
pub fn note_handler(restarts_calls: bool) {
    if !restarts_calls {
        THREAD.with(|thread| thread.is_interrupted.store(true, Ordering::Relaxed));
    }
}

/// Forgets the handlers that ran before a sleep.
pub(crate) fn forget_handlers() {
    THREAD.with(|thread| thread.is_interrupted.store(false, Ordering::Relaxed));
}

/// Returns true if an interrupted call continues, as the kernel does it for `recv`, but never for `poll`: every handler that ran asks
/// for that, or, where no library knows them, every handler of the process.
pub(crate) fn are_calls_restarted() -> bool {
    match HOOKS.get() {
        Some(_) => !THREAD.with(|thread| thread.is_interrupted.load(Ordering::Relaxed)),
        None => (1..=64).all(|signal| !sys::interrupts_calls(signal)),
    }
}
