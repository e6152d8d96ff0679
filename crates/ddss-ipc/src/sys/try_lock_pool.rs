//! Things of which each is one thread's at a time. Nobody waits for one that is taken: there are others.
//!
//! # State
//!
//! ```text
//!           compare-exchange (Acquire), by who claims it
//!   FREE ─────────────────────────────────────────────────► TAKEN
//!        ◄─────────────────────────────────────────────────
//!           store (Release), by who claimed it
//! ```
//!
//! | what | who touches it |
//! | --- | --- |
//! | a place's word | whoever looks for a free one; from TAKEN to FREE only who claimed it |
//! | a place's value | who claimed it, from its claim until it gives it back |
//!
//! A claim is one exchange that succeeds or not, so that a thread that is preempted, or dies with its process, in the
//! middle of a call keeps nobody else from anything but this one place. Threads come back to the place that they had: its
//! line stays in their core's cache.
//!
//! # Safety
//!
//! - *Two threads with one value.* The exchange lets one thread from FREE to TAKEN, and only its [`PoolGuard`], which
//!   cannot be copied, leads back. What one holder wrote is seen by the next one: its Acquire pairs with the Release.
//! - *The value outlives its claim.* [`PoolGuard`] borrows the [`TryLockPool`].

use crate::sync::{AtomicU64, Ordering, UnsafeCell, order};

const FREE: u64 = 0;
const TAKEN: u64 = 1;

/// One thing, and whose it is. Two lines, since processors fetch lines in pairs.
#[repr(align(128))]
struct PoolSlot<T> {
    word: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through a `PoolGuard`, of which there is one at a time (see the module's page).
unsafe impl<T: Send> Sync for PoolSlot<T> {}

/// Things of which each is one thread's at a time.
///
/// ```
/// use ddss_ipc::Claims;
///
/// let claims = Claims::new(["first", "second"]);
/// let mine = claims.claim(0).expect("nobody has it");
/// let other = claims.claim(0).expect("there is another one");
/// assert_eq!((*mine, *other), ("first", "second"));
/// assert!(claims.claim(0).is_none(), "nobody waits");
/// drop(mine);
/// assert_eq!(*claims.claim(1).expect("one is free again"), "first");
/// ```
pub struct TryLockPool<T> {
    places: Box<[PoolSlot<T>]>,
}

impl<T> std::fmt::Debug for TryLockPool<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Claims").field("places", &self.places.len()).finish_non_exhaustive()
    }
}

impl<T> TryLockPool<T> {
    /// These things, all of them free.
    pub fn new(values: impl IntoIterator<Item = T>) -> Self {
        let place = |value| PoolSlot { word: AtomicU64::new(FREE), value: UnsafeCell::new(value) };
        Self { places: values.into_iter().map(place).collect() }
    }

    /// Takes the preferred one (a number that wraps around), or else another one that is free.
    #[inline]
    pub fn claim(&self, preferred: usize) -> Option<PoolGuard<'_, T>> {
        let count = self.places.len();
        let first = preferred.checked_rem(count)?;
        self.try_claim(first).or_else(|| (1..count).find_map(|step| self.try_claim((first + step) % count)))
    }

    #[inline]
    fn try_claim(&self, index: usize) -> Option<PoolGuard<'_, T>> {
        let place = &self.places[index];
        // Pairs with the Release in `PoolGuard::drop`.
        let claimed = place.word.compare_exchange(FREE, TAKEN, order::claim(), Ordering::Relaxed);
        // Only who has it may make one: a `PoolGuard` that is dropped gives the place back, whoever has it.
        claimed.is_ok().then(|| PoolGuard { place })
    }
}

/// A thing that is this thread's until this is dropped.
pub struct PoolGuard<'claims, T> {
    place: &'claims PoolSlot<T>,
}

impl<T> Drop for PoolGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Pairs with the Acquire in `TryLockPool::try_claim`.
        self.place.word.store(FREE, order::give_back());
    }
}

impl<T> PoolGuard<'_, T> {
    /// Works with it, under the eyes of the model checker.
    #[cfg(loom)]
    pub(crate) fn with<R>(&mut self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: `self` is the only claim of this place, and it is borrowed for as long as the reference lives.
        self.place.value.with_mut(|value| work(unsafe { &mut *value }))
    }
}

#[cfg(not(loom))]
impl<T> std::ops::Deref for PoolGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `self` is the only claim of this place, and it is borrowed for as long as the reference lives.
        unsafe { &*self.place.value.get() }
    }
}

#[cfg(not(loom))]
impl<T> std::ops::DerefMut for PoolGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `self` is borrowed alone.
        unsafe { &mut *self.place.value.get() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn threads_that_outnumber_the_places_never_share_one() {
        // If this broke, two threads would write into one ring, and each would get the other's answer.
        let claims = TryLockPool::new([0u64; 3]);
        let made: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6)
                .map(|thread| {
                    let claims = &claims;
                    scope.spawn(move || {
                        let mut made = 0;
                        for _ in 0..20_000 {
                            let Some(mut mine) = claims.claim(thread) else { continue };
                            // Not one step: another thread between the two would be seen in the sum.
                            let seen = *mine;
                            std::hint::spin_loop();
                            *mine = seen + 1;
                            made += 1;
                        }
                        made
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        let counted: u64 = [0, 1, 2].map(|place| *claims.claim(place).unwrap()).iter().sum();
        assert_eq!(counted, made);
        assert!(TryLockPool::<u64>::new([]).claim(7).is_none());
    }

    #[test]
    fn a_thread_that_dies_in_the_middle_gives_back_what_it_had() {
        // If this broke, each panic would cost its client a lane, and the eighth one all calls.
        let claims = TryLockPool::new([5]);
        let died = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let mut mine = claims.claim(0).unwrap();
                    *mine = 6;
                    panic!("on purpose");
                })
                .join()
        });
        assert!(died.is_err());
        assert_eq!(*claims.claim(0).unwrap(), 6);
    }
}
