//! How long a thread with nothing to do spins, how often it yields, and when it parks.

use std::time::{Duration, Instant};

/// The pace of a progress thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdleConfig {
    /// How long it spins after the last thing it did.
    pub spin: Duration,
    /// How often it gives its core to whoever waits, after that.
    pub yields: u32,
    /// It never parks: it goes on spinning. For a core of its own.
    pub busy: bool,
    /// The longest sleep, so that what needs time gets it.
    pub nap_max: Duration,
}

impl Default for IdleConfig {
    fn default() -> Self {
        Self { spin: Duration::from_micros(50), yields: 4, busy: false, nap_max: Duration::from_millis(50) }
    }
}

/// Who of those that the thread works for may have the core when it yields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum YieldTo {
    /// Nobody that it knows of.
    Nobody,
    /// Somebody who waits for what is under way: he looks, and gives it back.
    Waiting,
    /// Somebody who was just woken, or maybe so: on which core is not known.
    Woken,
}

/// What to do next when there was nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdleAction {
    Spin,
    Yield,
    Park,
}

/// Follows one thread's idleness.
///
/// Whether somebody else wants the core is learned from how long a yield takes. On a crowded core the thread yields
/// early: what it waits for may be just what the other one would do. It stops that for a while when who got the core
/// kept it for long.
///
/// Spinning is for what comes soon. Where work comes now and then, every 100 microseconds say, the whole spin is for
/// nothing, and a thread that found that out some times in a row spins for a short time only, until work comes so soon
/// again that spinning would have met it.
#[derive(Debug)]
pub(crate) struct IdleStrategy {
    pace: IdleConfig,
    rounds: u32,
    yields: u32,
    since: Option<Instant>,
    /// One of the last yields let somebody in.
    crowded: bool,
    /// How many yields in a row let nobody in.
    alone: u32,
    /// When the next early yield may be.
    next_yield: Option<Instant>,
    /// Until then somebody is taken to work on this core, and it is handed over to nobody.
    hogged_until: Option<Instant>,
    /// How often in a row the whole spin was for nothing.
    in_vain: u32,
    /// It has spun for longer than [`SPIN_SHORT`](Self::SPIN_SHORT).
    long: bool,
    /// The last sleep ended by the clock, and nothing has come since.
    undisturbed: bool,
}

impl IdleStrategy {
    /// Reading the clock costs as much as a round without work: once in so many is enough.
    const ROUNDS_PER_LOOK: u32 = 8;
    /// The same on a crowded core.
    const ROUNDS_PER_LOOK_CROWDED: u32 = 4;
    /// A yield that lets nobody in takes less.
    const ALONE_MAX: Duration = Duration::from_nanos(900);
    /// The same where somebody waits on this core for this thread: he looks, and gives it back.
    const WAITING_MAX: Duration = Duration::from_nanos(2_500);
    /// How often a core is offered to whom it is owed.
    pub(crate) const HAND_OVERS_MAX: u32 = 4;
    /// A core is crowded until so many yields in a row let nobody in. Another daemon on it may just be asleep: whoever forgot
    /// it at once would keep it out for a whole spin when it is woken, its caller would sleep meanwhile, and so would
    /// everybody each time again.
    const ALONE_FOR_SURE: u32 = 8;
    /// Between two early yields.
    const YIELD_EVERY: Duration = Duration::from_nanos(1_500);
    /// A yield that takes longer went to somebody who works and does not wait. Another daemon, which spins and does some work
    /// in its turn, takes less: two that took each other for that would keep each other waiting all the time.
    const HOG_MIN: Duration = Duration::from_micros(500);
    /// How many times as long as that yield took there is no early one after it.
    const HOG_REST: u32 = 16;
    /// Who takes longer has no more to do with the yield: the thread was stopped, or its machine's core was taken away. That may
    /// not happen again, and a rest as long as 16 times that would be paid by whoever shares the core.
    const HOG_MAX: Duration = Duration::from_millis(4);
    /// After so many spins for nothing it spins for a short time.
    const IN_VAIN_MAX: u32 = 4;
    /// It remembers that many.
    const IN_VAIN_KEPT: u32 = 2 * Self::IN_VAIN_MAX;
    /// A short time.
    const SPIN_SHORT: Duration = Duration::from_micros(1);

    pub(crate) fn new(pace: IdleConfig) -> Self {
        let (rounds, yields, in_vain) = (0, 0, 0);
        let (since, next_yield, hogged_until) = (None, None, None);
        let (crowded, alone, long, undisturbed) = (false, 0, false, false);
        Self { pace, rounds, yields, since, crowded, alone, next_yield, hogged_until, in_vain, long, undisturbed }
    }

