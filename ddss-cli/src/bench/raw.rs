//! The limit of the machine: one cache line between two threads.

use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Round trips whose time is taken together: a clock is too coarse for one.
const BATCH: u64 = 64;

/// A line of its own, so that nothing else moves it.
#[repr(align(128))]
struct Line(AtomicU64);

/// Round trips of one cache line between two threads that both spin; nanoseconds each.
pub(super) fn ping_pong(duration: Duration) -> Histogram<u64> {
    let mut times = super::figures::histogram();
    let line = Line(AtomicU64::new(0));
    std::thread::scope(|scope| {
        // Even is a question, odd its answer; the last question is u64::MAX - 1.
        scope.spawn(|| {
            let mut next = 2;
            loop {
                match line.0.load(Ordering::Acquire) {
                    found if found == u64::MAX - 1 => return,
                    found if found == next => {
                        line.0.store(next + 1, Ordering::Release);
                        next += 2;
                    }
                    // On one core the other thread needs it.
                    _ => std::hint::spin_loop(),
                }
            }
        });
        let (end, mut question) = (Instant::now() + duration, 0);
        while Instant::now() < end {
            let begin = Instant::now();
            for _ in 0..BATCH {
                question += 2;
                line.0.store(question, Ordering::Release);
                while line.0.load(Ordering::Acquire) != question + 1 {
                    std::hint::spin_loop();
                }
            }
            times.saturating_record((begin.elapsed().as_nanos() as u64 / BATCH).max(1));
        }
        line.0.store(u64::MAX - 1, Ordering::Release);
    });
    times
}
