//! Back-off of a progress thread: spin, then yield, then sleep.

use crate::idle_config::{IDLE, IdleConfig};
use std::time::{Duration, Instant};

/// Next step of a thread without work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdleAction {
    Spin,
    Yield,
    Sleep,
}

/// Tracks the idleness of one thread.
///
/// Waiting awake pays for work that comes soon. If work comes only every 100 microseconds, say, every such wait is
/// wasted. After some wasted waits in a row the thread waits only briefly, until work comes soon enough again.
#[derive(Debug)]
pub(crate) struct IdleStrategy {
    config: IdleConfig,
    rounds: u32,
    since: Option<Instant>,
    /// Until then another thread computes on this core, and yields are left out: a woken thread runs before it, a
    /// yielding one waits for its slice.
    occupied_until: Option<Instant>,
    /// Consecutive waits without work.
    wasted_waits: u32,
    /// The current wait is longer than [`wait_short`](crate::idle_config::IdleConstants::wait_short).
    has_waited_long: bool,
    /// The last sleep ended by its timeout, without work since.
    is_timer_wakeup: bool,
}

impl IdleStrategy {
    pub(crate) fn new(config: IdleConfig) -> Self {
        let (rounds, since, occupied_until, wasted_waits) = (0, None, None, 0);
        let (has_waited_long, is_timer_wakeup) = (false, false);
        Self { config, rounds, since, occupied_until, wasted_waits, has_waited_long, is_timer_wakeup }
    }

    /// Records work.
    #[inline]
    pub(crate) fn record_work(&mut self) {
        if self.has_waited_long {
            // The work came during the wait, and a brief one would have missed it.
            (self.wasted_waits, self.has_waited_long) = (0, false);
        }
        (self.rounds, self.since) = (0, None);
        self.is_timer_wakeup = false;
    }

    /// Records the end of a sleep after which there may be work.
    pub(crate) fn record_wakeup(&mut self) {
        if let Some(since) = self.since {
            // A single early wake-up changes nothing; several in a row do.
            let has_missed_work = since.elapsed() <= self.config.sleep_after;
            let after = if has_missed_work { self.wasted_waits.saturating_sub(2) } else { self.wasted_waits + 1 };
            self.wasted_waits = after.min(2 * IDLE.wasted_waits_max);
        }
        self.has_waited_long = false;
        self.record_work();
    }

    /// Records the end of a sleep by its timeout. Without work there is nothing to wait for. Otherwise a thread that
    /// checks its deadlines every millisecond, while a call waits for a lost node, would be awake all the time.
    pub(crate) fn record_timeout(&mut self) {
        self.record_wakeup();
        self.is_timer_wakeup = true;
    }

    /// Returns the next step of a round without work. `limit` maps the configured time without sleep to the one that
    /// applies now.
    pub(crate) fn next_action(&mut self, limit: impl FnOnce(Duration) -> Duration) -> IdleAction {
        if self.is_timer_wakeup && !self.config.busy {
            return IdleAction::Sleep;
        }
        self.rounds += 1;
        if self.rounds < IDLE.rounds_per_clock {
            return IdleAction::Spin;
        }
        self.rounds = 0;
        let now = Instant::now();
        let idle = now.duration_since(*self.since.get_or_insert(now));
        let limit = limit(self.config.sleep_after);
        let waits_briefly = self.wasted_waits >= IDLE.wasted_waits_max;
        let limit = if waits_briefly { limit.min(IDLE.wait_short) } else { limit };
        if idle >= limit {
            return if self.config.busy { IdleAction::Yield } else { IdleAction::Sleep };
        }
        self.has_waited_long = idle > IDLE.wait_short;
        if idle < self.config.yield_after {
            IdleAction::Spin
        } else if self.occupied_until.is_some_and(|until| now < until) && !self.config.busy {
            IdleAction::Sleep
        } else {
            IdleAction::Yield
        }
    }

