//! Steal time: intervals in which the hypervisor ran none of a core's threads.
//!
//! On each core a thread with real-time priority (by `chrt`) sleeps in short steps. No process of this system can delay
//! it. When it wakes late, the host had the core: a virtual machine loses its cores for milliseconds, and no lock moves
//! meanwhile.

use crate::Broken;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval between two readings of the clock. A shorter one would delay the measured threads.
const NAP: Duration = Duration::from_millis(1);
/// Lateness that counts as steal time. A timer and a thread switch take a tenth of it.
const LATE: Duration = Duration::from_micros(200);

type Gaps = Arc<Mutex<Vec<(Instant, Instant)>>>;

/// A thread on each core.
pub(crate) struct Watch {
    over: Arc<AtomicBool>,
    gaps: Gaps,
    threads: Vec<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn start() -> Result<Self, Broken> {
        let (over, gaps) = (Arc::new(AtomicBool::new(false)), Gaps::default());
        let allowed = sched_getaffinity(None)?;
        let mut watch = Self { over, gaps, threads: Vec::new() };
        for core in (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)) {
            let (over, gaps) = (Arc::clone(&watch.over), Arc::clone(&watch.gaps));
            let (say, hear) = std::sync::mpsc::channel();
            watch.threads.push(std::thread::spawn(move || {
                let _ = say.send(goes_first(core));
                look_out(&over, &gaps);
            }));
            if let Err(why) = hear.recv()? {
                watch.end();
                return Err(why);
            }
        }
        Ok(watch)
    }

    /// Ends the watch and returns its intervals.
    pub(crate) fn end(self) -> StealTime {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a watch does not panic");
        }
        let mut gaps = std::mem::take(&mut *self.gaps.lock().unwrap_or_else(PoisonError::into_inner));
        gaps.sort_unstable();
        StealTime { gaps }
    }
}

/// Pins this thread to a core, with real-time priority.
fn goes_first(core: usize) -> Result<(), Broken> {
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only)?;
    let thread = gettid().as_raw_nonzero().to_string();
    let changed = Command::new("chrt").args(["--fifo", "--pid", "50", &thread]).output()?;
    if changed.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&changed.stderr).into()) }
}

fn look_out(over: &AtomicBool, gaps: &Mutex<Vec<(Instant, Instant)>>) {
    while !over.load(Ordering::Relaxed) {
        let due = Instant::now() + NAP;
        std::thread::sleep(NAP);
        let now = Instant::now();
        if now > due + LATE {
            gaps.lock().unwrap_or_else(PoisonError::into_inner).push((due, now));
        }
    }
}

/// Intervals in which the host had taken some core.
pub(crate) struct StealTime {
    /// In the order in which they began.
    gaps: Vec<(Instant, Instant)>,
}

impl StealTime {
    /// Returns for how long the host had one of the cores between two times.
    pub(crate) fn within(&self, from: Instant, to: Instant) -> Duration {
        let (mut sum, mut seen) = (Duration::ZERO, from);
        for &(begin, end) in self.gaps.iter().take_while(|(begin, _)| *begin < to) {
            let (begin, end) = (begin.max(seen), end.min(to));
            sum += end.saturating_duration_since(begin);
            seen = seen.max(end);
        }
        sum
    }

    pub(crate) fn print(&self) {
        let length = |&(begin, end): &(Instant, Instant)| end - begin;
        let longest = self.gaps.iter().map(length).max().unwrap_or_default();
        let (all, of_a_millisecond) =
            (self.gaps.len(), self.gaps.iter().filter(|gap| length(gap) >= Duration::from_millis(1)).count());
        println!(
            "the machine took a core away {all} times, {of_a_millisecond} times for a millisecond or more, {:.0} us at most",
            longest.as_secs_f64() * 1e6
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_time_counts_once_and_only_within_the_turn() {
        // If this failed, earlier steal time would excuse waits, or two cores taken at the same time would count twice.
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let taken = StealTime { gaps: vec![(at(0), at(4)), (at(2), at(3)), (at(6), at(9)), (at(20), at(30))] };
        assert_eq!(taken.within(at(1), at(8)), Duration::from_millis(5));
        assert_eq!(taken.within(at(10), at(19)), Duration::ZERO);
        assert_eq!(taken.within(at(25), at(26)), Duration::from_millis(1));
    }
}
