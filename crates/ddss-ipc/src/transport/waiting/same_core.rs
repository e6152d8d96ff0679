//! Wait policy of a client on the service's own core, where only one of the two can run.
//!
//! A sleep and a wake-up take some 2.5 microseconds more than two yields. So a client that is alone with its service
//! announces in its control word that it waits on this core, and yields. The service works, and yields when the reply
//! is published. That pays only if both are quick. If the reply takes long, or another thread wants the core, a
//! sleeping client keeps no thread out and runs as soon as it is woken. The client then sleeps for a number of calls
//! before it tries to yield again.

use std::time::Duration;

use crate::wait::config::WAIT;

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
        Self { calls_until_retry: 0, backoff_calls: WAIT.backoff_calls }
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
        if took > WAIT.quick_yield_max {
            self.record_failure();
        } else if answered {
            self.backoff_calls = WAIT.backoff_calls;
        }
        !answered && took <= WAIT.quick_yield_max
    }

    /// Records that the yields of a wait did not bring the reply.
    pub(crate) fn record_failure(&mut self) {
        self.calls_until_retry = self.backoff_calls;
        self.backoff_calls = (self.backoff_calls * 2).min(WAIT.backoff_calls_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_yields_back_off_exponentially() {
        // If this failed, a client beside a computing program, or with slow replies, would lose a slice of its core in
        // each call, or never yield again after one failure.
        let mut same_core = SameCore::default();
        let sleeps = |same_core: &mut SameCore| (0..).take_while(|_| !same_core.should_yield()).count() as u32;
        assert_eq!(sleeps(&mut same_core), 0);
        assert!(same_core.record_yield(WAIT.quick_yield_max, false), "the reply may arrive with the next yield");
        assert!(!same_core.record_yield(WAIT.quick_yield_max, true));
        assert_eq!(sleeps(&mut same_core), 0);
        assert!(!same_core.record_yield(2 * WAIT.quick_yield_max, true), "another thread had the core");
        assert_eq!(sleeps(&mut same_core), WAIT.backoff_calls);
        assert!(!same_core.record_yield(2 * WAIT.quick_yield_max, false));
        assert_eq!(sleeps(&mut same_core), 2 * WAIT.backoff_calls);
        for _ in 0..20 {
            same_core.record_failure();
            assert!(sleeps(&mut same_core) <= WAIT.backoff_calls_max);
        }
        same_core.record_failure();
        assert_eq!(sleeps(&mut same_core), WAIT.backoff_calls_max);
        same_core.record_yield(WAIT.quick_yield_max, true);
        same_core.record_failure();
        assert_eq!(sleeps(&mut same_core), WAIT.backoff_calls);
    }
}
