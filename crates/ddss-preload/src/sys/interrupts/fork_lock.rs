//! A lock that neither a signal handler nor the child of a `fork` finds held for ever.
//!
//! ```text
//!  word   0 free, 1 held, 2 held, and threads may sleep
//! ```
//!
//! The holder runs uninterrupted. `fork` takes every lock before and releases it in both processes; std's locks cannot be released by
//! another function than the one that took them. A process that was created past libc's `fork` does not wait for its parent's threads.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use ddss_stream::signals::Uninterrupted;
use rustix::thread::futex;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
/// Looks before the first sleep.
const LOOKS: u32 = 100;

/// A value and its lock.
pub(crate) struct ForkLock<T> {
    word: AtomicU32,
    /// Process whose threads use the lock.
    process: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands the value to one thread at a time.
unsafe impl<T: Send> Sync for ForkLock<T> {}

/// A held lock.
pub(crate) struct ForkGuard<'a, T> {
    lock: &'a ForkLock<T>,
    _uninterrupted: Uninterrupted,
}

impl<T> ForkLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), process: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Takes the lock. `None`: a thread of another process held it when this process was created, past libc's `fork`.
    #[inline]
    pub(crate) fn take(&self) -> Option<ForkGuard<'_, T>> {
        let uninterrupted = Uninterrupted::begin();
        let is_taken = self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok();
        (is_taken || self.take_contended()).then(|| ForkGuard { lock: self, _uninterrupted: uninterrupted })
    }

    #[cold]
    fn take_contended(&self) -> bool {
        if self.process.load(Ordering::Relaxed) != process() {
            return false;
        }
        for _ in 0..LOOKS {
            if self.word.load(Ordering::Relaxed) == FREE
                && self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return true;
            }
            std::hint::spin_loop();
        }
        while self.word.swap(CONTENDED, Ordering::Acquire) != FREE {
            // Every return is followed by another look.
            let _ = futex::wait(&self.word, futex::Flags::PRIVATE, CONTENDED, None);
        }
        true
    }

    fn release(&self) {
        if self.word.swap(FREE, Ordering::Release) == CONTENDED {
            let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
        }
    }

    /// Makes this process the one that uses the lock.
    pub(crate) fn adopt(&self) {
        self.process.store(process(), Ordering::Relaxed);
    }

    /// Returns the guard that this thread left to a `fork`, in the parent or in the child. `None`: it left none.
    pub(crate) fn resume_after_fork(&self) -> Option<ForkGuard<'_, T>> {
        let uninterrupted = Uninterrupted::resume()?;
        self.adopt();
        Some(ForkGuard { lock: self, _uninterrupted: uninterrupted })
    }
}

impl<T> ForkGuard<'_, T> {
    /// Keeps the lock for the `fork` that this thread is about to make.
    pub(crate) fn leave_to_fork(self) {
        std::mem::forget(self);
    }
}

impl<T> Deref for ForkGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for ForkGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread holds the lock.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for ForkGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.release();
    }
}

fn process() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get() as u32
}
