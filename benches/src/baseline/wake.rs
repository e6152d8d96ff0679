//! Wake-up of a thread that sleeps in the kernel, by another core: the minimal cost of the first reply of an idle
//! service.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::futex;

use crate::harness::{Cores, Figure, RoundTrip, Spinner, pin};

/// Pause until all threads sleep: longer than a service spins.
pub(crate) const IDLE: Duration = Duration::from_micros(300);
/// The longest sleep, in case a wake-up gets lost.
const SLEEP_MAX: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };

/// The futex word: odd is a request, even a reply.
#[derive(Default)]
struct Shared {
    word: AtomicU32,
    over: AtomicBool,
}

struct Wake {
    shared: Arc<Shared>,
    sleeper: Option<JoinHandle<()>>,
    answer: u32,
    took: Duration,
    yields: bool,
}

/// A futex wake-up of a thread on the service's core, until its answer is seen.
pub fn futex_wake(cores: Cores) -> Figure {
    let shared = Arc::new(Shared::default());
    let theirs = Arc::clone(&shared);
    let sleeper = thread::spawn(move || {
        pin(cores.service).expect("the core is one of those that this process may use");
        while !theirs.over.load(Ordering::Acquire) {
            let seen = theirs.word.load(Ordering::Acquire);
            if seen % 2 == 1 {
                theirs.word.store(seen.wrapping_add(1), Ordering::Release);
            } else {
                // After any wake-up the word selects the action.
                let _ = futex::wait(&theirs.word, futex::Flags::PRIVATE, seen, Some(&SLEEP_MAX));
            }
        }
    });
    let (took, yields) = (Duration::ZERO, cores.is_shared());
    let trip = Wake { shared, sleeper: Some(sleeper), answer: 0, took, yields };
    Figure::new("raw", "wake", 8, "shm/block/t1", trip)
}

impl RoundTrip for Wake {
    fn once(&mut self) {
        thread::sleep(IDLE);
        let begin = Instant::now();
        self.shared.word.store(self.answer.wrapping_add(1), Ordering::Release);
        let _ = futex::wake(&self.shared.word, futex::Flags::PRIVATE, 1);
        self.answer = self.answer.wrapping_add(2);
        let mut spinner = Spinner::new(self.yields);
        while self.shared.word.load(Ordering::Acquire) != self.answer {
            spinner.again();
        }
        self.took = begin.elapsed();
    }

    fn took(&self) -> Option<Duration> {
        Some(self.took)
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        let _ = futex::wake(&self.shared.word, futex::Flags::PRIVATE, 1);
        if let Some(sleeper) = self.sleeper.take() {
            // A thread that panicked has reported it.
            drop(sleeper.join());
        }
    }
}
