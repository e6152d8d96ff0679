//! A pool of values with exclusive owners. A thread that finds a value taken tries another one instead of waiting.
//!
//! # State
//!
//! ```text
//!           compare-exchange (Acquire), by the thread that acquires it
//!   FREE ─────────────────────────────────────────────────────────────► TAKEN
//!        ◄─────────────────────────────────────────────────────────────
//!           store (Release), by the owner
//! ```
//!
//! | state | accessed by |
//! | --- | --- |
//! | a slot's word | any thread that looks for a free slot; from TAKEN to FREE only the owner |
//! | a slot's value | the owner, until it releases the slot |
//!
//! Acquiring is one exchange that succeeds or not. A thread that is preempted, or dies with its process, in the middle
//! of a call only blocks its own slot. Threads return to the slot that they had, whose line stays in their core's
//! cache.
//!
//! # Safety
//!
//! - *Two threads with one value.* The exchange lets one thread from FREE to TAKEN, and only its [`PoolGuard`], which
//!   cannot be copied, leads back. The writes of one owner are visible to the next: its Acquire pairs with the Release.
//! - *The value outlives its guard.* [`PoolGuard`] borrows the [`TryLockPool`].

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, Ordering, UnsafeCell, order};

const FREE: u64 = 0;
const TAKEN: u64 = 1;

/// A value and its owner word.
struct PoolSlot<T> {
    word: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through a `PoolGuard`, of which there is one at a time (see the module's
// documentation).
unsafe impl<T: Send> Sync for PoolSlot<T> {}

/// A pool of values with exclusive owners.
///
/// ```
/// use ddss_ipc::lock_free::TryLockPool;
///
/// let pool = TryLockPool::new(["first", "second"]);
/// let mine = pool.try_acquire(0).expect("the first value is free");
/// let other = pool.try_acquire(0).expect("the second value is free");
/// assert_eq!((*mine, *other), ("first", "second"));
/// assert!(pool.try_acquire(0).is_none(), "no value is free");
/// drop(mine);
/// assert_eq!(*pool.try_acquire(1).expect("one is free again"), "first");
/// ```
pub struct TryLockPool<T> {
    slots: Box<[CachePadded<PoolSlot<T>>]>,
}

impl<T> std::fmt::Debug for TryLockPool<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("TryLockPool").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

impl<T> TryLockPool<T> {
    /// Creates a pool of free values.
    pub fn new(values: impl IntoIterator<Item = T>) -> Self {
        let slot = |value| CachePadded::new(PoolSlot { word: AtomicU64::new(FREE), value: UnsafeCell::new(value) });
        Self { slots: values.into_iter().map(slot).collect() }
    }

    /// Acquires the preferred slot (an index that wraps around), or else another free one.
    #[inline]
    pub fn try_acquire(&self, preferred: usize) -> Option<PoolGuard<'_, T>> {
        let count = self.slots.len();
        let first = preferred.checked_rem(count)?;
        self.try_acquire_at(first).or_else(|| (1..count).find_map(|step| self.try_acquire_at((first + step) % count)))
    }

    /// Acquires each slot that is free at its turn, one after the other.
    pub fn acquire_each(&self) -> impl Iterator<Item = Option<PoolGuard<'_, T>>> {
        (0..self.slots.len()).map(|index| self.try_acquire_at(index))
    }

    #[inline]
    fn try_acquire_at(&self, index: usize) -> Option<PoolGuard<'_, T>> {
        let slot = &self.slots[index];
        // Pairs with the Release in `PoolGuard::drop`.
        let acquired = slot.word.compare_exchange(FREE, TAKEN, order::pool_acquire(), Ordering::Relaxed);
        // Only the owner may create a guard: a dropped `PoolGuard` releases the slot unconditionally.
        acquired.is_ok().then(|| PoolGuard { slot })
    }
}

/// Exclusive access to a value of the pool until it is dropped.
pub struct PoolGuard<'pool, T> {
    slot: &'pool PoolSlot<T>,
}

impl<T> Drop for PoolGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Pairs with the Acquire in `TryLockPool::try_acquire_at`.
        self.slot.word.store(FREE, order::pool_release());
    }
}

impl<T> PoolGuard<'_, T> {
    /// Accesses the value, checked by the model checker.
    #[cfg(loom)]
    pub(crate) fn with<R>(&mut self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: `self` is the only guard of this slot, and it is borrowed for as long as the reference lives.
        self.slot.value.with_mut(|value| work(unsafe { &mut *value }))
    }
}

#[cfg(not(loom))]
impl<T> std::ops::Deref for PoolGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `self` is the only guard of this slot, and it is borrowed for as long as the reference lives.
        unsafe { &*self.slot.value.get() }
    }
}

#[cfg(not(loom))]
impl<T> std::ops::DerefMut for PoolGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `self` is borrowed exclusively.
        unsafe { &mut *self.slot.value.get() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn threads_that_outnumber_the_places_never_share_one() {
        // If this failed, two threads would write into one ring, and each would get the other's reply.
        let pool = TryLockPool::new([0u64; 3]);
        let made: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6)
                .map(|thread| {
                    let pool = &pool;
                    scope.spawn(move || {
                        let mut made = 0;
                        for _ in 0..20_000 {
                            let Some(mut mine) = pool.try_acquire(thread) else { continue };
                            // Not one step: another thread between the two would show in the sum.
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
        let counted: u64 = [0, 1, 2].map(|slot| *pool.try_acquire(slot).unwrap()).iter().sum();
        assert_eq!(counted, made);
        assert!(TryLockPool::<u64>::new([]).try_acquire(7).is_none());
    }

    #[test]
    fn panicking_thread_releases_its_slot() {
        // If this failed, each panic would cost its client a channel, and the eighth one all calls.
        let pool = TryLockPool::new([5]);
        let died = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let mut mine = pool.try_acquire(0).unwrap();
                    *mine = 6;
                    panic!("on purpose");
                })
                .join()
        });
        assert!(died.is_err());
        assert_eq!(*pool.try_acquire(0).unwrap(), 6);
    }
}
