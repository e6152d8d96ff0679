//! A caller's turn on its core: when to hand it over, and how to stay out of the service's way.
//!
//! A client that is answered within its spin never sleeps, so the scheduler lets it run for its whole slice while others
//! that wait for the same core are not answered at all. And a client on the service's own core can only be answered by
//! taking turns with it. So: on a full machine a client yields after a short turn, and one that finds itself on the
//! service's core asks the kernel to be moved.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, sched_yield};

use crate::sys::{set_slice_ns, slice_ns};

/// How long a turn is. A yield costs 1 to 3 microseconds, so this gives away about two percent.
const TURN: Duration = Duration::from_micros(100);
/// How long it is at the least: shorter ones would give away too much.
const TURN_MIN: Duration = Duration::from_micros(30);
/// How long it is for more than [`FEW`] who keep off the service's core. Their longest call is about one round, and not two: they have
/// the usual slices. For fewer of them it is a [`TURN`]: shorter ones win nothing beside their slices.
const TURN_MANY_APART: Duration = Duration::from_micros(150);
/// How long it may take until everybody had a turn, on one core, unless turns would be too short. The longest call is some two
/// times that.
const ROUND: Duration = Duration::from_millis(3);
/// What threads that take turns off the service's core ask the scheduler for, about a turn. Who yields is moved to the end of its
/// slice: with the system's slices of milliseconds it pays for a turn like somebody who worked all that time, and gets so much less
/// of the core beside threads that do not yield. Only where calls are short: where clients sleep and are woken, short slices make
/// them interrupt each other. And not where the service runs as well: who comes from another core with a debt of a millisecond or
/// two waits until all others have had as much, which takes the longer the less each of them pays for its turns.
const SLICE_NS: u64 = TURN.as_nanos() as u64;
/// Nor among more than so many, for the same reason.
const FEW: u32 = 64;
/// The clock is looked at once in so many calls: reading it takes a tenth of a call.
const CALLS_PER_LOOK: u32 = 8;
/// Where a thread may run is looked at once in so many turns,
const TURNS_PER_LOOK: u32 = 64;
/// and first at the end of this one: by then it is known how many there are.
const FIRST_LOOK: u32 = 2;
/// A longer time than this between two looks was not a turn: the caller did something else, or did not have the core.
const GAP: Duration = Duration::from_micros(20 * CALLS_PER_LOOK as u64);
/// An offer that takes longer went to somebody who works and does not wait. The scheduler lets him work on for a slice, so an offer
/// to him costs milliseconds where a sleep costs a wake-up.
const HOG_MIN: Duration = Duration::from_micros(500);
/// How many times as long as that offer took there is none after it. Others may have started just then, and be asleep soon,
const HOG_REST: u32 = 8;
/// so the rest grows by this with each offer in a row that takes so long, until such offers do not show in the 99th percentile.
const HOG_REST_GROWS: u32 = 2;
/// And it never is longer.
const HOG_REST_MAX: Duration = Duration::from_millis(500);
/// Waits in a row on the service's core before a client leaves it: it may be there by chance, and gone by itself. On a
/// full machine it leaves at the first.
const WAITS_ON_SERVICE_CORE_MAX: u32 = 4;
/// How often a client leaves the service's core at the most, if the kernel keeps putting it back.
const LEAVE_EVERY: Duration = Duration::from_micros(100);

thread_local! {
    /// What the thread's slices were before they were made short, while they are.
    static USUAL_SLICE_NS: Cell<Option<u64>> = const { Cell::new(None) };
}

/// One lane's view of its turn.
pub(crate) struct TimeSlice {
    began: Instant,
    last: Instant,
    calls: u32,
    turns: u32,
    /// Whether it may not run on the service's core.
    keeps_off: bool,
    left: Option<Instant>,
    /// Until then somebody works on this core, and it is not offered.
    hogged_until: Option<Instant>,
    /// How many times as long as an offer took there is none after it.
    hog_rest: u32,
    waits_on_service_core: u32,
}

