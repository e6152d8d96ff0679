//! Wait policy of a client on the service's own core, where only one of the two can run.
//!
//! A sleep and a wake-up take some 2.5 microseconds more than two yields. So a client that is alone with its service
//! announces in its control word that it waits on this core, and yields. The service works, and yields when the reply
//! is published. That pays only if both are quick. If the reply takes long, or another thread wants the core, a
//! sleeping client keeps no thread out and runs as soon as it is woken. The client then sleeps for a number of calls
//! before it tries to yield again.

use std::time::Duration;

/// Maximum of yields in one wait.
pub(crate) const YIELDS_MAX: u32 = 8;
/// Time beyond which a reply is worth a sleep.
const QUICK_YIELD: Duration = Duration::from_micros(40);
/// Calls that sleep after a failed yield. Few, because one interrupt is enough to delay a reply, and each core has
/// hundreds a second. Each further failure in a row doubles the number,
const BACKOFF_CALLS: u32 = 2;
/// up to this maximum.
const BACKOFF_CALLS_MAX: u32 = 1024;

/// Yield policy of one channel.
#[derive(Debug)]
pub(crate) struct SameCore {
    /// Calls that still have to sleep.
    calls_until_retry: u32,
    /// Calls that will sleep after the next failure.
    backoff_calls: u32,
}

impl Default for SameCore {
    fn default() -> Self {
        Self { calls_until_retry: 0, backoff_calls: BACKOFF_CALLS }
    }
}

impl SameCore {
    /// Returns true if the call that begins should yield.
    pub(crate) fn should_yield(&mut self) -> bool {
        let should_yield = self.calls_until_retry == 0;
        self.calls_until_retry = self.calls_until_retry.saturating_sub(1);
        should_yield
    }

    /// Records the time of a yield and whether the reply arrived. Returns true if another yield is worth a try.
    pub(crate) fn record_yield(&mut self, took: Duration, answered: bool) -> bool {
        if took > QUICK_YIELD {
            self.record_failure();
        } else if answered {
            self.backoff_calls = BACKOFF_CALLS;
        }
        !answered && took <= QUICK_YIELD
    }

    /// Records that the yields of a wait did not bring the reply.
    pub(crate) fn record_failure(&mut self) {
        self.calls_until_retry = self.backoff_calls;
        self.backoff_calls = (self.backoff_calls * 2).min(BACKOFF_CALLS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_yields_back_off_exponentially() {
        // If this broke, a client beside a computing program, or with slow replies, would lose a slice of its core in
        // each call, or never yield again after one failure.
        let mut same_core = SameCore::default();
        let sleeps = |same_core: &mut SameCore| (0..).take_while(|_| !same_core.should_yield()).count() as u32;
        assert_eq!(sleeps(&mut same_core), 0);
        assert!(same_core.record_yield(QUICK_YIELD, false), "the reply may arrive with the next yield");
        assert!(!same_core.record_yield(QUICK_YIELD, true));
        assert_eq!(sleeps(&mut same_core), 0);
        assert!(!same_core.record_yield(2 * QUICK_YIELD, true), "another thread had the core");
        assert_eq!(sleeps(&mut same_core), BACKOFF_CALLS);
        assert!(!same_core.record_yield(2 * QUICK_YIELD, false));
        assert_eq!(sleeps(&mut same_core), 2 * BACKOFF_CALLS);
        for _ in 0..20 {
            same_core.record_failure();
            assert!(sleeps(&mut same_core) <= BACKOFF_CALLS_MAX);
        }
        same_core.record_failure();
        assert_eq!(sleeps(&mut same_core), BACKOFF_CALLS_MAX);
        same_core.record_yield(QUICK_YIELD, true);
        same_core.record_failure();
        assert_eq!(sleeps(&mut same_core), BACKOFF_CALLS);
    }
}
