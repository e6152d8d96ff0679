//! A lock in shared memory that names its owner, so that the death of an owner does not stop the others.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::process::Pid;

/// Looks before the first yield.
const LOOKS: u32 = 64;
/// Yields between two questions whether the owner lives.
const YIELDS: u32 = 512;

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// A held lock.
#[derive(Debug)]
pub(crate) struct ThreadLock<'a>(&'a AtomicU32);

/// Makes the thread ask for its number again: the child of a `fork` has another one.
pub fn forget_thread() {
    THREAD.set(0);
}

fn thread() -> u32 {
    let known = THREAD.get();
    if known != 0 {
        return known;
    }
    let number = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    THREAD.set(number);
    number
}

impl<'a> ThreadLock<'a> {
    /// Takes the lock. `AGAIN`: this thread holds it, and a signal handler tries to take it again.
    #[inline]
    pub(crate) fn take(word: &'a AtomicU32) -> Result<Self, Errno> {
        let own = thread();
        match word.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(Self(word)),
            Err(_) => Self::take_contended(word, own),
        }
    }

    #[cold]
    fn take_contended(word: &'a AtomicU32, own: u32) -> Result<Self, Errno> {
        for look in 1u32.. {
            let owner = word.load(Ordering::Relaxed);
            if owner == own {
                return Err(Errno::AGAIN);
            }
            let is_free = owner == 0 || look.is_multiple_of(YIELDS) && !is_alive(owner);
            if is_free && word.compare_exchange(owner, own, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                break;
            }
            if look < LOOKS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        Ok(Self(word))
    }
}

impl Drop for ThreadLock<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

fn is_alive(thread: u32) -> bool {
    let Some(thread) = Pid::from_raw(thread as i32) else { return false };
    rustix::process::test_kill_process(thread) != Err(Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_of_dead_thread_is_taken() {
        // If this broke, a process killed in a read would stop every process that shares the stream.
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| std::mem::forget(ThreadLock::take(&word).unwrap()));
        });
        assert_ne!(word.load(Ordering::Relaxed), 0);
        drop(ThreadLock::take(&word).unwrap());
        assert_eq!(word.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn second_lock_of_one_thread_is_refused() {
        // If this broke, a signal handler that writes would wait for the thread that it interrupts.
        let word = AtomicU32::new(0);
        let held = ThreadLock::take(&word).unwrap();
        assert_eq!(ThreadLock::take(&word).map(drop), Err(Errno::AGAIN));
        drop(held);
    }
}
