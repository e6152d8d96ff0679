//! One thing that many threads need, and for which none of them waits: who finds another one at work leaves word, and goes.
//!
//! # State
//!
//! ```text
//!   63   62                                          0
//!  +----+---------------------------------------------+
//!  |BUSY|            what was left to do              |
//!  +----+---------------------------------------------+
//!
//!   0 ──── compare-exchange (Acquire), by who comes ────► BUSY ──┐
//!   ▲                                                     │  ▲   │ fetch-or (Release), by who finds it so: word is left
//!   └──── compare-exchange (Release), by who worked ──────┘  └───┘ swap (Acquire), by who works: word is taken
//! ```
//!
//! | what | who touches it |
//! | --- | --- |
//! | BUSY | set by who comes when it is not set; cleared only by who has set it, and only when nothing is left to do |
//! | what was left | set by anybody; taken only by who has set BUSY |
//! | the value | who has set BUSY, from then on until he clears it |
//!
//! All of it is one word, so that word cannot be left behind the back of who goes: his exchange fails.
//!
//! # Safety
//!
//! - *Two threads with one value.* BUSY goes from 0 to 1 by one thread's exchange, and it alone leads back. What was done
//!   by who had it before is seen: Acquire and Release.
//! - *Word that is left by a thread is done by another one* after all that the first one wrote before: its Release pairs with
//!   the Acquire of who takes it, through whatever others have left in between (they change the word by one step each).
//! - *A worker that panics* gives the desk back with what was left; who comes next finds it.

use crate::sync::{AtomicU64, Ordering, UnsafeCell, order};

const BUSY: u64 = 1 << 63;

/// One thing that many threads need, and for which none of them waits.
///
/// ```
/// use ddss_ipc::Desk;
///
/// let desk = Desk::new(Vec::new());
/// desk.leave(0b101, |done, left| done.push(left));
/// desk.leave(0b010, |done, left| {
///     if left == 0b010 {
///         // Whoever comes now, goes again; what he left is done in a second round.
///         desk.leave(0b001, |_, _| unreachable!("somebody is at it"));
///     }
///     done.push(left);
/// });
/// desk.leave(0, |done, _| assert_eq!(*done, [0b101, 0b010, 0b001]));
/// ```
pub struct Combiner<T> {
    word: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached by the one thread that has set BUSY (see the module's page).
unsafe impl<T: Send> Sync for Combiner<T> {}

impl<T> std::fmt::Debug for Combiner<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Desk").finish_non_exhaustive()
    }
}

/// Gives the desk back when its worker panics.
struct CombinerGuard<'a>(&'a AtomicU64);

impl Drop for CombinerGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_and(!BUSY, order::leave_desk());
    }
}

impl<T> Combiner<T> {
    /// Bits of a word that can be left.
    pub const BITS: u32 = u64::BITS - 1;

    /// Nobody is at work.
    pub fn new(value: T) -> Self {
        Self { word: AtomicU64::new(0), value: UnsafeCell::new(value) }
    }

    /// Leaves word: sets bits. If nobody is at work, this thread works, until nothing more is left; else who works does it,
    /// as soon as he can. With no bits: works if nobody does.
    #[inline]
    pub fn leave(&self, left: u64, mut work: impl FnMut(&mut T, u64)) {
        debug_assert_eq!(left & BUSY, 0, "one bit is not to be left");
        let mut left = left & !BUSY;
        // Pairs with the Release of who was here before.
        if self.word.compare_exchange(0, BUSY, order::enter_desk(), Ordering::Relaxed).is_err() {
            // Pairs with the Acquire of who takes it; and, should he just have gone, with his Release.
            if self.word.fetch_or(left | BUSY, order::leave_word()) & BUSY != 0 {
                return;
            }
            left = self.word.swap(BUSY, order::take_word()) & !BUSY;
        }
        let stay = CombinerGuard(&self.word);
        loop {
            self.with(&mut |value| work(value, left));
            // Pairs with the Acquire of who comes next.
            if self.word.compare_exchange(BUSY, 0, order::leave_desk(), Ordering::Relaxed).is_ok() {
                break std::mem::forget(stay);
            }
            // Pairs with the Release of who left it.
            left = self.word.swap(BUSY, order::take_word()) & !BUSY;
        }
    }

    #[cfg(not(loom))]
    #[inline(always)]
    fn with(&self, work: &mut impl FnMut(&mut T)) {
        // SAFETY: only `leave` calls this, and only while this thread has set BUSY; `work` cannot come back here, since it
        // would find BUSY set.
        work(unsafe { &mut *self.value.get() });
    }

    #[cfg(loom)]
    fn with(&self, work: &mut impl FnMut(&mut T)) {
        // SAFETY: as above, under the eyes of the model checker.
        self.value.with_mut(|value| work(unsafe { &mut *value }));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn whatever_is_left_is_done_once_and_by_one_at_a_time() {
        // If this broke, a task's request would lie there until somebody else's comes, or go out twice.
        const EACH: usize = 50_000;
        let (desk, posted) = (Combiner::new([0usize; 4]), std::array::from_fn::<_, 4, _>(|_| AtomicUsize::new(0)));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (desk, posted) = (&desk, &posted);
                scope.spawn(move || {
                    for _ in 0..EACH {
                        posted[thread].fetch_add(1, Ordering::Relaxed);
                        desk.leave(1 << thread, |done, left| {
                            for (index, done) in done.iter_mut().enumerate().filter(|(index, _)| left >> index & 1 == 1)
                            {
                                *done += posted[index].swap(0, Ordering::Relaxed);
                            }
                        });
                    }
                });
            }
        });
        desk.leave(0, |done, left| assert_eq!((left, *done), (0, [EACH; 4])));
    }

    #[test]
    fn a_worker_that_panics_leaves_the_desk_to_others() {
        // If this broke, one waker that panics would end all calls of all tasks.
        let desk = Combiner::new(0);
        let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            desk.leave(1, |_, _| {
                desk.leave(2, |_, _| ());
                panic!("on purpose");
            });
        }));
        assert!(died.is_err());
        let mut seen = 0;
        desk.leave(4, |_, left| seen |= left);
        assert_eq!(seen, 6);
    }
}