impl TimeSlice {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let (calls, turns, waits_on_service_core) = (0, 0, 0);
        let (left, hogged_until, hog_rest) = (None, None, HOG_REST);
        let keeps_off = false;
        Self { began: now, last: now, calls, turns, keeps_off, left, hogged_until, hog_rest, waits_on_service_core }
    }

    /// Lets others run if the turn is over. So many threads take turns, that is the service's core, and calls are as short as that.
    #[inline]
    pub(crate) fn hand_over_when_due(&mut self, crowd: u32, service_core: Option<usize>, calls_are_short: bool) {
        self.calls = self.calls.wrapping_add(1);
        if !self.calls.is_multiple_of(CALLS_PER_LOOK) {
            return;
        }
        let now = Instant::now();
        if now - self.last > GAP {
            self.began = now;
        }
        self.last = now;
        if now - self.began >= turn(crowd, self.keeps_off) {
            self.turns = self.turns.wrapping_add(1);
            if self.turns % TURNS_PER_LOOK == FIRST_LOOK {
                self.keeps_off = service_core.is_some_and(keeps_off);
            }
            // Not now and then: among those who pay less for their turns, one who pays the usual gets a tenth of his share.
            take_slices(calls_are_short && self.keeps_off && crowd <= FEW);
            self.hand_over();
        }
    }

    /// The calling thread takes no turns.
    #[inline]
    pub(crate) fn end_turns(&self) {
        if USUAL_SLICE_NS.get().is_some() {
            take_slices(false);
        }
    }

    fn hand_over(&mut self) {
        sched_yield();
        self.began = Instant::now();
        self.last = self.began;
    }

    /// Lets others run while a call is waited for, unless somebody works on this core who would keep it for a slice; how long it
    /// was before the core came back. In a crowd it goes to others who call, and comes back.
    pub(crate) fn offer(&mut self, now: Instant, crowded: bool) -> Option<Duration> {
        if crowded {
            sched_yield();
            return Some(now.elapsed());
        }
        if self.hogged_until.is_some_and(|until| now < until) {
            return None;
        }
        self.hand_over();
        let took = self.began - now;
        self.came_back(took);
        Some(took)
    }

    /// An offer took so long.
    fn came_back(&mut self, took: Duration) {
        if took <= HOG_MIN {
            (self.hogged_until, self.hog_rest) = (None, HOG_REST);
            return;
        }
        let rest = took.saturating_mul(self.hog_rest).min(HOG_REST_MAX);
        self.hogged_until = Some(self.began + rest);
        if rest < HOG_REST_MAX {
            self.hog_rest *= HOG_REST_GROWS;
        }
    }

    /// The calling thread waits on the service's core: after some waits it leaves, if it may run elsewhere. Its
    /// affinity is as before when this returns; the kernel has only been made to pick another core.
    pub(crate) fn leave(&mut self, core: usize, crowded: bool) {
        self.waits_on_service_core += 1;
        if !crowded && self.waits_on_service_core < WAITS_ON_SERVICE_CORE_MAX {
            return;
        }
        self.waits_on_service_core = 0;
        let now = Instant::now();
        if self.left.is_some_and(|left| now - left < LEAVE_EVERY) {
            return;
        }
        self.left = Some(now);
        let Ok(allowed) = sched_getaffinity(None) else { return };
        let mut others: CpuSet = allowed;
        others.unset(core);
        if others.count() > 0 && sched_setaffinity(None, &others).is_ok() {
            // If it cannot be restored, the thread runs on: on fewer cores, but not on the service's.
            let _ = sched_setaffinity(None, &allowed);
        }
    }
}

/// Whether the calling thread may not run on that core.
fn keeps_off(core: usize) -> bool {
    core < CpuSet::MAX_CPU && sched_getaffinity(None).is_ok_and(|allowed| !allowed.is_set(core))
}

