//! Baseline of the machine: the round trip of a cache line between two threads. Many lines take turns, because the time
//! depends on the place of a line in the processor.

use super::row::histogram;
use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Round trips of one measurement; a clock is too coarse for a single one.
const BATCH: u64 = 64;

/// Cache lines that take turns, one batch each.
const LINES: u64 = 64;

/// Returns the cache line of a request.
fn line_of(lines: &[CachePadded<AtomicU64>; LINES as usize], request: u64) -> &AtomicU64 {
    &lines[((request - 2) / 2 / BATCH % LINES) as usize]
}

/// Pins the calling thread to the first or the last allowed core. Two threads that spin on one core would measure the
/// scheduler. If pinning fails, the thread runs anywhere.
fn pin_thread(on_last: bool) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    if let Some(core) = if on_last { cores.next_back() } else { cores.next() } {
        let mut one = CpuSet::new();
        one.set(core);
        let _ = sched_setaffinity(None, &one);
    }
}

/// Measures round trips of one cache line between two spinning threads, in nanoseconds.
pub(super) fn ping_pong(duration: Duration) -> Histogram<u64> {
    // A separate thread is pinned, because the caller must stay unpinned.
    let measured = std::thread::scope(|scope| scope.spawn(|| measure(duration)).join());
    measured.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked))
}

fn measure(duration: Duration) -> Histogram<u64> {
    let mut times = histogram();
    let lines: [CachePadded<AtomicU64>; LINES as usize] = std::array::from_fn(|_| CachePadded::new(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        // An even value is a request, the next odd value its reply; the last request is u64::MAX - 1.
        scope.spawn(|| {
            pin_thread(true);
            let mut next = 2;
            loop {
                let line = line_of(&lines, next);
                match line.load(Ordering::Acquire) {
                    found if found == u64::MAX - 1 => return,
                    found if found == next => {
                        line.store(next + 1, Ordering::Release);
                        next += 2;
                    }
                    // On a single core the other thread needs the core.
                    _ => std::hint::spin_loop(),
                }
            }
        });
        pin_thread(false);
        let (end, mut request) = (Instant::now() + duration, 0);
        while Instant::now() < end {
            let begin = Instant::now();
            for _ in 0..BATCH {
                request += 2;
                let line = line_of(&lines, request);
                line.store(request, Ordering::Release);
                while line.load(Ordering::Acquire) != request + 1 {
                    std::hint::spin_loop();
                }
            }
            times.saturating_record((begin.elapsed().as_nanos() as u64 / BATCH).max(1));
        }
        line_of(&lines, request + 2).store(u64::MAX - 1, Ordering::Release);
    });
    times
}
