//! The limit of the machine: one cache line between two threads, and then the next: what one line takes depends on where in the
//! processor it is at home.

use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Round trips whose time is taken together: a clock is too coarse for one.
const BATCH: u64 = 64;

/// Lines that take turns, a batch each.
const LINES: u64 = 64;

/// A line of its own, so that nothing else moves it.
#[repr(align(128))]
struct Line(AtomicU64);

/// The line of a question.
fn line_of(lines: &[Line; LINES as usize], question: u64) -> &AtomicU64 {
    &lines[((question - 2) / 2 / BATCH % LINES) as usize].0
}

/// Keeps the calling thread on one core: the first that it may run on, or the last. Two that spin on the same core
/// wait for the kernel, not for a line. Where it cannot be kept it runs anywhere.
fn stay(on_last: bool) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    if let Some(core) = if on_last { cores.next_back() } else { cores.next() } {
        let mut one = CpuSet::new();
        one.set(core);
        let _ = sched_setaffinity(None, &one);
    }
}

/// Round trips of one cache line between two threads that both spin; nanoseconds each.
pub(super) fn ping_pong(duration: Duration) -> Histogram<u64> {
    // It stays on its core, and this thread is wanted elsewhere.
    let asked = std::thread::scope(|scope| scope.spawn(|| ask(duration)).join());
    asked.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked))
}

fn ask(duration: Duration) -> Histogram<u64> {
    let mut times = super::figures::histogram();
    let lines: [Line; LINES as usize] = std::array::from_fn(|_| Line(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        // Even is a question, odd its answer; the last question is u64::MAX - 1.
        scope.spawn(|| {
            stay(true);
            let mut next = 2;
            loop {
                let line = line_of(&lines, next);
                match line.load(Ordering::Acquire) {
                    found if found == u64::MAX - 1 => return,
                    found if found == next => {
                        line.store(next + 1, Ordering::Release);
                        next += 2;
                    }
                    // On one core the other thread needs it.
                    _ => std::hint::spin_loop(),
                }
            }
        });
        stay(false);
        let (end, mut question) = (Instant::now() + duration, 0);
        while Instant::now() < end {
            let begin = Instant::now();
            for _ in 0..BATCH {
                question += 2;
                let line = line_of(&lines, question);
                line.store(question, Ordering::Release);
                while line.load(Ordering::Acquire) != question + 1 {
                    std::hint::spin_loop();
                }
            }
            times.saturating_record((begin.elapsed().as_nanos() as u64 / BATCH).max(1));
        }
        line_of(&lines, question + 2).store(u64::MAX - 1, Ordering::Release);
    });
    times
}
