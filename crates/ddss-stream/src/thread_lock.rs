//! A lock in shared memory that names its owner, so that the death of an owner does not stop the others.
//!
//! The word is 0 or the owner: its thread number in the low half, its start time in the high half. The number alone would not do: the
//! kernel gives the number of a killed thread to another one. A live owner that makes no progress (a stopped process) is waited for until
//! a deadline, and never robbed.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::limits::LOCK_WAIT;
use crate::signals::Uninterrupted;

/// Looks before the first yield.
const LOOKS: u32 = 64;
/// Looks before the first sleep.
const YIELDS: u32 = 512;
/// Time between two looks of a thread that sleeps.
const NAP: Duration = Duration::from_millis(1);
/// Position of the start time among the fields behind the name in `/proc/TID/stat`.
const START_TIME: usize = 19;

thread_local! {
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// A held lock. No handler of a signal runs meanwhile, if a library knows the handlers.
#[derive(Debug)]
pub(crate) struct ThreadLock<'a> {
    word: &'a AtomicU64,
    _uninterrupted: Uninterrupted,
}

/// Makes the thread ask for its number again: the child of a `fork` has another one.
pub fn forget_thread() {
    THREAD.set(0);
    crate::sys::forget_raised_limit();
    crate::forks::forget_other_threads();
}

fn thread() -> u64 {
    let known = THREAD.get();
    if known != 0 {
        return known;
    }
    let number = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let owner = start_time(number) << 32 | u64::from(number);
    THREAD.set(owner);
    owner
}

impl<'a> ThreadLock<'a> {
    /// Takes the lock. `DEADLK`: this thread holds it, and a signal handler tries to take it again. `AGAIN`: its owner is stopped.
    #[inline]
    pub(crate) fn take(word: &'a AtomicU64) -> Result<Self, Errno> {
        Self::take_within(word, LOCK_WAIT)
    }

    /// Takes the lock if it is free.
    pub(crate) fn take_free(word: &'a AtomicU64) -> Option<Self> {
        Self::try_take(word, 0, thread())
    }

    #[inline]
    fn take_within(word: &'a AtomicU64, limit: Duration) -> Result<Self, Errno> {
        let own = thread();
        match Self::try_take(word, 0, own) {
            Some(lock) => Ok(lock),
            None => Self::take_contended(word, own, limit),
        }
    }

    #[inline]
    fn try_take(word: &'a AtomicU64, owner: u64, own: u64) -> Option<Self> {
        let uninterrupted = Uninterrupted::begin();
        let taken = word.compare_exchange(owner, own, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| Self { word, _uninterrupted: uninterrupted })
    }

    #[cold]
    fn take_contended(word: &'a AtomicU64, own: u64, limit: Duration) -> Result<Self, Errno> {
        let start = Instant::now();
        for look in 1u32.. {
            let owner = word.load(Ordering::Relaxed);
            if owner == own {
                return Err(Errno::DEADLK);
            }
            if (owner == 0 || look >= YIELDS && !is_alive(owner))
                && let Some(lock) = Self::try_take(word, owner, own)
            {
                return Ok(lock);
            }
            if look < LOOKS {
                std::hint::spin_loop();
            } else if look < YIELDS {
                std::thread::yield_now();
            } else if start.elapsed() < limit {
                std::thread::sleep(NAP);
            } else {
                break;
            }
        }
        Err(Errno::AGAIN)
    }
}

impl Drop for ThreadLock<'_> {
    #[inline]
    fn drop(&mut self) {
        self.word.store(0, Ordering::Release);
    }
}

/// Returns true if the thread with this number is still the one that took the lock.
fn is_alive(owner: u64) -> bool {
    let number = owner as u32;
    let Some(thread) = Pid::from_raw(number as i32) else { return false };
    if rustix::process::test_kill_process(thread) == Err(Errno::SRCH) {
        return false;
    }
    // Without `/proc` both times are 0, and the number alone decides.
    let now = start_time(number);
    now == 0 || owner >> 32 == 0 || now == owner >> 32
}

/// Returns the low half of a thread's start time in clock ticks, or 0. Allocates nothing: signal handlers may write to a stream.
fn start_time(number: u32) -> u64 {
    let mut path = *b"/proc/0000000000/stat\0";
    let mut rest = number;
    for digit in path[6..16].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    // The kernel refuses leading zeros.
    let zeros = path[6..15].iter().take_while(|digit| **digit == b'0').count();
    path.copy_within(6 + zeros.., 6);
    let Ok(path) = std::ffi::CStr::from_bytes_until_nul(&path) else { return 0 };
    let mut text = [0; 512];
    let Ok(file) = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else { return 0 };
    let Ok(bytes) = rustix::io::read(&file, &mut text) else { return 0 };
    // The name of a program may contain spaces and brackets.
    let Some(name_end) = text[..bytes].iter().rposition(|byte| *byte == b')') else { return 0 };
    let mut fields = text[name_end + 1..bytes].split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let ticks = fields.nth(START_TIME).and_then(|field| std::str::from_utf8(field).ok()?.parse::<u64>().ok());
    ticks.map_or(0, |ticks| u64::from(ticks as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_of_dead_thread_is_taken() {
        // If this broke, a process killed in a read would stop every process that shares the stream.
        let word = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| std::mem::forget(ThreadLock::take(&word).unwrap()));
        });
        assert_ne!(word.load(Ordering::Relaxed), 0);
        drop(ThreadLock::take(&word).unwrap());
        assert_eq!(word.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn lock_of_dead_thread_is_taken_although_its_number_was_reused() {
        // If this broke, the number of a killed process, given to a new one, would keep its lock for ever.
        let word = AtomicU64::new(u64::from(std::process::id()) | 1 << 63);
        drop(ThreadLock::take(&word).unwrap());
    }

    #[test]
    fn lock_of_live_owner_is_waited_for_and_never_stolen() {
        // If this broke, a stopped process would hang the others, or would spoil the ring when it continues.
        let word = AtomicU64::new(0);
        let held = ThreadLock::take(&word).unwrap();
        let owner = word.load(Ordering::Relaxed);
        let taken = std::thread::scope(|scope| {
            scope.spawn(|| ThreadLock::take_within(&word, Duration::from_millis(20)).map(drop)).join().unwrap()
        });
        assert_eq!((taken, word.load(Ordering::Relaxed)), (Err(Errno::AGAIN), owner));
        drop(held);
    }

    #[test]
    fn second_lock_of_one_thread_is_refused() {
        // If this broke, a signal handler that writes would wait for the thread that it interrupts.
        let word = AtomicU64::new(0);
        let held = ThreadLock::take(&word).unwrap();
        assert_eq!(ThreadLock::take(&word).map(drop), Err(Errno::DEADLK));
        drop(held);
    }
}
