//! Average latency of a call, published to clients: on a busy machine they do not spin for slow calls.

use ddss_core::ChannelId;
use std::time::{Duration, Instant};

/// Running average, and the samples of the current period.
#[derive(Debug, Default)]
pub(crate) struct LatencyEstimate {
    /// Calls of this period, and those of them without an immediate reply.
    calls: u64,
    deferred: u64,
    /// The sampled deferred call, and its start.
    sample: Option<(ChannelId, u64, Instant)>,
    /// Total latency and number of the sampled calls.
    sampled_time: Duration,
    sampled_calls: u32,
    average_ns: u64,
}

impl LatencyEstimate {
    /// Approximate latency of a call with an immediate reply.
    const IMMEDIATE_NS: u64 = 300;
    /// Cap for one sample: a longer call waits for another client's lock, not for this node.
    const SAMPLE_MAX: Duration = Duration::from_micros(200);
    /// Calls that make a period.
    const CALLS_MIN: u64 = 64;

    /// Counts `calls` calls; most of them got an immediate reply.
    pub(crate) fn add_calls(&mut self, calls: usize) {
        self.calls += calls as u64;
    }

    /// Counts a deferred call. One at a time is sampled to its end.
    pub(crate) fn begin_sample(&mut self, channel: ChannelId, request: u64) {
        self.deferred += 1;
        if self.sample.is_none() {
            self.sample = Some((channel, request, Instant::now()));
        }
    }

    /// Ends the sample, if this call is the sampled one.
    pub(crate) fn end_sample(&mut self, channel: ChannelId, request: u64) {
        if let Some((of, which, since)) = self.sample
            && (of, which) == (channel, request)
        {
            self.sampled_time += since.elapsed().min(Self::SAMPLE_MAX);
            self.sampled_calls += 1;
            self.sample = None;
        }
    }

    /// Closes the period and returns the new average, if there were enough calls.
    pub(crate) fn close_period(&mut self, now: Instant) -> Option<u64> {
        if self.calls < Self::CALLS_MIN {
            return None;
        }
        // A sample that never ends (its client has gone) must not block later samples.
        if self.sample.is_some_and(|(.., since)| now.saturating_duration_since(since) >= Self::SAMPLE_MAX) {
            self.sample = None;
            self.sampled_time += Self::SAMPLE_MAX;
            self.sampled_calls += 1;
        }
        if self.deferred > 0 && self.sampled_calls == 0 {
            return None;
        }
        let deferred_ns = self.sampled_time.as_nanos() as u64 / u64::from(self.sampled_calls.max(1));
        let immediate = self.calls.saturating_sub(self.deferred);
        let mean = (immediate * Self::IMMEDIATE_NS + self.deferred * deferred_ns) / (immediate + self.deferred);
        self.average_ns = (self.average_ns + mean) / 2;
        let average_ns = self.average_ns;
        *self = Self { average_ns, sample: self.sample, ..Self::default() };
        Some(average_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::ClientId;

    const CHANNEL: ChannelId = ChannelId { client: ClientId { index: 1, generation: 1 }, index: 0 };

    fn later(latency: &mut LatencyEstimate, micros: u64, calls: u64) -> u64 {
        for request in 0..calls {
            latency.begin_sample(CHANNEL, request);
            if let Some((_, _, since)) = &mut latency.sample {
                *since -= Duration::from_micros(micros);
            }
            latency.end_sample(CHANNEL, request);
        }
        latency.add_calls(calls as usize);
        latency.close_period(Instant::now()).unwrap()
    }

    #[test]
    fn average_follows_latency_of_calls() {
        // If this broke, many clients would spin for calls to other nodes and delay each other's replies.
        let mut latency = LatencyEstimate::default();
        latency.add_calls(1000);
        assert!(latency.close_period(Instant::now()).unwrap() <= LatencyEstimate::IMMEDIATE_NS);
        let grown = (0..10).map(|_| later(&mut latency, 50, 100)).last().unwrap();
        assert!((45_000..200_000).contains(&grown), "{grown} ns");
        for _ in 0..20 {
            latency.add_calls(1000);
            latency.close_period(Instant::now()).unwrap();
        }
        assert!(latency.average_ns <= LatencyEstimate::IMMEDIATE_NS);
    }

    #[test]
    fn unfinished_sample_is_capped_and_dropped() {
        // If this broke, one client that died in a call would fix the average for good.
        let mut latency = LatencyEstimate::default();
        (0..100).for_each(|request| latency.begin_sample(CHANNEL, request));
        latency.add_calls(100);
        assert_eq!(latency.close_period(Instant::now() - Duration::from_secs(1)), None, "it has just begun");
        let average_ns = latency.close_period(Instant::now() + Duration::from_secs(1)).unwrap();
        assert_eq!(average_ns, LatencyEstimate::SAMPLE_MAX.as_nanos() as u64 / 2);
        assert!(latency.sample.is_none());
    }
}
