//! Idle strategy of a progress thread: spin, then yield, then park.

use crate::idle_config::{IDLE, IdleConfig};
use std::time::{Duration, Instant};

/// Thread that may have run on the core during a yield.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum YieldTo {
    /// No known thread.
    Unknown,
    /// A client that waits for an operation in flight: it checks and gives the core back.
    Waiter,
    /// A client that was probably just woken, on an unknown core.
    Woken,
}

/// Next step of a thread without work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdleAction {
    Spin,
    Yield,
    Park,
}

/// Tracks the idleness of one thread.
///
/// The duration of a yield shows whether another thread wants the core. On a contended core the thread yields early,
/// because the result that it waits for may depend on the other thread. It stops that for a while after the other
/// thread kept the core for long.
///
/// Spinning pays for work that comes soon. If work comes only every 100 microseconds, say, every spin is wasted. After
/// some wasted spins in a row the thread spins only briefly, until work comes soon enough again.
#[derive(Debug)]
pub(crate) struct IdleStrategy {
    config: IdleConfig,
    rounds: u32,
    yields: u32,
    since: Option<Instant>,
    /// A recent yield let another thread run.
    is_contended: bool,
    /// Consecutive yields that let no other thread run.
    unused_yields: u32,
    /// Earliest time of the next early yield.
    next_yield: Option<Instant>,
    /// Until then a compute-bound thread is assumed on this core, and the core is not handed over.
    occupied_until: Option<Instant>,
    /// Consecutive spins without work.
    wasted_spins: u32,
    /// The current spin is longer than [`spin_short`](crate::idle_config::IdleConstants::spin_short).
    has_spun_long: bool,
    /// The last sleep ended by its timeout, without work since.
    is_timer_wakeup: bool,
}

impl IdleStrategy {
    pub(crate) fn new(config: IdleConfig) -> Self {
        let (rounds, yields, wasted_spins) = (0, 0, 0);
        let (since, next_yield, occupied_until) = (None, None, None);
        let (is_contended, unused_yields, has_spun_long, is_timer_wakeup) = (false, 0, false, false);
        Self {
            config,
            rounds,
            yields,
            since,
            is_contended,
            unused_yields,
            next_yield,
            occupied_until,
            wasted_spins,
            has_spun_long,
            is_timer_wakeup,
        }
    }

    /// Records work.
    #[inline]
    pub(crate) fn record_work(&mut self) {
        if self.has_spun_long {
            // The work came during the spin, and a brief spin would have missed it.
            (self.wasted_spins, self.has_spun_long) = (0, false);
        }
        (self.rounds, self.yields, self.since) = (0, 0, None);
        self.is_timer_wakeup = false;
    }

    /// Records a round without own work in which peers were served. With a core of its own the thread stays awake for
    /// them; on a contended core it would only delay them.
    pub(crate) fn record_service(&mut self) {
        if !self.is_contended {
            self.record_work();
        }
    }

    /// Records a client that keeps computing on this core while its request is in flight: it gets the core as soon as
    /// there is no work, without an earlier yield as proof. Not so after a thread kept the core for long: a client
    /// that claims to compute might help a compute-bound program, and the calls of other clients would wait for its
    /// time slices.
    pub(crate) fn record_competitor(&mut self) {
        (self.is_contended, self.unused_yields) = (true, 0);
    }

    /// Records the end of a sleep after which there may be work.
    pub(crate) fn record_wakeup(&mut self) {
        if let Some(since) = self.since {
            let missed = since.elapsed() <= self.config.spin;
            // On a contended core, the time says more about the other threads than about the work. A single early
            // wake-up changes nothing; several in a row do.
            let misses = missed || self.is_contended;
            let after = if misses { self.wasted_spins.saturating_sub(2) } else { self.wasted_spins + 1 };
            self.wasted_spins = after.min(IDLE.wasted_spins_cap);
        }
        self.has_spun_long = false;
        self.record_work();
    }

    /// Records the end of a sleep by its timeout. Without work there is nothing to spin for. Otherwise a thread that
    /// checks its deadlines every millisecond, while a call waits for a lost node, would spin all the time.
    pub(crate) fn record_timeout(&mut self) {
        self.record_wakeup();
        self.is_timer_wakeup = true;
    }

