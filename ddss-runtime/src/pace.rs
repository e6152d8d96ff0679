//! How long a thread with nothing to do spins, how often it yields, and when it parks.

use std::time::{Duration, Instant};

/// The pace of a progress thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// How long it spins after the last thing it did.
    pub spin: Duration,
    /// How often it gives its core to whoever waits, after that.
    pub yields: u32,
    /// It never parks: it goes on spinning. For a core of its own.
    pub busy: bool,
    /// The longest sleep, so that what needs time gets it.
    pub nap_max: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { spin: Duration::from_micros(50), yields: 4, busy: false, nap_max: Duration::from_millis(50) }
    }
}

/// What to do next when there was nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Idle {
    Spin,
    Yield,
    Park,
}

/// Follows one thread's idleness.
#[derive(Debug)]
pub(crate) struct Pacer {
    pace: Pace,
    rounds: u32,
    yields: u32,
    since: Option<Instant>,
}

impl Pacer {
    /// Reading the clock costs as much as a sweep: once in so many rounds is enough.
    const ROUNDS_PER_LOOK: u32 = 32;

    pub(crate) fn new(pace: Pace) -> Self {
        Self { pace, rounds: 0, yields: 0, since: None }
    }

    /// There was work.
    pub(crate) fn worked(&mut self) {
        (self.rounds, self.yields, self.since) = (0, 0, None);
    }

    /// There was none.
    pub(crate) fn idle(&mut self) -> Idle {
        self.rounds += 1;
        if self.rounds < Self::ROUNDS_PER_LOOK {
            return Idle::Spin;
        }
        self.rounds = 0;
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() < self.pace.spin {
            Idle::Spin
        } else if self.yields < self.pace.yields || self.pace.busy {
            self.yields = self.yields.saturating_add(1);
            Idle::Yield
        } else {
            Idle::Park
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_thread_comes_to_rest_and_a_busy_one_does_not() {
        // If this broke, an idle daemon would burn a core, or one with its own core would sleep.
        let pace = Pace { spin: Duration::ZERO, yields: 2, ..Pace::default() };
        let next = |pacer: &mut Pacer| (0..).map(|_| pacer.idle()).find(|&idle| idle != Idle::Spin);
        let mut pacer = Pacer::new(pace);
        assert_eq!(next(&mut pacer), Some(Idle::Yield));
        assert_eq!(next(&mut pacer), Some(Idle::Yield));
        assert_eq!(next(&mut pacer), Some(Idle::Park));
        pacer.worked();
        assert_eq!(next(&mut pacer), Some(Idle::Yield));
        let mut busy = Pacer::new(Pace { busy: true, ..pace });
        assert!((0..100).all(|_| next(&mut busy) == Some(Idle::Yield)));
    }
}
