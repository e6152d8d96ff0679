//! Who sleeps says so first; who works looks, and wakes only the sleepers.
//!
//! # State
//!
//! ```text
//!  a lane's control word (the client writes it, the service reads it)
//!   63     34 33  32 31                 0
//!  +---------+------+--------------------+
//!  |    0    | kind |  awaited sequence  |    all zero: awake
//!  +---------+------+--------------------+    kind 1: sleeps on a futex, 2: waits for its socket (async),
//!                                                    3: yields the core that it shares with the service
//!
//!  the board's rest word (the service writes it, every client reads it): 0 awake, otherwise the number of the sleep
//! ```
//!
//! Only the one who sleeps ever writes its word; a waker that cleared it would erase a later "I sleep".
//! The futex word is the sequence of the completion slot itself: it changes exactly when what the client waits for
//! happens, so there is no second word to keep in step and a wake-up cannot fall between the look and the sleep.
//!
//! # Why nobody sleeps for ever
//!
//! Both directions are the store-buffering pattern, closed by a sequentially consistent fence on each side: of
//! "say that I sleep; fence; look once more" and "publish; fence; look who sleeps" at least one sees the other.
//! And nobody trusts that alone: every sleep has a time-out.

use crate::shm::ring::{Consumer, Slots};
use crate::sync::{AtomicU64, Ordering, order};

const AWAKE: u64 = 0;
const KIND_SHIFT: u32 = 32;

/// How a client sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SleepMode {
    /// On the sequence of the slot that it awaits.
    Futex,
    /// On its socket, which the service sends one byte.
    Socket,
    /// Not at all: it yields the core that it shares with the service, and is let in when that yields.
    Beside,
}

impl SleepMode {
    fn code(self) -> u64 {
        match self {
            Self::Futex => 1,
            Self::Socket => 2,
            Self::Beside => 3,
        }
    }
}

/// What somebody is about to sleep for.
pub(crate) trait ParkCondition {
    /// The sequence it will have.
    fn sequence(&self) -> u32;
    /// Whether it is there.
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

/// Says that the client sleeps until the next entry. Gives false, and says that it is awake, when the entry is there.
pub(crate) fn announce(control: &AtomicU64, sleep: SleepMode, awaited: &mut impl ParkCondition) -> bool {
    control.store(sleep.code() << KIND_SHIFT | u64::from(awaited.sequence()), Ordering::Relaxed);
    order::before_sleep();
    if awaited.is_ready() {
        awaken(control);
        return false;
    }
    true
}

/// Says that the client yields until that entry is there. It does not sleep, so nobody has to look once more.
pub(crate) fn wait_beside(control: &AtomicU64, awaited: u32) {
    control.store(SleepMode::Beside.code() << KIND_SHIFT | u64::from(awaited), Ordering::Relaxed);
}

/// Whether it says so.
pub(crate) fn waits_beside(control: &AtomicU64) -> bool {
    control.load(Ordering::Relaxed) >> KIND_SHIFT == SleepMode::Beside.code()
}

/// Says that the client is awake.
pub(crate) fn awaken(control: &AtomicU64) {
    control.store(AWAKE, Ordering::Relaxed);
}

/// Who sleeps in a lane of which the entries up to sequence `published` are out, after [`order::before_wake`]: how,
/// and for which sequence. Nobody, if what it awaits is not out yet.
pub(crate) fn sleeper(control: &AtomicU64, published: u32) -> Option<(SleepMode, u32)> {
    let word = control.load(Ordering::Relaxed);
    if word == AWAKE {
        return None;
    }
    let sleep = match word >> KIND_SHIFT {
        1 => SleepMode::Futex,
        2 => SleepMode::Socket,
        3 => SleepMode::Beside,
        _ => return None,
    };
    let awaited = word as u32;
    // In the order of a count that wraps.
    let is_out = published.wrapping_sub(awaited) < 1 << 31;
    is_out.then_some((sleep, awaited))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_is_woken_only_for_what_is_out() {
        // If this broke, a client would be woken for nothing, note "woken already", and sleep through the real thing.
        let control = AtomicU64::new(1 << KIND_SHIFT | u64::from(u32::MAX));
        assert_eq!(sleeper(&control, u32::MAX - 1), None);
        assert_eq!(sleeper(&control, u32::MAX), Some((SleepMode::Futex, u32::MAX)));
        assert_eq!(sleeper(&control, 5), Some((SleepMode::Futex, u32::MAX)));
        awaken(&control);
        assert_eq!(sleeper(&control, 5), None);
        wait_beside(&control, 7);
        assert!(waits_beside(&control));
        assert_eq!([6, 7].map(|out| sleeper(&control, out)), [None, Some((SleepMode::Beside, 7))]);
        awaken(&control);
        assert!(!waits_beside(&control));
        let nonsense = AtomicU64::new(u64::MAX);
        assert_eq!(sleeper(&nonsense, 5), None);
    }
}