    /// Returns the next step of a round without work. `spin` maps the configured spin time to the one that applies
    /// now.
    pub(crate) fn next_action(&mut self, spin: impl FnOnce(Duration) -> Duration) -> IdleAction {
        if self.is_timer_wakeup && !self.config.busy {
            return IdleAction::Park;
        }
        self.rounds += 1;
        let rounds_per_clock = if self.is_contended { IDLE.rounds_per_clock_contended } else { IDLE.rounds_per_clock };
        if self.rounds < rounds_per_clock {
            return IdleAction::Spin;
        }
        self.rounds = 0;
        let now = Instant::now();
        if !self.is_core_occupied(now) {
            self.occupied_until = None;
        }
        let since = *self.since.get_or_insert(now);
        let idle = now.duration_since(since);
        let spin_limit = spin(self.config.spin);
        let spins_briefly = self.wasted_spins >= IDLE.wasted_spins_max;
        let spin_limit = if spins_briefly { spin_limit.min(IDLE.spin_short) } else { spin_limit };
        if idle < spin_limit {
            self.has_spun_long = idle > IDLE.spin_short;
            // A spin beyond the configured time is only for a spare core: any other thread that wants the core gets
            // it.
            let wants_other =
                idle >= self.config.spin || self.is_contended && self.next_yield.is_none_or(|next| next <= now);
            if self.config.shares_core && wants_other { IdleAction::Yield } else { IdleAction::Spin }
        } else if self.config.shares_core && self.yields < self.config.yields && !spins_briefly || self.config.busy {
            self.yields = self.yields.saturating_add(1);
            IdleAction::Yield
        } else {
            IdleAction::Park
        }
    }

    /// Records a yield and its duration.
    pub(crate) fn record_yield(&mut self, now: Instant, took: Duration, to: YieldTo) {
        let is_occupied = took > IDLE.occupied_min;
        if to != YieldTo::Woken || is_occupied {
            let let_other_run =
                took > if to == YieldTo::Waiter { IDLE.waiter_yield_max } else { IDLE.unused_yield_max };
            self.unused_yields = if let_other_run { 0 } else { self.unused_yields.saturating_add(1) };
            self.is_contended = let_other_run || self.is_contended && self.unused_yields < IDLE.unused_yields_min;
        }
        let rest =
            if is_occupied { took.min(IDLE.occupied_max) * IDLE.occupied_backoff } else { IDLE.early_yield_interval };
        self.next_yield = Some(now + rest);
        if is_occupied {
            self.occupied_until = self.next_yield;
        }
    }

    /// Returns true if a thread that does not wait for this one wants the core, as of the last reading of the clock.
    pub(crate) fn is_core_contended(&self) -> bool {
        self.is_contended || self.occupied_until.is_some()
    }

    /// Returns true if a compute-bound thread is assumed on this core.
    pub(crate) fn is_core_occupied(&self, now: Instant) -> bool {
        self.occupied_until.is_some_and(|until| now < until)
    }

