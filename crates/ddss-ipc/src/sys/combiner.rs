//! A flat-combining lock: a thread that finds it held leaves a request bit, which the holder executes.
//!
//! # State
//!
//! ```text
//!   63   62                                          0
//!  +----+---------------------------------------------+
//!  |BUSY|               request bits                  |
//!  +----+---------------------------------------------+
//!
//!    free ── compare-exchange (Acquire), by a thread that acquires ──► BUSY ──┐
//!    ▲                                                                 │  ▲   │ fetch-or (Release), by other threads: leaves requests
//!    └────── compare-exchange (Release), by the holder ────────────────┘  └───┘ swap (Acquire), by the holder: collects requests
//! ```
//!
//! | state | accessed by |
//! | --- | --- |
//! | BUSY | set by a thread that finds it clear; cleared only by the holder, when no request is left |
//! | request bits | set by any thread; collected only by the holder |
//! | the value | the holder, while BUSY is set |
//!
//! One word holds all of it, so no request can be left unnoticed while the holder releases: its exchange fails.
//!
//! # Safety
//!
//! - *Two threads with one value.* BUSY goes from 0 to 1 by one thread's exchange, and only that thread clears it. The
//!   work of earlier holders is visible: Acquire and Release.
//! - *A request is executed by another thread* after all earlier writes of the requesting thread. Its Release pairs
//!   with the holder's Acquire, through requests of other threads in between (each changes the word by one step).
//! - *A holder that panics* releases the lock with its requests; the next thread finds them.

use crate::sync::{AtomicU64, Ordering, UnsafeCell, order};

const BUSY: u64 = 1 << 63;

/// A flat-combining lock: a value that threads use without waiting for each other.
///
/// ```
/// use ddss_ipc::lock_free::Combiner;
///
/// let combiner = Combiner::new(Vec::new());
/// combiner.submit(0b101, |done, requests| done.push(requests));
/// combiner.submit(0b010, |done, requests| {
///     if requests == 0b010 {
///         // The combiner is held, so this returns immediately. The holder executes it in a second round.
///         combiner.submit(0b001, |_, _| unreachable!("the combiner is held"));
///     }
///     done.push(requests);
/// });
/// combiner.submit(0, |done, _| assert_eq!(*done, [0b101, 0b010, 0b001]));
/// ```
pub struct Combiner<T> {
    word: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that has set BUSY accesses the value (see the module's documentation).
unsafe impl<T: Send> Sync for Combiner<T> {}

impl<T> std::fmt::Debug for Combiner<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Combiner").finish_non_exhaustive()
    }
}

/// Releases the lock when its holder panics.
struct CombinerGuard<'a>(&'a AtomicU64);

impl Drop for CombinerGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_and(!BUSY, order::combiner_release());
    }
}

impl<T> Combiner<T> {
    /// Number of request bits.
    pub const BITS: u32 = u64::BITS - 1;

    /// Creates a free combiner.
    pub fn new(value: T) -> Self {
        Self { word: AtomicU64::new(0), value: UnsafeCell::new(value) }
    }

    /// Submits request bits. If the lock is free, this thread executes requests until none is left; otherwise the
    /// holder executes them. Without bits: executes if the lock is free.
    #[inline]
    pub fn submit(&self, requests: u64, mut work: impl FnMut(&mut T, u64)) {
        debug_assert_eq!(requests & BUSY, 0, "the BUSY bit is not a request");
        let mut requests = requests & !BUSY;
        // Pairs with the Release of the last holder.
        if self.word.compare_exchange(0, BUSY, order::combiner_acquire(), Ordering::Relaxed).is_err() {
            // Pairs with the Acquire of the holder; if it has just released, with its Release.
            if self.word.fetch_or(requests | BUSY, order::combiner_request()) & BUSY != 0 {
                return;
            }
            requests = self.word.swap(BUSY, order::combiner_collect()) & !BUSY;
        }
        let guard = CombinerGuard(&self.word);
        loop {
            self.with(&mut |value| work(value, requests));
            // Pairs with the Acquire of the next holder.
            if self.word.compare_exchange(BUSY, 0, order::combiner_release(), Ordering::Relaxed).is_ok() {
                break std::mem::forget(guard);
            }
            // Pairs with the Release of the submitting threads.
            requests = self.word.swap(BUSY, order::combiner_collect()) & !BUSY;
        }
    }

    #[cfg(not(loom))]
    #[inline(always)]
    fn with(&self, work: &mut impl FnMut(&mut T)) {
        // SAFETY: only `submit` calls this, and only while this thread has set BUSY; `work` cannot get here again,
        // since it would find BUSY set.
        work(unsafe { &mut *self.value.get() });
    }

    #[cfg(loom)]
    fn with(&self, work: &mut impl FnMut(&mut T)) {
        // SAFETY: as above, checked by the model checker.
        self.value.with_mut(|value| work(unsafe { &mut *value }));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn each_request_executes_once_and_exclusively() {
        // If this failed, a task's request would wait for that of another task, or go out twice.
        const EACH: usize = 50_000;
        let (combiner, posted) = (Combiner::new([0usize; 4]), std::array::from_fn::<_, 4, _>(|_| AtomicUsize::new(0)));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (combiner, posted) = (&combiner, &posted);
                scope.spawn(move || {
                    for _ in 0..EACH {
                        posted[thread].fetch_add(1, Ordering::Relaxed);
                        combiner.submit(1 << thread, |done, requests| {
                            for (index, done) in
                                done.iter_mut().enumerate().filter(|(index, _)| requests >> index & 1 == 1)
                            {
                                *done += posted[index].swap(0, Ordering::Relaxed);
                            }
                        });
                    }
                });
            }
        });
        combiner.submit(0, |done, requests| assert_eq!((requests, *done), (0, [EACH; 4])));
    }

    #[test]
    fn panicking_holder_releases_combiner() {
        // If this failed, one waker that panics would end all calls of all tasks.
        let combiner = Combiner::new(0);
        let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            combiner.submit(1, |_, _| {
                combiner.submit(2, |_, _| ());
                panic!("on purpose");
            });
        }));
        assert!(died.is_err());
        let mut seen = 0;
        combiner.submit(4, |_, requests| seen |= requests);
        assert_eq!(seen, 6);
    }
}
