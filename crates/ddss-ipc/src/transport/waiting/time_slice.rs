//! Turns of callers that share a core, and avoidance of the service's core.
//!
//! A client whose replies arrive while it spins never sleeps. So the scheduler lets it run for its whole slice, while
//! others that wait for the same core get no reply at all. A client on the service's own core only gets a reply by
//! taking turns with the service. So, on an oversubscribed machine, a client yields after a short turn, and one on the
//! service's core asks the kernel to be moved.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, sched_yield};

use crate::sys::{set_slice_ns, slice_ns};
use crate::wait::config::WAIT;

thread_local! {
    /// The thread's usual slice, while its slices are short.
    static USUAL_SLICE_NS: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Turn state of one channel.
pub(crate) struct TimeSlice {
    began: Instant,
    last: Instant,
    calls: u32,
    turns: u32,
    /// The thread's affinity excludes the service's core.
    is_off_service_core: bool,
    last_leave: Option<Instant>,
    /// Until then a busy thread has this core, and it is not yielded.
    busy_until: Option<Instant>,
    /// Pause as a multiple of the duration of a long yield.
    busy_backoff: u32,
    waits_on_service_core: u32,
}

impl TimeSlice {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let (calls, turns, waits_on_service_core) = (0, 0, 0);
        let (last_leave, busy_until, busy_backoff) = (None, None, WAIT.busy_backoff);
        let is_off_service_core = false;
        Self {
            began: now,
            last: now,
            calls,
            turns,
            is_off_service_core,
            last_leave,
            busy_until,
            busy_backoff,
            waits_on_service_core,
        }
    }

    /// Yields if the turn is over, given the threads that take turns, the service's core, and whether calls are short.
    #[inline]
    pub(crate) fn yield_when_due(&mut self, thread_count: u32, service_core: Option<usize>, has_short_calls: bool) {
        self.calls = self.calls.wrapping_add(1);
        if !self.calls.is_multiple_of(WAIT.calls_per_clock_read) {
            return;
        }
        let now = Instant::now();
        if now - self.last > WAIT.idle_gap {
            self.began = now;
        }
        self.last = now;
        if now - self.began >= turn_length(thread_count, self.is_off_service_core) {
            self.turns = self.turns.wrapping_add(1);
            if self.turns % WAIT.turns_per_affinity_check == WAIT.first_affinity_check {
                self.is_off_service_core = service_core.is_some_and(is_excluded_from);
            }
            // Not for some turns only: among threads that pay less for their turns, one with usual slices gets a tenth
            // of its share.
            set_short_slices(has_short_calls && self.is_off_service_core && thread_count <= WAIT.few_threads);
            self.yield_core();
        }
    }

    /// Records that the calling thread takes no turns.
    #[inline]
    pub(crate) fn stop_sharing(&self) {
        if USUAL_SLICE_NS.get().is_some() {
            set_short_slices(false);
        }
    }

    fn yield_core(&mut self) {
        sched_yield();
        self.began = Instant::now();
        self.last = self.began;
    }

    /// Yields during a wait, unless a busy thread would keep the core for a slice. Returns the time until the core came
    /// back. On an oversubscribed machine other callers get the core, and it comes back.
    pub(crate) fn offer_core(&mut self, now: Instant, is_oversubscribed: bool) -> Option<Duration> {
        if is_oversubscribed {
            sched_yield();
            return Some(now.elapsed());
        }
        if self.busy_until.is_some_and(|until| now < until) {
            return None;
        }
        self.yield_core();
        let took = self.began - now;
        self.record_offer(took);
        Some(took)
    }

    /// Records the duration of a yield.
    fn record_offer(&mut self, took: Duration) {
        if took <= WAIT.busy_offer_min {
            (self.busy_until, self.busy_backoff) = (None, WAIT.busy_backoff);
            return;
        }
        let rest = took.saturating_mul(self.busy_backoff).min(WAIT.busy_backoff_max);
        self.busy_until = Some(self.began + rest);
        if rest < WAIT.busy_backoff_max {
            self.busy_backoff *= WAIT.busy_backoff_growth;
        }
    }

    /// Moves the calling thread off the service's core after some waits there, if it may run elsewhere. The thread's
    /// affinity is unchanged on return; the kernel was only made to pick another core.
    pub(crate) fn leave_service_core(&mut self, core: usize, is_oversubscribed: bool) {
        self.waits_on_service_core += 1;
        if !is_oversubscribed && self.waits_on_service_core < WAIT.waits_on_service_core_max {
            return;
        }
        self.waits_on_service_core = 0;
        let now = Instant::now();
        if self.last_leave.is_some_and(|last_leave| now - last_leave < WAIT.leave_interval) {
            return;
        }
        self.last_leave = Some(now);
        let Ok(allowed) = sched_getaffinity(None) else { return };
        let mut others: CpuSet = allowed;
        others.unset(core);
        if others.count() > 0 && sched_setaffinity(None, &others).is_ok() {
            // If the affinity cannot be restored, the thread keeps running on fewer cores, without the service's.
            let _ = sched_setaffinity(None, &allowed);
        }
    }
}

