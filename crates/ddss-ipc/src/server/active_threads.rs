//! How many threads of each user had requests of late.
//!
//! Clients go by it when they share a core: threads of one user hand it over to each other. Whoever else calls is counted
//! elsewhere, so that nobody makes a stranger give his core away by filling his own lanes. Threads and not lanes: one that
//! has two clients, and calls by one and the other, shares its core with nobody.
//!
//! There are two numbers. *Callers* are those of a moment, so that those who call now and then are no crowd. The *crowd* is of a
//! time in which each of many has had a turn: it says how long a turn may be.

use crate::shm::service_page::{ActiveUsers, PLACES};

/// Sweeps after which it is counted anew how many lanes have requests: some turns of clients that take turns on a core,
/// and no longer, because on a machine that counts as full nobody spins for what takes long.
const PERIOD_SWEEPS: u32 = 1 << 13;
/// Such periods after which the crowd is counted anew: some hundred milliseconds.
const CROWD_PERIODS: u32 = 64;

/// Bits by which the threads of a place are told apart. Some of many fall together, and many are many all the same.
const MARKS: usize = 1024;

/// The threads of a place that were seen in a period, a bit each.
type ThreadBits = [u64; MARKS / u64::BITS as usize];

/// How many threads had requests in the period that is under way, and in the one before.
#[derive(Debug)]
struct ThreadCount {
    now: [u32; PLACES],
    before: [u32; PLACES],
    seen: Box<[ThreadBits; PLACES]>,
}

impl ThreadCount {
    fn new() -> Self {
        Self { now: [0; PLACES], before: [0; PLACES], seen: Box::new([[0; _]; PLACES]) }
    }

    /// Another period begins; a bit for each place that has fewer than was told until now.
    fn next_period(&mut self) -> u64 {
        let mut changed = 0;
        for (place, (before, now)) in self.before.iter_mut().zip(&mut self.now).enumerate() {
            changed |= u64::from(*now < *before) << place;
            if *now > 0 {
                self.seen[place] = [0; _];
            }
            (*before, *now) = (*now, 0);
        }
        changed
    }

    /// Counts a thread; whether they are more now than was told until now.
    fn see(&mut self, place: usize, mark: usize) -> bool {
        let (word, bit) = (&mut self.seen[place][mark / u64::BITS as usize], 1 << (mark % u64::BITS as usize));
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        self.now[place] += 1;
        self.now[place] > self.before[place]
    }

    fn of(&self, place: usize) -> u32 {
        self.now[place].max(self.before[place])
    }
}

/// Who has requests.
#[derive(Debug)]
pub(crate) struct ActiveThreads {
    period: u32,
    sweeps: u32,
    callers: ThreadCount,
    crowd: ThreadCount,
    /// A bit for each place of which something else is to be told.
    changed: u64,
}

const _: () = assert!(PLACES <= u64::BITS as usize);

impl Default for ActiveThreads {
    fn default() -> Self {
        Self { period: 0, sweeps: 0, callers: ThreadCount::new(), crowd: ThreadCount::new(), changed: 0 }
    }
}

impl ActiveThreads {
    /// Another sweep begins; its number in the period.
    #[inline(always)]
    pub(crate) fn next_sweep(&mut self) -> u32 {
        self.sweeps += 1;
        if self.sweeps == PERIOD_SWEEPS {
            self.next_period();
        }
        self.sweeps
    }

    #[cold]
    fn next_period(&mut self) {
        self.sweeps = 0;
        self.period = self.period.wrapping_add(1);
        self.changed |= self.callers.next_period();
        if self.period.is_multiple_of(CROWD_PERIODS) {
            self.changed |= self.crowd.next_period();
        }
    }

    /// A lane had requests, which it had last in that period. Whether these are its first ones in this period.
    #[inline(always)]
    pub(crate) fn is_first(&mut self, lane_period: &mut u32) -> bool {
        std::mem::replace(lane_period, self.period) != self.period
    }

