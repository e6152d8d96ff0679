//! How many lanes of each user had requests of late.
//!
//! Clients go by it when they share a core: threads of one user hand it over to each other. Whoever else calls is counted
//! elsewhere, so that nobody makes a stranger give his core away by filling his own lanes.

use crate::board::PLACES;

/// Sweeps after which it is counted anew how many lanes have requests: some turns of clients that take turns on a core,
/// and no longer, because on a machine that counts as full nobody spins for what takes long.
const PERIOD_SWEEPS: u32 = 1 << 13;

/// The period that is under way, its sweeps, and how many lanes had requests in it and in the one before.
#[derive(Debug)]
pub(crate) struct Callers {
    period: u32,
    sweeps: u32,
    now: [u32; PLACES],
    before: [u32; PLACES],
    /// A bit for each place of which something else is to be told.
    changed: u64,
}

const _: () = assert!(PLACES <= u64::BITS as usize);

impl Default for Callers {
    fn default() -> Self {
        Self { period: 0, sweeps: 0, now: [0; PLACES], before: [0; PLACES], changed: 0 }
    }
}

impl Callers {
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
        for (place, (before, now)) in self.before.iter_mut().zip(&mut self.now).enumerate() {
            // With what was told until now.
            self.changed |= u64::from(*now < *before) << place;
            (*before, *now) = (*now, 0);
        }
    }

    /// A lane had requests, which it had last in that period.
    #[inline(always)]
    pub(crate) fn note(&mut self, lane_period: &mut u32, place: u8) {
        if *lane_period != self.period {
            *lane_period = self.period;
            self.count(usize::from(place) % PLACES);
        }
    }

    fn count(&mut self, place: usize) {
        self.now[place] += 1;
        self.changed |= u64::from(self.now[place] > self.before[place]) << place;
    }

    /// Whether there is anything new to tell.
    #[inline(always)]
    pub(crate) fn has_changed(&self) -> bool {
        self.changed != 0
    }

    /// Where something has changed, and how many lanes had requests there.
    pub(crate) fn changes(&mut self) -> impl Iterator<Item = (u8, u64)> {
        let changed = std::mem::take(&mut self.changed);
        let places = (0..PLACES).filter(move |place| changed >> place & 1 == 1);
        places.map(|place| (place as u8, self.now[place].max(self.before[place]).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_count_at_their_own_place_for_one_period_and_the_next() {
        // If this broke, one user's lanes would make another hand over his core, or a crowd would be one for ever.
        let mut callers = Callers::default();
        let mut lanes = [u32::MAX; 3];
        for (lane, place) in lanes.iter_mut().zip([5, 5, 63]) {
            callers.note(lane, place);
            callers.note(lane, place);
        }
        let told = |callers: &mut Callers| callers.changes().collect::<Vec<_>>();
        assert_eq!(told(&mut callers), [(5, 2), (63, 1)]);
        assert!(!callers.has_changed());
        let period = |callers: &mut Callers| {
            for _ in 0..PERIOD_SWEEPS {
                callers.next_sweep();
            }
        };
        period(&mut callers);
        callers.note(&mut lanes[0], 5);
        assert_eq!(told(&mut callers), [], "what they were in the period before still counts");
        period(&mut callers);
        assert_eq!(told(&mut callers), [(5, 1), (63, 0)]);
        period(&mut callers);
        assert_eq!(told(&mut callers), [(5, 0)]);
    }
}