/// Returns true if the calling thread's affinity excludes that core.
fn is_excluded_from(core: usize) -> bool {
    core < CpuSet::MAX_CPU && sched_getaffinity(None).is_ok_and(|allowed| !allowed.is_set(core))
}

/// Makes the calling thread's slices short, or restores them.
fn set_short_slices(short: bool) {
    match (short, USUAL_SLICE_NS.get()) {
        (true, None) => {
            // A thread with another priority, or on a kernel without slices, stays unchanged.
            let usual = slice_ns();
            USUAL_SLICE_NS.set(Some(usual.unwrap_or(WAIT.slice_ns)));
            if usual.is_some_and(|usual| usual == 0 || usual > WAIT.slice_ns) {
                // Without short slices, turns keep their usual cost.
                let _ = set_slice_ns(WAIT.slice_ns);
            }
        }
        (false, Some(usual)) => {
            USUAL_SLICE_NS.set(None);
            if usual != WAIT.slice_ns {
                let _ = set_slice_ns(usual);
            }
        }
        _ => {}
    }
}

/// Returns the length of a turn among that many threads.
fn turn_length(thread_count: u32, is_off_service_core: bool) -> Duration {
    match (is_off_service_core, thread_count) {
        (true, thread_count) if thread_count > WAIT.few_threads => WAIT.turn_many_off_core,
        (true, _) => WAIT.turn,
        (false, thread_count) => (WAIT.round / thread_count.max(1)).clamp(WAIT.turn_min, WAIT.turn),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_on_service_core_have_short_turns() {
        // If this failed, threads would wait for long, or lose their time to yields.
        assert_eq!(
            [1, 30, 60, 500].map(|thread_count| turn_length(thread_count, false)),
            [WAIT.turn, WAIT.turn, WAIT.round / 60, WAIT.turn_min]
        );
        let apart = [WAIT.turn, WAIT.turn, WAIT.turn, WAIT.turn_many_off_core, WAIT.turn_many_off_core];
        assert_eq!(
            [1, 30, WAIT.few_threads, WAIT.few_threads + 1, 500].map(|thread_count| turn_length(thread_count, true)),
            apart
        );
        assert_eq!((turn_length(0, false), turn_length(u32::MAX, false)), (WAIT.turn, WAIT.turn_min));
    }

    #[test]
    fn busy_core_is_not_offered_during_backoff() {
        // If this failed, a client beside a computing program would wait for a slice of milliseconds in each call.
        let mut turn = TimeSlice::new();
        let long_ago = turn.began - Duration::from_secs(2);
        turn.record_offer(WAIT.busy_offer_min);
        assert!(turn.offer_core(long_ago, false).is_some(), "a waiting thread gives the core back soon");
        turn.record_offer(WAIT.busy_offer_min);
        let rest = |turn: &TimeSlice| turn.busy_until.unwrap() - turn.began;
        let rests = [3, 3, 3, 3, 3, 3].map(|millis| {
            turn.record_offer(Duration::from_millis(millis));
            rest(&turn).as_millis()
        });
        assert_eq!(rests, [24, 48, 96, 192, 384, 500]);
        turn.record_offer(WAIT.busy_offer_min);
        turn.record_offer(Duration::from_millis(3));
        assert_eq!(rest(&turn), Duration::from_millis(24), "a new busy thread");
        let until = turn.busy_until.unwrap();
        assert_eq!(turn.offer_core(until - Duration::from_micros(1), false), None);
        turn.record_offer(Duration::from_secs(3600));
        assert_eq!(turn.busy_until.unwrap() - turn.began, WAIT.busy_backoff_max);
        assert!(turn.offer_core(long_ago, true).is_some(), "an oversubscribed core comes back");
        turn.record_offer(Duration::from_millis(3));
        // At the end of the backoff the core is offered again.
        assert!(turn.offer_core(turn.busy_until.unwrap(), false).is_some());
    }

    #[test]
    fn short_slices_are_restored() {
        // If this failed, clients that take turns would get less than their share beside threads that run without a
        // pause, or a thread would keep short slices forever.
        std::thread::spawn(|| {
            // None for a thread with another policy: then it stays none.
            let usual = slice_ns();
            set_short_slices(false);
            assert_eq!(slice_ns(), usual);
            set_short_slices(true);
            set_short_slices(true);
            let short = slice_ns();
            assert!(short == usual || short == Some(WAIT.slice_ns), "{short:?}");
            set_short_slices(false);
            assert_eq!(slice_ns(), usual);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn pinned_thread_is_excluded_from_service_core() {
        // If this failed, many threads with cores of their own would take turns that are too short.
        let here = sched_getaffinity(None).unwrap();
        let own = (0..CpuSet::MAX_CPU).find(|&core| here.is_set(core)).unwrap();
        let other = (0..CpuSet::MAX_CPU).find(|&core| !here.is_set(core)).unwrap();
        assert_eq!([own, other, CpuSet::MAX_CPU].map(is_excluded_from), [false, true, false]);
    }
}