    /// There was work.
    #[inline]
    pub(crate) fn worked(&mut self) {
        if self.long {
            // It came while the thread spun, and a short spin would have missed it.
            (self.in_vain, self.long) = (0, false);
        }
        (self.rounds, self.yields, self.since) = (0, 0, None);
        self.undisturbed = false;
    }

    /// There was none, but others were served. With a core of its own the thread stays awake for them; on a crowded one it
    /// is them whom it would keep from going on.
    pub(crate) fn was_of_use(&mut self) {
        if !self.crowded {
            self.worked();
        }
    }

    /// Somebody wants this core who does not wait: he gets it as soon as there is nothing to do, and not just when a yield has
    /// let somebody in. But not if somebody kept it for long of late: whoever says that he goes on working may be in league
    /// with one who computes, and the others' calls would wait for that one's slices.
    pub(crate) fn has_company(&mut self) {
        (self.crowded, self.alone) = (true, 0);
    }

    /// A sleep is over, and there may be work.
    pub(crate) fn rested(&mut self) {
        if let Some(since) = self.since {
            let missed = since.elapsed() <= self.pace.spin;
            // Where others want the core, the time says more about them than about the work.
            // One that came early now and then changes nothing; some in a row do.
            let misses = missed || self.crowded;
            let after = if misses { self.in_vain.saturating_sub(2) } else { self.in_vain + 1 };
            self.in_vain = after.min(Self::IN_VAIN_KEPT);
        }
        self.long = false;
        self.worked();
    }

    /// A sleep ended because its time was over. If there is no work either there is nothing to spin for: a thread that
    /// has to look at its deadlines every millisecond, while somebody waits for a node that is gone, would spin all the
    /// time otherwise.
    pub(crate) fn overslept(&mut self) {
        self.rested();
        self.undisturbed = true;
    }

    /// There was none. `spin` tells how long it is to spin this time, if it is not as long as the pace says.
    pub(crate) fn idle(&mut self, spin: impl FnOnce(Duration) -> Duration) -> IdleAction {
        if self.undisturbed && !self.pace.busy {
            return IdleAction::Park;
        }
        self.rounds += 1;
        let rounds_per_look = if self.crowded { Self::ROUNDS_PER_LOOK_CROWDED } else { Self::ROUNDS_PER_LOOK };
        if self.rounds < rounds_per_look {
            return IdleAction::Spin;
        }
        self.rounds = 0;
        let now = Instant::now();
        if !self.is_hogged(now) {
            self.hogged_until = None;
        }
        let since = *self.since.get_or_insert(now);
        let idle = now.duration_since(since);
        let wanted = spin(self.pace.spin);
        let in_vain = self.in_vain >= Self::IN_VAIN_MAX;
        let enough = if in_vain { wanted.min(Self::SPIN_SHORT) } else { wanted };
        if idle < enough {
            self.long = idle > Self::SPIN_SHORT;
            // A spin that is longer than usual is for who has a core to spare: whoever wants this one gets it.
            let early = idle >= self.pace.spin || self.crowded && self.next_yield.is_none_or(|next| next <= now);
            if early { IdleAction::Yield } else { IdleAction::Spin }
        } else if (self.yields < self.pace.yields && !in_vain) || self.pace.busy {
            self.yields = self.yields.saturating_add(1);
            IdleAction::Yield
        } else {
            IdleAction::Park
        }
    }

    /// A yield is over that took so long.
    pub(crate) fn yielded(&mut self, now: Instant, took: Duration, who: YieldTo) {
        let is_hog = took > Self::HOG_MIN;
        if who != YieldTo::Woken || is_hog {
            let lets_in = took > if who == YieldTo::Waiting { Self::WAITING_MAX } else { Self::ALONE_MAX };
            self.alone = if lets_in { 0 } else { self.alone.saturating_add(1) };
            self.crowded = lets_in || self.crowded && self.alone < Self::ALONE_FOR_SURE;
        }
        let rest = if is_hog { took.min(Self::HOG_MAX) * Self::HOG_REST } else { Self::YIELD_EVERY };
        self.next_yield = Some(now + rest);
        if is_hog {
            self.hogged_until = self.next_yield;
        }
    }

    /// Whether somebody wants this core who does not wait for this thread, as of the last look at the clock.
    pub(crate) fn is_core_wanted(&self) -> bool {
        self.crowded || self.hogged_until.is_some()
    }

    /// Whether somebody is taken to work on this core.
    pub(crate) fn is_hogged(&self, now: Instant) -> bool {
        self.hogged_until.is_some_and(|until| now < until)
    }