    /// Records a hand-over of the core and its duration; returns true if the client had the core. The duration says
    /// nothing about other threads.
    pub(crate) fn record_hand_over(&mut self, now: Instant, took: Duration) -> bool {
        if took > IDLE.occupied_min {
            // The client has had its half of the core. Claiming to wait yields no more than that.
            self.occupied_until = Some(now + took.min(IDLE.occupied_max));
        }
        took > IDLE.unused_yield_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_thread_parks_and_busy_poll_thread_does_not() {
        // If this failed, an idle daemon would use a whole core, or one with its own core would sleep.
        let config = IdleConfig { spin: Duration::ZERO, yields: 2, ..IdleConfig::default() };
        let next = |strategy: &mut IdleStrategy| {
            (0..).map(|_| strategy.next_action(|spin| spin)).find(|&idle| idle != IdleAction::Spin)
        };
        let mut strategy = IdleStrategy::new(config);
        assert_eq!(next(&mut strategy), Some(IdleAction::Yield));
        assert_eq!(next(&mut strategy), Some(IdleAction::Yield));
        assert_eq!(next(&mut strategy), Some(IdleAction::Park));
        strategy.record_work();
        assert_eq!(next(&mut strategy), Some(IdleAction::Yield));
        let mut busy = IdleStrategy::new(IdleConfig { busy: true, ..config });
        assert!((0..100).all(|_| next(&mut busy) == Some(IdleAction::Yield)));
    }

    #[test]
    fn thread_with_its_own_core_spins_then_parks() {
        // If this failed, a daemon on a large machine would make system calls while it waits for the next request.
        let config = IdleConfig { spin: Duration::from_micros(10), ..IdleConfig::for_cores(4) };
        let mut strategy = IdleStrategy::new(config);
        strategy.record_yield(Instant::now(), Duration::from_millis(10), YieldTo::Unknown);
        let idle = (0..).map(|_| strategy.next_action(|spin| spin)).find(|&idle| idle != IdleAction::Spin);
        assert_eq!(idle, Some(IdleAction::Park));
        assert!(IdleConfig::for_cores(3).shares_core);
    }

    #[test]
    fn extended_spin_yields_at_each_clock_reading() {
        // If this failed, the daemon of a polling client would keep another daemon off their core for a millisecond.
        let config = IdleConfig { spin: Duration::from_micros(1), ..IdleConfig::default() };
        let mut strategy = IdleStrategy::new(config);
        let hour = |_| Duration::from_secs(3600);
        while strategy.next_action(hour) != IdleAction::Yield {}
        std::thread::sleep(Duration::from_millis(1));
        let looks = (0..10 * IDLE.rounds_per_clock).filter(|_| strategy.next_action(hour) == IdleAction::Yield).count();
        assert_eq!(looks, 10, "it yields at each reading of the clock, and never parks");
    }

    #[test]
    fn wasted_spins_shorten_the_spin_until_work_comes_soon() {
        // If this failed, an occasional request would cost half a core.
        let config = IdleConfig { spin: Duration::from_millis(20), yields: 0, ..IdleConfig::default() };
        let mut strategy = IdleStrategy::new(config);
        let spun = |strategy: &mut IdleStrategy| {
            let began = Instant::now();
            while strategy.next_action(|spin| spin) != IdleAction::Park {}
            began.elapsed()
        };
        for _ in 0..IDLE.wasted_spins_max {
            assert!(spun(&mut strategy) >= config.spin);
            std::thread::sleep(Duration::from_millis(1));
            strategy.record_wakeup();
        }
        while strategy.next_action(|spin| spin) != IdleAction::Park {}
        assert!(strategy.since.unwrap().elapsed() >= IDLE.spin_short && strategy.wasted_spins == IDLE.wasted_spins_max);
        // Work comes right after the thread went to sleep.
        strategy.since = Some(Instant::now());
        strategy.record_wakeup();
        assert!(spun(&mut strategy) >= config.spin);
    }

    #[test]
    fn thread_parks_again_at_once_after_a_timeout() {
        // If this failed, a node with calls in flight to a dead node would use a whole core until they end.
        let mut strategy = IdleStrategy::new(IdleConfig::default());
        while strategy.next_action(|spin| spin) != IdleAction::Park {}
        strategy.record_timeout();
        assert_eq!(strategy.next_action(|spin| spin), IdleAction::Park);
        strategy.record_timeout();
        strategy.record_work();
        assert_eq!(strategy.next_action(|spin| spin), IdleAction::Spin, "work came: more may come");
        strategy.record_timeout();
        strategy.record_wakeup();
        assert_eq!(strategy.next_action(|spin| spin), IdleAction::Spin, "a descriptor was signalled");
    }

    #[test]
    fn computing_client_gets_the_core_at_the_first_clock_reading() {
        // If this failed, a client that computes while its get is in flight would compute only after it.
        let config = IdleConfig { spin: Duration::from_secs(3600), ..IdleConfig::default() };
        let mut strategy = IdleStrategy::new(config);
        let looks =
            |strategy: &mut IdleStrategy| (1..1000).find(|_| strategy.next_action(|spin| spin) == IdleAction::Yield);
        assert_eq!(looks(&mut strategy), None);
        for _ in 0..2 {
            strategy.record_work();
            strategy.record_competitor();
            assert_eq!(looks(&mut strategy), Some(IDLE.rounds_per_clock_contended));
        }
        strategy.record_yield(Instant::now(), Duration::from_millis(3), YieldTo::Unknown);
        strategy.record_work();
        strategy.record_competitor();
        assert_eq!(looks(&mut strategy), None, "another thread kept the core");
    }

    #[test]
    fn early_yields_need_a_yield_that_let_another_thread_run() {
        // If this failed, two nodes on one core would wait for each other's spinning, or a node would give its core to
        // a compute-bound program.
        let config = IdleConfig { spin: Duration::from_secs(3600), ..IdleConfig::default() };
        let mut strategy = IdleStrategy::new(config);
        let spins =
            |strategy: &mut IdleStrategy| (0..1000).all(|_| strategy.next_action(|spin| spin) == IdleAction::Spin);
        assert!(spins(&mut strategy), "no other thread is known");
        strategy.record_yield(Instant::now(), Duration::from_micros(5), YieldTo::Unknown);
        std::thread::sleep(Duration::from_micros(10));
        assert!(!spins(&mut strategy), "another thread ran");
        (1..IDLE.unused_yields_min)
            .for_each(|_| strategy.record_yield(Instant::now(), Duration::ZERO, YieldTo::Unknown));
        std::thread::sleep(Duration::from_micros(10));
        assert!(!spins(&mut strategy), "the other thread may be asleep and wake again");
        strategy.record_yield(Instant::now(), Duration::ZERO, YieldTo::Unknown);
        std::thread::sleep(Duration::from_micros(10));
        assert!(spins(&mut strategy), "no other thread has run for long");
        strategy.record_yield(Instant::now(), Duration::from_micros(10_000_000), YieldTo::Unknown);
        assert!(spins(&mut strategy), "another thread kept the core");
        std::thread::sleep(IDLE.occupied_max * IDLE.occupied_backoff);
        assert!(!spins(&mut strategy), "the pause is not as long as the stop of ten seconds");
    }

    #[test]
    fn waiting_client_is_no_contention_and_gets_the_core() {
        // If this failed, a client on its daemon's core would count as contention while the daemon waits for another
        // node, or one that helps a compute-bound program would give away the time of all other clients.
        let mut strategy = IdleStrategy::new(IdleConfig::default());
        strategy.record_yield(Instant::now(), Duration::from_micros(1), YieldTo::Waiter);
        assert!(!strategy.is_core_contended(), "the client checked and gave the core back");
        strategy.record_yield(Instant::now(), Duration::from_micros(1), YieldTo::Unknown);
        assert!(strategy.is_core_contended());
        (0..IDLE.unused_yields_min)
            .for_each(|_| strategy.record_yield(Instant::now(), Duration::from_micros(1), YieldTo::Waiter));
        assert!(!strategy.is_core_contended());
        strategy.record_yield(Instant::now(), Duration::from_micros(3), YieldTo::Waiter);
        assert!(strategy.is_core_contended(), "another thread worked");
        let mut strategy = IdleStrategy::new(IdleConfig::default());
        strategy.record_yield(Instant::now(), Duration::from_micros(100), YieldTo::Woken);
        assert!(!strategy.is_core_contended(), "a woken client is expected to run");
        strategy.record_yield(Instant::now(), Duration::from_micros(100), YieldTo::Unknown);
        (0..=IDLE.unused_yields_min)
            .for_each(|_| strategy.record_yield(Instant::now(), Duration::from_micros(0), YieldTo::Woken));
        assert!(strategy.is_core_contended(), "another thread may be asleep");
        let mut strategy = IdleStrategy::new(IdleConfig::default());
        let now = Instant::now();
        assert!(!strategy.record_hand_over(now, IDLE.unused_yield_max), "no other thread had the core");
        assert!(strategy.record_hand_over(now, IDLE.occupied_min) && !strategy.is_core_contended());
        assert!(strategy.record_hand_over(now, Duration::from_secs(1)));
        assert!(strategy.is_core_occupied(now) && !strategy.is_core_occupied(now + IDLE.occupied_max));
        strategy.occupied_until = Some(now);
        assert!(strategy.is_core_contended());
        (0..IDLE.rounds_per_clock).for_each(|_| _ = strategy.next_action(|spin| spin));
        assert!(!strategy.is_core_contended(), "the occupation is over");
        strategy.record_yield(Instant::now(), Duration::from_micros(10_000), YieldTo::Unknown);
        assert!(strategy.is_core_occupied(now + IDLE.occupied_max), "a thread computes on this core");
    }
}
