//! Count of the callers that call all the time: with fewer cores than such callers, each has to give up its core now and then.

use std::time::{Duration, Instant};

/// Time over which requests are counted.
const WINDOW: Duration = Duration::from_millis(10);
/// Requests in a window from which a channel's caller is one that calls all the time.
const REQUESTS_MIN: usize = 64;

/// Requests of one channel in one window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestCount {
    window: u32,
    requests: usize,
}

/// Counts the channels with many requests, window after window.
#[derive(Debug, Default)]
pub(crate) struct SteadyCallers {
    window: u32,
    ends: Option<Instant>,
    callers: usize,
}

impl SteadyCallers {
    /// Counts requests of a channel.
    #[inline(always)]
    pub(crate) fn record(&mut self, count: &mut RequestCount, requests: usize) {
        if count.window != self.window {
            *count = RequestCount { window: self.window, requests: 0 };
        }
        let before = count.requests;
        count.requests += requests;
        self.callers += usize::from(before < REQUESTS_MIN && count.requests >= REQUESTS_MIN);
    }

    /// Returns the number of callers if the window has ended, and begins the next one.
    pub(crate) fn end_window(&mut self, now: Instant) -> Option<usize> {
        if self.ends.is_some_and(|ends| now < ends) {
            return None;
        }
        self.ends = Some(now + WINDOW);
        self.window = self.window.wrapping_add(1);
        Some(std::mem::take(&mut self.callers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_channels_with_many_requests_count_and_only_once() {
        // If this failed, an occasional caller would make all others give up their cores, or a crowd would not be seen.
        let (mut callers, mut now) = (SteadyCallers::default(), Instant::now());
        let mut channels = [RequestCount::default(); 3];
        assert_eq!(callers.end_window(now), Some(0));
        for _ in 0..3 {
            callers.record(&mut channels[0], REQUESTS_MIN);
            (0..3 * REQUESTS_MIN).for_each(|_| callers.record(&mut channels[1], 1));
            callers.record(&mut channels[2], REQUESTS_MIN - 1);
            assert_eq!(callers.end_window(now), None);
            now += WINDOW;
            assert_eq!(callers.end_window(now), Some(2), "a new window forgets the last one");
        }
    }
}
