//! What a call takes on average, for the clients: on a full machine they do not spin for what takes long.

use ddss_core::ChannelId;
use std::time::{Duration, Instant};

/// The average, and what it is made of.
#[derive(Debug, Default)]
pub(crate) struct LatencyEstimate {
    /// Calls of this period, and those of them that were not answered on the spot.
    calls: u64,
    later: u64,
    /// One of the latter, and when it came.
    followed: Option<(ChannelId, u64, Instant)>,
    /// What those that were followed took, together, and how many they were.
    took: Duration,
    ended: u32,
    average_ns: u64,
}

impl LatencyEstimate {
    /// What a call takes that is answered on the spot, about.
    const AT_ONCE_NS: u64 = 300;
    /// A call that takes longer counts as this: it waits for somebody's lock and not for us.
    const LONGEST: Duration = Duration::from_micros(200);
    /// Calls that make a period.
    const CALLS_MIN: u64 = 64;

    /// That many calls came; most of them were answered on the spot.
    pub(crate) fn taken(&mut self, calls: usize) {
        self.calls += calls as u64;
    }

    /// A call is under way. One at a time is followed to its end.
    pub(crate) fn began(&mut self, lane: ChannelId, request: u64) {
        self.later += 1;
        if self.followed.is_none() {
            self.followed = Some((lane, request, Instant::now()));
        }
    }

    /// A call that was under way has ended.
    pub(crate) fn ended(&mut self, lane: ChannelId, request: u64) {
        if let Some((of, which, since)) = self.followed
            && (of, which) == (lane, request)
        {
            self.took += since.elapsed().min(Self::LONGEST);
            self.ended += 1;
            self.followed = None;
        }
    }

    /// The average, if it is time to tell it.
    pub(crate) fn beat(&mut self, now: Instant) -> Option<u64> {
        if self.calls < Self::CALLS_MIN {
            return None;
        }
        // One that never ends (its client has gone) must not keep the others from being followed.
        if self.followed.is_some_and(|(.., since)| now.saturating_duration_since(since) >= Self::LONGEST) {
            self.followed = None;
            self.took += Self::LONGEST;
            self.ended += 1;
        }
        if self.later > 0 && self.ended == 0 {
            return None;
        }
        let later_ns = self.took.as_nanos() as u64 / u64::from(self.ended.max(1));
        let at_once = self.calls.saturating_sub(self.later);
        let mean = (at_once * Self::AT_ONCE_NS + self.later * later_ns) / (at_once + self.later);
        self.average_ns = (self.average_ns + mean) / 2;
        let average_ns = self.average_ns;
        *self = Self { average_ns, followed: self.followed, ..Self::default() };
        Some(average_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::ClientId;

    const LANE: ChannelId = ChannelId { client: ClientId { index: 1, generation: 1 }, index: 0 };

    fn later(pulse: &mut LatencyEstimate, micros: u64, calls: u64) -> u64 {
        for request in 0..calls {
            pulse.began(LANE, request);
            if let Some((_, _, since)) = &mut pulse.followed {
                *since -= Duration::from_micros(micros);
            }
            pulse.ended(LANE, request);
        }
        pulse.taken(calls as usize);
        pulse.beat(Instant::now()).unwrap()
    }

    #[test]
    fn the_average_follows_what_the_calls_take() {
        // If this broke, a crowd would spin for calls to other nodes, and keep each other from being answered.
        let mut pulse = LatencyEstimate::default();
        pulse.taken(1000);
        assert!(pulse.beat(Instant::now()).unwrap() <= LatencyEstimate::AT_ONCE_NS);
        let grown = (0..10).map(|_| later(&mut pulse, 50, 100)).last().unwrap();
        assert!((45_000..200_000).contains(&grown), "{grown} ns");
        for _ in 0..20 {
            pulse.taken(1000);
            pulse.beat(Instant::now()).unwrap();
        }
        assert!(pulse.average_ns <= LatencyEstimate::AT_ONCE_NS);
    }

    #[test]
    fn a_call_that_never_ends_counts_and_is_let_go() {
        // If this broke, one client that died in a call would fix the average for good.
        let mut pulse = LatencyEstimate::default();
        (0..100).for_each(|request| pulse.began(LANE, request));
        pulse.taken(100);
        assert_eq!(pulse.beat(Instant::now() - Duration::from_secs(1)), None, "it has just begun");
        let told = pulse.beat(Instant::now() + Duration::from_secs(1)).unwrap();
        assert_eq!(told, LatencyEstimate::LONGEST.as_nanos() as u64 / 2);
        assert!(pulse.followed.is_none());
    }
}