/// The calling thread's slices are short from now on, or what they were before.
fn take_slices(short: bool) {
    match (short, USUAL_SLICE_NS.get()) {
        (true, None) => {
            // A thread with another priority, or on a kernel that says nothing, stays as it is.
            let usual = slice_ns();
            USUAL_SLICE_NS.set(Some(usual.unwrap_or(SLICE_NS)));
            if usual.is_some_and(|usual| usual == 0 || usual > SLICE_NS) {
                // Where it cannot be had, turns cost what they cost.
                let _ = set_slice_ns(SLICE_NS);
            }
        }
        (false, Some(usual)) => {
            USUAL_SLICE_NS.set(None);
            if usual != SLICE_NS {
                let _ = set_slice_ns(usual);
            }
        }
        _ => {}
    }
}

/// The turn of each of a crowd.
fn turn(crowd: u32, keeps_off: bool) -> Duration {
    match (keeps_off, crowd) {
        (true, crowd) if crowd > FEW => TURN_MANY_APART,
        (true, _) => TURN,
        (false, crowd) => (ROUND / crowd.max(1)).clamp(TURN_MIN, TURN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_crowd_beside_the_service_has_short_turns() {
        // If this broke, a crowd would wait for long, or give its time away to yields.
        assert_eq!([1, 30, 60, 500].map(|crowd| turn(crowd, false)), [TURN, TURN, ROUND / 60, TURN_MIN]);
        let apart = [TURN, TURN, TURN, TURN_MANY_APART, TURN_MANY_APART];
        assert_eq!([1, 30, FEW, FEW + 1, 500].map(|crowd| turn(crowd, true)), apart);
        assert_eq!((turn(0, false), turn(u32::MAX, false)), (TURN, TURN_MIN));
    }

    #[test]
    fn a_core_on_which_somebody_works_is_not_offered_for_a_while() {
        // If this broke, a client beside a program that computes would wait for a slice of milliseconds in each call.
        let mut turn = TimeSlice::new();
        let long_ago = turn.began - Duration::from_secs(2);
        turn.came_back(HOG_MIN);
        assert!(turn.offer(long_ago, false).is_some(), "who waits as well gives it back soon");
        turn.came_back(HOG_MIN);
        let rest = |turn: &TimeSlice| turn.hogged_until.unwrap() - turn.began;
        let rests = [3, 3, 3, 3, 3, 3].map(|millis| {
            turn.came_back(Duration::from_millis(millis));
            rest(&turn).as_millis()
        });
        assert_eq!(rests, [24, 48, 96, 192, 384, 500]);
        turn.came_back(HOG_MIN);
        turn.came_back(Duration::from_millis(3));
        assert_eq!(rest(&turn), Duration::from_millis(24), "it was another one");
        let until = turn.hogged_until.unwrap();
        assert_eq!(turn.offer(until - Duration::from_micros(1), false), None);
        turn.came_back(Duration::from_secs(3600));
        assert_eq!(turn.hogged_until.unwrap() - turn.began, HOG_REST_MAX);
        assert!(turn.offer(long_ago, true).is_some(), "in a crowd it comes back");
        turn.came_back(Duration::from_millis(3));
        // It began before the core was known to be wanted, and came back at once.
        assert!(turn.offer(turn.hogged_until.unwrap(), false).is_some());
    }

    #[test]
    fn slices_are_short_for_turns_and_then_what_they_were() {
        // If this broke, clients that take turns would get a part of their share of a core beside threads that work without a
        // pause, or a thread would keep for ever what it had in a crowd.
        std::thread::spawn(|| {
            // None for a thread that has another policy than usual: then it has that all the time.
            let usual = slice_ns();
            take_slices(false);
            assert_eq!(slice_ns(), usual);
            take_slices(true);
            take_slices(true);
            let short = slice_ns();
            assert!(short == usual || short == Some(SLICE_NS), "{short:?}");
            take_slices(false);
            assert_eq!(slice_ns(), usual);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn who_is_pinned_elsewhere_keeps_off_the_service() {
        // If this broke, a crowd with cores of its own would take turns that are too short for it.
        let here = sched_getaffinity(None).unwrap();
        let own = (0..CpuSet::MAX_CPU).find(|&core| here.is_set(core)).unwrap();
        let other = (0..CpuSet::MAX_CPU).find(|&core| !here.is_set(core)).unwrap();
        assert_eq!([own, other, CpuSet::MAX_CPU].map(keeps_off), [false, true, false]);
    }
}