    /// The core was handed over to whom it is owed, and came back after so long. Whether he had it. How long he keeps it says
    /// nothing about others.
    pub(crate) fn handed_over(&mut self, now: Instant, took: Duration) -> bool {
        if took > Self::HOG_MIN {
            // Whoever it was has had his half of the core. More than that cannot be had by saying that one waits.
            self.hogged_until = Some(now + took.min(Self::HOG_MAX));
        }
        took > Self::ALONE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_thread_comes_to_rest_and_a_busy_one_does_not() {
        // If this broke, an idle daemon would burn a core, or one with its own core would sleep.
        let pace = IdleConfig { spin: Duration::ZERO, yields: 2, ..IdleConfig::default() };
        let next =
            |pacer: &mut IdleStrategy| (0..).map(|_| pacer.idle(|spin| spin)).find(|&idle| idle != IdleAction::Spin);
        let mut pacer = IdleStrategy::new(pace);
        assert_eq!(next(&mut pacer), Some(IdleAction::Yield));
        assert_eq!(next(&mut pacer), Some(IdleAction::Yield));
        assert_eq!(next(&mut pacer), Some(IdleAction::Park));
        pacer.worked();
        assert_eq!(next(&mut pacer), Some(IdleAction::Yield));
        let mut busy = IdleStrategy::new(IdleConfig { busy: true, ..pace });
        assert!((0..100).all(|_| next(&mut busy) == Some(IdleAction::Yield)));
    }

    #[test]
    fn beyond_the_usual_time_a_thread_spins_only_on_a_core_that_nobody_wants() {
        // If this broke, the daemon of a client that polls would keep another daemon off their core for a millisecond.
        let pace = IdleConfig { spin: Duration::from_micros(1), ..IdleConfig::default() };
        let mut pacer = IdleStrategy::new(pace);
        let hour = |_| Duration::from_secs(3600);
        while pacer.idle(hour) != IdleAction::Yield {}
        std::thread::sleep(Duration::from_millis(1));
        let looks = (0..10 * IdleStrategy::ROUNDS_PER_LOOK).filter(|_| pacer.idle(hour) == IdleAction::Yield).count();
        assert_eq!(looks, 10, "it yields at each look, and never parks");
    }

    #[test]
    fn who_spun_for_nothing_some_times_spins_less_until_it_would_pay() {
        // If this broke, a request now and then would cost half a core.
        let pace = IdleConfig { spin: Duration::from_millis(20), yields: 0, ..IdleConfig::default() };
        let mut pacer = IdleStrategy::new(pace);
        let spun = |pacer: &mut IdleStrategy| {
            let began = Instant::now();
            while pacer.idle(|spin| spin) != IdleAction::Park {}
            began.elapsed()
        };
        for _ in 0..IdleStrategy::IN_VAIN_MAX {
            assert!(spun(&mut pacer) >= pace.spin);
            std::thread::sleep(Duration::from_millis(1));
            pacer.rested();
        }
        while pacer.idle(|spin| spin) != IdleAction::Park {}
        assert!(
            pacer.since.unwrap().elapsed() >= IdleStrategy::SPIN_SHORT && pacer.in_vain == IdleStrategy::IN_VAIN_MAX
        );
        // Work comes right after it went to sleep.
        pacer.since = Some(Instant::now());
        pacer.rested();
        assert!(spun(&mut pacer) >= pace.spin);
    }

    #[test]
    fn who_was_woken_by_nothing_but_the_clock_sleeps_again_at_once() {
        // If this broke, a node with calls under way to one that is gone would burn a core until they end.
        let mut pacer = IdleStrategy::new(IdleConfig::default());
        while pacer.idle(|spin| spin) != IdleAction::Park {}
        pacer.overslept();
        assert_eq!(pacer.idle(|spin| spin), IdleAction::Park);
        pacer.overslept();
        pacer.worked();
        assert_eq!(pacer.idle(|spin| spin), IdleAction::Spin, "work came: more may come");
        pacer.overslept();
        pacer.rested();
        assert_eq!(pacer.idle(|spin| spin), IdleAction::Spin, "somebody has rung");
    }

    #[test]
    fn who_has_company_gives_the_core_away_at_the_first_look_without_work() {
        // If this broke, a client that works while its get is under way would work only when that is over.
        let pace = IdleConfig { spin: Duration::from_secs(3600), ..IdleConfig::default() };
        let mut pacer = IdleStrategy::new(pace);
        let looks = |pacer: &mut IdleStrategy| (1..1000).find(|_| pacer.idle(|spin| spin) == IdleAction::Yield);
        assert_eq!(looks(&mut pacer), None);
        for _ in 0..2 {
            pacer.worked();
            pacer.has_company();
            assert_eq!(looks(&mut pacer), Some(IdleStrategy::ROUNDS_PER_LOOK_CROWDED));
        }
        pacer.yielded(Instant::now(), Duration::from_millis(3), YieldTo::Nobody);
        pacer.worked();
        pacer.has_company();
        assert_eq!(looks(&mut pacer), None, "somebody kept the core");
    }

    #[test]
    fn a_thread_yields_early_only_where_that_lets_somebody_in() {
        // If this broke, two nodes on one core would wait for each other's spinning, or a node would give its core to
        // whoever computes on it.
        let pace = IdleConfig { spin: Duration::from_secs(3600), ..IdleConfig::default() };
        let mut pacer = IdleStrategy::new(pace);
        let spins = |pacer: &mut IdleStrategy| (0..1000).all(|_| pacer.idle(|spin| spin) == IdleAction::Spin);
        assert!(spins(&mut pacer), "nobody is known to be there");
        pacer.yielded(Instant::now(), Duration::from_micros(5), YieldTo::Nobody);
        std::thread::sleep(Duration::from_micros(10));
        assert!(!spins(&mut pacer), "somebody was let in");
        (1..IdleStrategy::ALONE_FOR_SURE).for_each(|_| pacer.yielded(Instant::now(), Duration::ZERO, YieldTo::Nobody));
        std::thread::sleep(Duration::from_micros(10));
        assert!(!spins(&mut pacer), "who was let in is asleep, and will be woken again");
        pacer.yielded(Instant::now(), Duration::ZERO, YieldTo::Nobody);
        std::thread::sleep(Duration::from_micros(10));
        assert!(spins(&mut pacer), "nobody has been let in for long");
        pacer.yielded(Instant::now(), Duration::from_micros(10_000_000), YieldTo::Nobody);
        assert!(spins(&mut pacer), "somebody kept the core");
        std::thread::sleep(IdleStrategy::HOG_MAX * IdleStrategy::HOG_REST);
        assert!(!spins(&mut pacer), "and not because the thread was stopped for ten seconds");
    }

    #[test]
    fn who_waits_beside_a_thread_is_no_crowd_and_has_the_core_when_it_is_owed() {
        // If this broke, a client on its daemon's core would be taken for somebody who wants it while the daemon waits for
        // another node, or one in league with a program that computes would give away the time of all other clients.
        let mut pacer = IdleStrategy::new(IdleConfig::default());
        pacer.yielded(Instant::now(), Duration::from_micros(1), YieldTo::Waiting);
        assert!(!pacer.is_core_wanted(), "he looked and gave it back");
        pacer.yielded(Instant::now(), Duration::from_micros(1), YieldTo::Nobody);
        assert!(pacer.is_core_wanted());
        (0..IdleStrategy::ALONE_FOR_SURE)
            .for_each(|_| pacer.yielded(Instant::now(), Duration::from_micros(1), YieldTo::Waiting));
        assert!(!pacer.is_core_wanted());
        pacer.yielded(Instant::now(), Duration::from_micros(3), YieldTo::Waiting);
        assert!(pacer.is_core_wanted(), "somebody else worked");
        let mut pacer = IdleStrategy::new(IdleConfig::default());
        pacer.yielded(Instant::now(), Duration::from_micros(100), YieldTo::Woken);
        assert!(!pacer.is_core_wanted(), "who was woken runs, of course");
        pacer.yielded(Instant::now(), Duration::from_micros(100), YieldTo::Nobody);
        (0..=IdleStrategy::ALONE_FOR_SURE)
            .for_each(|_| pacer.yielded(Instant::now(), Duration::from_micros(0), YieldTo::Woken));
        assert!(pacer.is_core_wanted(), "and another one may be asleep");
        let mut pacer = IdleStrategy::new(IdleConfig::default());
        let now = Instant::now();
        assert!(!pacer.handed_over(now, IdleStrategy::ALONE_MAX), "nobody had it");
        assert!(pacer.handed_over(now, IdleStrategy::HOG_MIN) && !pacer.is_core_wanted());
        assert!(pacer.handed_over(now, Duration::from_secs(1)));
        assert!(pacer.is_hogged(now) && !pacer.is_hogged(now + IdleStrategy::HOG_MAX));
        pacer.hogged_until = Some(now);
        assert!(pacer.is_core_wanted());
        (0..IdleStrategy::ROUNDS_PER_LOOK).for_each(|_| _ = pacer.idle(|spin| spin));
        assert!(!pacer.is_core_wanted(), "that is over");
        pacer.yielded(Instant::now(), Duration::from_micros(10_000), YieldTo::Nobody);
        assert!(pacer.is_hogged(now + IdleStrategy::HOG_MAX), "somebody works here");
    }
}
