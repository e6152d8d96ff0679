//! Whether this node's progress threads go on. A control plane that answers beside a progress thread that hangs would keep segments
//! at home here that nobody can reach: so it asks for no lease any more, and tells the leader.

use crate::status::StatusPage;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often the signs of life are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Looks in a row at the same sign of life after which a progress thread hangs: 2 s, as a monitor is told. A progress thread beats
/// every 50 ms, also when it is idle. Looks and not time are counted: on a machine that runs neither thread, or in a process that
/// is stopped, no look is made either.
const LOOKS_MAX: u32 = 20;

/// Whether a progress thread of this node hangs. Clones say the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stall(Arc<AtomicBool>);

impl Stall {
    pub(super) fn is_stalled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The last sign of life of each progress thread, and how many looks have found no newer one.
#[derive(Debug, Default)]
struct StallDetector {
    seen: Vec<(u64, u32)>,
}

impl StallDetector {
    /// Looks at all of them; says whether one hangs.
    fn look(&mut self, heartbeats: impl Iterator<Item = u64>) -> bool {
        let mut is_stalled = false;
        for (index, heartbeat) in heartbeats.enumerate() {
            let Some((last, looks)) = self.seen.get_mut(index) else {
                self.seen.push((heartbeat, 0));
                continue;
            };
            *looks = if *last == heartbeat { looks.saturating_add(1) } else { 0 };
            *last = heartbeat;
            is_stalled |= *looks >= LOOKS_MAX;
        }
        is_stalled
    }
}

/// Looks until the runtime ends.
pub(crate) async fn detect_stalls(stall: Stall, pages: Vec<StatusPage>) {
    let mut detector = StallDetector::default();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let is_stalled = detector.look(pages.iter().map(StatusPage::heartbeat_ns));
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
    fn a_thread_hangs_when_many_looks_find_no_newer_sign_of_life_and_one_that_is_slow_does_not() {
        // If this broke, a slow machine would move segments without need, or a thread that hangs would keep its own.
        let mut detector = StallDetector::default();
        for beat in 0..10 {
            for _ in 0..LOOKS_MAX {
                assert!(!detector.look([beat, beat + 5].into_iter()), "it beats once in so many looks");
            }
        }
        let stalled: Vec<bool> =
            (0..=LOOKS_MAX).map(|look| detector.look([100 + u64::from(look), 7].into_iter())).collect();
        assert_eq!(stalled.iter().filter(|&&stalled| !stalled).count(), LOOKS_MAX as usize, "the other one beats");
        assert!(!detector.look([200, 8].into_iter()), "one beat is enough");
    }
}
