//! How a client waits on the service's own core, where only one of the two can run.
//!
//! A sleep and a wake-up take some 2.5 microseconds more than two yields do. So a client that is alone with its service says in
//! its control word that it waits beside it, and yields; the service does what there is to do and yields when the answer is
//! out. That pays only where both are quick: where the answer takes long, or somebody else wants the core too, a client that
//! sleeps keeps nobody out and is let in as soon as it is woken. Then it sleeps for a number of calls, before it tries again.

use std::time::Duration;

/// Yields of one wait, at the most.
pub(crate) const YIELDS_MAX: u32 = 8;
/// An answer that takes longer is worth a sleep.
const QUICK: Duration = Duration::from_micros(40);
/// Calls that sleep after one for which yields were in vain: few, because an interrupt is enough to make an answer late, and of
/// those each core has hundreds a second. Twice as many after each further one in a row,
const RESTS: u32 = 2;
/// and never more than so many.
const RESTS_MAX: u32 = 1024;

/// Whether yields pay, for one lane.
#[derive(Debug)]
pub(crate) struct SameCore {
    /// So many calls are still to sleep.
    resting: u32,
    /// So many would after the next one in vain.
    rests: u32,
}

impl Default for SameCore {
    fn default() -> Self {
        Self { resting: 0, rests: RESTS }
    }
}

impl SameCore {
    /// Whether the call that begins is to yield.
    pub(crate) fn pays(&mut self) -> bool {
        let pays = self.resting == 0;
        self.resting = self.resting.saturating_sub(1);
        pays
    }

    /// A yield took so long, and the answer was there after it or was not. Whether another one is worth trying.
    pub(crate) fn yielded(&mut self, took: Duration, answered: bool) -> bool {
        if took > QUICK {
            self.was_in_vain();
        } else if answered {
            self.rests = RESTS;
        }
        !answered && took <= QUICK
    }

    /// All yields of a wait let nobody in who had the answer.
    pub(crate) fn was_in_vain(&mut self) {
        self.resting = self.rests;
        self.rests = (self.rests * 2).min(RESTS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_whose_yields_are_in_vain_sleeps_and_tries_again_ever_later() {
        // If this broke, a client beside a program that computes, or one whose answers are far away, would lose a slice of its core
        // in each call, or never yield again after one bad moment.
        let mut beside = SameCore::default();
        let sleeps = |beside: &mut SameCore| (0..).take_while(|_| !beside.pays()).count() as u32;
        assert_eq!(sleeps(&mut beside), 0);
        assert!(beside.yielded(QUICK, false), "the answer may come with the next one");
        assert!(!beside.yielded(QUICK, true));
        assert_eq!(sleeps(&mut beside), 0);
        assert!(!beside.yielded(2 * QUICK, true), "somebody else had the core");
        assert_eq!(sleeps(&mut beside), RESTS);
        assert!(!beside.yielded(2 * QUICK, false));
        assert_eq!(sleeps(&mut beside), 2 * RESTS);
        for _ in 0..20 {
            beside.was_in_vain();
            assert!(sleeps(&mut beside) <= RESTS_MAX);
        }
        beside.was_in_vain();
        assert_eq!(sleeps(&mut beside), RESTS_MAX);
        beside.yielded(QUICK, true);
        beside.was_in_vain();
        assert_eq!(sleeps(&mut beside), RESTS);
    }
}