    /// Records a yield that ended now, and its duration.
    pub(crate) fn record_yield(&mut self, now: Instant, took: Duration) {
        // Others had the core: the thread itself did not wait.
        self.since = self.since.map(|since| since + took);
        if took > IDLE.occupied_min {
            self.occupied_until = Some(now + took.min(IDLE.occupied_max) * IDLE.occupied_pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(strategy: &mut IdleStrategy) -> Option<IdleAction> {
        (0..).map(|_| strategy.next_action(|limit| limit)).find(|&idle| idle != IdleAction::Spin)
    }

    #[test]
    fn idle_thread_spins_yields_and_sleeps() {
        // If this failed, an idle daemon would use a whole core, or one with its own core would sleep.
        let config =
            IdleConfig { yield_after: Duration::ZERO, sleep_after: Duration::from_millis(5), ..IdleConfig::default() };
        let mut strategy = IdleStrategy::new(config);
        assert_eq!(next(&mut strategy), Some(IdleAction::Yield));
        std::thread::sleep(config.sleep_after);
        assert_eq!(next(&mut strategy), Some(IdleAction::Sleep));
        strategy.record_work();
        assert_eq!(next(&mut strategy), Some(IdleAction::Yield));
        let mut busy = IdleStrategy::new(IdleConfig { busy: true, sleep_after: Duration::ZERO, ..config });
        assert!((0..100).all(|_| next(&mut busy) == Some(IdleAction::Yield)));
    }

    #[test]
    fn thread_with_its_own_core_spins_then_sleeps() {
        // If this failed, a daemon on a large machine would make system calls while it waits for the next request.
        let mut strategy = IdleStrategy::new(IdleConfig::for_cores(4));
        assert_eq!(next(&mut strategy), Some(IdleAction::Sleep));
        let few = IdleConfig::for_cores(3);
        assert!(few.yield_after < few.sleep_after);
    }

    #[test]
    fn extended_wait_yields_at_each_clock_reading() {
        // If this failed, the daemon of a polling client would keep another daemon off their core for a millisecond.
        let mut strategy = IdleStrategy::new(IdleConfig::for_cores(4));
        let hour = |_| Duration::from_secs(3600);
        while strategy.next_action(hour) != IdleAction::Yield {}
        let yields = (0..10 * IDLE.rounds_per_clock).filter(|_| strategy.next_action(hour) == IdleAction::Yield);
        assert_eq!(yields.count(), 10, "it yields at each reading of the clock, and never sleeps");
    }

    #[test]
    fn wasted_waits_shorten_the_wait_until_work_comes_soon() {
        // If this failed, an occasional request would cost half a core.
        let limit = Duration::from_millis(20);
        let config = IdleConfig { yield_after: limit, sleep_after: limit, ..IdleConfig::default() };
        let mut strategy = IdleStrategy::new(config);
        let waited = |strategy: &mut IdleStrategy| {
            let began = Instant::now();
            assert_eq!(next(strategy), Some(IdleAction::Sleep));
            began.elapsed()
        };
        for _ in 0..IDLE.wasted_waits_max {
            assert!(waited(&mut strategy) >= config.sleep_after);
            std::thread::sleep(Duration::from_millis(1));
            strategy.record_wakeup();
        }
        assert_eq!(next(&mut strategy), Some(IdleAction::Sleep));
        assert!(strategy.since.unwrap().elapsed() >= IDLE.wait_short && strategy.wasted_waits == IDLE.wasted_waits_max);
        // Work comes right after the thread went to sleep.
        strategy.since = Some(Instant::now());
        strategy.record_wakeup();
        assert!(waited(&mut strategy) >= config.sleep_after);
    }

    #[test]
    fn thread_sleeps_again_immediately_after_a_timeout() {
        // If this failed, a node with calls in flight to a dead node would use a whole core until they end.
        let mut strategy = IdleStrategy::new(IdleConfig::default());
        while strategy.next_action(|limit| limit) != IdleAction::Sleep {}
        strategy.record_timeout();
        assert_eq!(strategy.next_action(|limit| limit), IdleAction::Sleep);
        strategy.record_timeout();
        strategy.record_work();
        assert_eq!(strategy.next_action(|limit| limit), IdleAction::Spin, "work came: more may come");
        strategy.record_timeout();
        strategy.record_wakeup();
        assert_eq!(strategy.next_action(|limit| limit), IdleAction::Spin, "a descriptor was signalled");
    }

    #[test]
    fn long_yield_suppresses_yields_for_a_while() {
        // If this failed, a node next to a compute-bound program would wait for its slices in each call.
        let hour = Duration::from_secs(3600);
        let config = IdleConfig { yield_after: Duration::ZERO, sleep_after: hour, ..IdleConfig::default() };
        let mut strategy = IdleStrategy::new(config);
        strategy.record_yield(Instant::now(), IDLE.occupied_min);
        assert_eq!(next(&mut strategy), Some(IdleAction::Yield), "another progress thread gives the core back soon");
        let now = Instant::now();
        strategy.record_yield(now, Duration::from_secs(10));
        assert_eq!(next(&mut strategy), Some(IdleAction::Sleep));
        assert_eq!(strategy.occupied_until, Some(now + IDLE.occupied_max * IDLE.occupied_pause));
        std::thread::sleep(IDLE.occupied_max * IDLE.occupied_pause);
        assert_eq!(next(&mut strategy), Some(IdleAction::Yield), "the pause is over");
    }
}
