//! Waits of threads with a core each: spin a bounded time, then sleep.

use std::time::Instant;

use crate::strategy::WaitClass;
use crate::transport::channel_transport::WaitOutcome;
use crate::transport::ring_ends::RingEnds;
use crate::wait::config::WAIT;

/// Waits for a completion. A polling client spins until the deadline. On the service's core the caller sleeps
/// immediately, so that the kernel finds another core for it.
pub(crate) fn wait(ends: &mut RingEnds, is_polling: bool, class: WaitClass, deadline: Instant) -> WaitOutcome {
    if class == WaitClass::Sleeping || ends.connection().shared_core().is_some() {
        return ends.wait_parked(deadline);
    }
    // Most replies arrive before the clock is worth a read.
    if ends.poll_first() {
        return WaitOutcome::Ready;
    }
    let start = Instant::now();
    let end = if is_polling { deadline } else { deadline.min(start + WAIT.spin_many_cores) };
    let mut liveness_check = start + WAIT.liveness_interval;
    loop {
        if ends.poll_ready(WAIT.polls_per_clock_read) {
            return WaitOutcome::Ready;
        }
        let now = Instant::now();
        if now >= end {
            return ends.wait_parked(deadline);
        }
        if now >= liveness_check {
            if !ends.connection().is_alive() {
                return ends.poll_last();
            }
            liveness_check = now + WAIT.liveness_interval;
        }
    }
}
