//! Detection of stalled progress threads.
//!
//! A control plane that answers beside a stalled progress thread would pin segments to an unreachable home. So such a
//! node renews no lease and tells the leader.

use crate::status::StatusPage;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Interval between two checks of the heartbeats.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Checks in a row without a new heartbeat after which a thread counts as stalled: 2 s, as monitors are told. A
/// progress thread beats every 50 ms, also when idle. Checks are counted, not time: on a machine that runs neither
/// thread, or in a stopped process, no check is made either.
const MISSED_CHECKS_MAX: u32 = 20;

/// Shared flag: a progress thread of this node is stalled. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stall(Arc<AtomicBool>);

impl Stall {
    pub(super) fn is_stalled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Last heartbeat of each progress thread, and the number of checks without a newer one.
#[derive(Debug, Default)]
struct StallDetector {
    seen: Vec<(u64, u32)>,
}

impl StallDetector {
    /// Checks all heartbeats; returns true if a thread is stalled.
    fn check(&mut self, heartbeats: impl Iterator<Item = u64>) -> bool {
        let mut is_stalled = false;
        for (index, heartbeat) in heartbeats.enumerate() {
            let Some((last, missed_checks)) = self.seen.get_mut(index) else {
                self.seen.push((heartbeat, 0));
                continue;
            };
            *missed_checks = if *last == heartbeat { missed_checks.saturating_add(1) } else { 0 };
            *last = heartbeat;
            is_stalled |= *missed_checks >= MISSED_CHECKS_MAX;
        }
        is_stalled
    }
}

/// Checks the heartbeats until the runtime ends.
pub(crate) async fn detect_stalls(stall: Stall, pages: Vec<StatusPage>) {
    let mut detector = StallDetector::default();
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let is_stalled = detector.check(pages.iter().map(StatusPage::heartbeat_ns));
        if stall.0.swap(is_stalled, Ordering::AcqRel) != is_stalled {
            if is_stalled {
                tracing::error!("a progress thread gives no sign of life: this node asks for no lease until it does");
            } else {
                tracing::warn!("all progress threads give signs of life again");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_is_stalled_after_many_checks_without_heartbeat_and_slow_thread_is_not() {
        // If this broke, a slow machine would move segments without need, or a stalled thread would keep its
        // segments.
        let mut detector = StallDetector::default();
        for beat in 0..10 {
            for _ in 0..MISSED_CHECKS_MAX {
                assert!(!detector.check([beat, beat + 5].into_iter()), "it beats once in so many looks");
            }
        }
        let stalled: Vec<bool> =
            (0..=MISSED_CHECKS_MAX).map(|look| detector.check([100 + u64::from(look), 7].into_iter())).collect();
        assert_eq!(
            stalled.iter().filter(|&&stalled| !stalled).count(),
            MISSED_CHECKS_MAX as usize,
            "the other one beats"
        );
        assert!(!detector.check([200, 8].into_iter()), "one beat is enough");
    }
}
