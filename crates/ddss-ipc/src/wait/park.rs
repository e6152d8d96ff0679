//! Sleep and wake-up protocol: a thread announces its sleep, and the other side wakes only sleepers.
//!
//! # State
//!
//! ```text
//!  a channel's control word (the client writes it, the service reads it)
//!   63     34 33  32 31                 0
//!  +---------+------+--------------------+
//!  |    0    | kind |  awaited sequence  |    all zero: awake
//!  +---------+------+--------------------+    kind 1: sleeps on a futex, 2: waits for its socket (async)
//!
//!  the service page's sleep id (the service writes it, every client reads it): 0 awake, otherwise the number of the sleep
//! ```
//!
//! Only the sleeper writes its word; a waker that cleared it would erase a later announcement. The futex word is the
//! sequence of the completion slot itself. It changes exactly when the awaited event happens, so there is no second
//! word to keep in step, and a wake-up cannot fall between the check and the sleep.
//!
//! # Why no thread sleeps forever
//!
//! Both directions are the store-buffering pattern, closed by a sequentially consistent fence on each side. Of
//! "announce the sleep; fence; check once more" and "publish; fence; check for sleepers" at least one sees the other.
//! As a second safeguard, every sleep has a time-out.

use crate::shm::ring::{Consumer, Slots};
use crate::sync::{AtomicU64, Ordering, order};

const AWAKE: u64 = 0;
const KIND_SHIFT: u32 = 32;

/// Mode of a client's sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SleepMode {
    /// On the sequence of the awaited slot.
    Futex,
    /// On its socket, to which the service sends one byte.
    Socket,
}

impl SleepMode {
    fn code(self) -> u64 {
        match self {
            Self::Futex => 1,
            Self::Socket => 2,
        }
    }
}

/// Event that a thread is about to sleep for.
pub(crate) trait ParkCondition {
    /// Returns the sequence of the event.
    fn sequence(&self) -> u32;
    /// Returns true if the event has happened.
    fn is_ready(&mut self) -> bool;
}

impl<S: Slots> ParkCondition for Consumer<S> {
    fn sequence(&self) -> u32 {
        self.awaited()
    }

    fn is_ready(&mut self) -> bool {
        Consumer::is_ready(self)
    }
}

/// Announces that the client sleeps until the next entry. Returns false, announced as awake, when the entry is there.
pub(crate) fn announce_sleep(control: &AtomicU64, sleep: SleepMode, awaited: &mut impl ParkCondition) -> bool {
    control.store(sleep.code() << KIND_SHIFT | u64::from(awaited.sequence()), Ordering::Relaxed);
    order::before_client_sleep();
    if awaited.is_ready() {
        announce_awake(control);
        return false;
    }
    true
}

/// Announces that the client is awake.
pub(crate) fn announce_awake(control: &AtomicU64) {
    control.store(AWAKE, Ordering::Relaxed);
}

/// Returns the mode and the awaited sequence of a channel's sleeper, if the entries up to sequence `published` include
/// the awaited one. Call after [`order::before_wake`].
pub(crate) fn find_sleeper(control: &AtomicU64, published: u32) -> Option<(SleepMode, u32)> {
    let word = control.load(Ordering::Relaxed);
    if word == AWAKE {
        return None;
    }
    let sleep = match word >> KIND_SHIFT {
        1 => SleepMode::Futex,
        2 => SleepMode::Socket,
        _ => return None,
    };
    let awaited = word as u32;
    // Comparison of counts that wrap.
    let is_out = published.wrapping_sub(awaited) < 1 << 31;
    is_out.then_some((sleep, awaited))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sleeper_is_woken_only_for_published_entries() {
        // If this failed, a client would be woken too early, count as woken already, and sleep through the real event.
        let control = AtomicU64::new(1 << KIND_SHIFT | u64::from(u32::MAX));
        assert_eq!(find_sleeper(&control, u32::MAX - 1), None);
        assert_eq!(find_sleeper(&control, u32::MAX), Some((SleepMode::Futex, u32::MAX)));
        assert_eq!(find_sleeper(&control, 5), Some((SleepMode::Futex, u32::MAX)));
        announce_awake(&control);
        assert_eq!(find_sleeper(&control, 5), None);
        let nonsense = AtomicU64::new(u64::MAX);
        assert_eq!(find_sleeper(&nonsense, 5), None);
    }
}