    /// That thread had requests by one of its lanes.
    pub(crate) fn count(&mut self, place: u8, [process, thread]: [u32; 2]) {
        let place = usize::from(place) % PLACES;
        // Threads of a process have numbers that follow each other: the highest bits of this product tell those apart.
        let mixed = (u64::from(process) << 32 | u64::from(thread)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mark = (mixed >> (u64::BITS - MARKS.ilog2())) as usize;
        let more = self.callers.see(place, mark) | self.crowd.see(place, mark);
        self.changed |= u64::from(more) << place;
    }

    /// Whether there is anything new to tell.
    #[inline(always)]
    pub(crate) fn has_changed(&self) -> bool {
        self.changed != 0
    }

    /// Where something has changed, and how many threads had requests there.
    pub(crate) fn changes(&mut self) -> impl Iterator<Item = (u8, ActiveUsers)> {
        let changed = std::mem::take(&mut self.changed);
        let places = (0..PLACES).filter(move |place| changed >> place & 1 == 1);
        places.map(|place| (place as u8, ActiveUsers { callers: self.callers.of(place), crowd: self.crowd.of(place) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweeps(callers: &mut ActiveThreads, many: u32) {
        for _ in 0..many {
            callers.next_sweep();
        }
    }

    #[test]
    fn threads_count_at_their_own_place_for_one_period_and_the_next() {
        // If this broke, one user's threads would make another hand over his core, a crowd would be one for ever, or one
        // thread with two clients would be a crowd.
        let mut callers = ActiveThreads::default();
        let mut lanes = [u32::MAX; 4];
        let note = |callers: &mut ActiveThreads, lane: &mut u32, place, caller| {
            if callers.is_first(lane) {
                callers.count(place, caller);
            }
        };
        for (lane, (place, thread)) in lanes.iter_mut().zip([(5, 8), (5, 9), (63, 8), (5, 8)]) {
            note(&mut callers, lane, place, [7, thread]);
            note(&mut callers, lane, place, [7, thread]);
        }
        let told = |callers: &mut ActiveThreads| {
            callers.changes().map(|(place, present)| (place, present.callers)).collect::<Vec<_>>()
        };
        assert_eq!(told(&mut callers), [(5, 2), (63, 1)]);
        assert!(!callers.has_changed());
        let period = |callers: &mut ActiveThreads| sweeps(callers, PERIOD_SWEEPS);
        period(&mut callers);
        note(&mut callers, &mut lanes[0], 5, [7, 8]);
        note(&mut callers, &mut lanes[3], 5, [7, 8]);
        assert_eq!(told(&mut callers), [], "what they were in the period before still counts");
        period(&mut callers);
        assert_eq!(told(&mut callers), [(5, 1), (63, 0)]);
        period(&mut callers);
        assert_eq!(told(&mut callers), [(5, 0)]);
    }

    #[test]
    fn a_crowd_is_told_to_be_one() {
        // If this broke, each of many would take itself for one of few, and keep its core for too long.
        let mut callers = ActiveThreads::default();
        (0..512).for_each(|thread| callers.count(0, [1000, 1001 + thread]));
        let [(0, told)] = callers.changes().collect::<Vec<_>>()[..] else { panic!("only there") };
        assert!((300..=512).contains(&told.callers) && told.crowd == told.callers, "{told:?}");
        (0..16).for_each(|process| callers.count(1, [3000 + process, 3000 + process]));
        let [(1, told)] = callers.changes().collect::<Vec<_>>()[..] else { panic!("only there") };
        assert!((14..=16).contains(&told.callers), "{told:?}");
    }

    #[test]
    fn who_calls_in_turn_is_one_of_a_crowd_and_few_call_at_a_time() {
        // If this broke, a hundred clients that hand a core over would take themselves for ten, and each turn would be too long.
        let mut callers = ActiveThreads::default();
        let mut told = ActiveUsers::default();
        for thread in 0..CROWD_PERIODS {
            sweeps(&mut callers, PERIOD_SWEEPS);
            callers.count(3, [1000, 1001 + thread]);
            callers.changes().for_each(|(place, present)| {
                if place == 3 {
                    told = present
                }
            });
        }
        assert!(told.callers <= 2 && (50..=64).contains(&told.crowd), "{told:?}");
        sweeps(&mut callers, 3 * CROWD_PERIODS * PERIOD_SWEEPS);
        assert_eq!(callers.changes().last(), Some((3, ActiveUsers::default())));
    }
}
