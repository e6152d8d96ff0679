//! Queue of partial tours that all ranks share: a binary heap in a region, under a lock.

use super::cities::{CITIES_MAX, Cities};
use super::tour::Tour;
use crate::Error;
use ddss_dsm::{Homes, Region, Space};

/// Lock of the queue and of the best tour.
const LOCK: u32 = 0;
/// Cities from which on a rank searches a tour for itself. Shorter ones are extended in the queue.
const ALONE: usize = 4;
/// Tours in the queue at most: more than there are shorter ones and their extensions.
const TOURS_MAX: usize = 8192;

const _: () = {
    let others = CITIES_MAX - 1;
    assert!(ALONE == 4 && others * (1 + (others - 1) * (1 + (others - 2))) < TOURS_MAX);
};

/// The queue, and the best tour.
pub(super) struct Queue {
    /// A heap: no tour has a lower bound than its parent.
    tours: Region<Tour>,
    count: Region<u32>,
    best: Region<Tour>,
}

impl Queue {
    pub(super) fn open(space: &mut Space) -> Result<Self, Error> {
        Ok(Self {
            tours: space.region("tours", TOURS_MAX, Homes::FirstTouch)?,
            count: space.region("number of tours", 1, Homes::FirstTouch)?,
            best: space.region("best tour", 1, Homes::FirstTouch)?,
        })
    }

    /// Begins with one tour. One rank calls it, before a barrier.
    pub(super) fn begin(&self, space: &Space, tour: Tour) -> Result<(), Error> {
        self.best.put(space, 0, Tour::NONE)?;
        self.push(space, tour)
    }

    /// Reports the best tour that this rank knows. Returns the most promising one to search, and the best that any rank knows.
    /// `None`: no tour that is left can be shorter.
    pub(super) fn take(&self, space: &mut Space, cities: &Cities, known: Tour) -> Result<Option<(Tour, Tour)>, Error> {
        let section = space.lock(LOCK)?;
        let mut best = self.best.get(&section, 0)?;
        if known.bound < best.bound {
            self.best.put(&section, 0, known)?;
            best = known;
        }
        let mut taken = None;
        while let Some(tour) = self.pop(&section)? {
            if tour.bound >= best.bound {
                // So are all others: nothing is left to do.
                self.count.put(&section, 0, 0)?;
                break;
            }
            if tour.count() >= ALONE.min(cities.count()) {
                taken = Some((tour, best));
                break;
            }
            for longer in tour.extensions(cities).filter(|longer| longer.bound < best.bound) {
                self.push(&section, longer)?;
            }
        }
        section.unlock()?;
        Ok(taken)
    }

    /// Returns the best tour, after a barrier.
    pub(super) fn best(&self, space: &Space) -> Result<Tour, Error> {
        Ok(self.best.get(space, 0)?)
    }

    fn push(&self, space: &Space, tour: Tour) -> Result<(), Error> {
        let count = self.count.get(space, 0)?;
        self.count.put(space, 0, count + 1)?;
        let mut at = count as usize;
        while at > 0 {
            let parent = (at - 1) / 2;
            let above = self.tours.get(space, parent)?;
            if above.bound <= tour.bound {
                break;
            }
            self.tours.put(space, at, above)?;
            at = parent;
        }
        Ok(self.tours.put(space, at, tour)?)
    }

    /// Takes the tour with the lowest bound.
    fn pop(&self, space: &Space) -> Result<Option<Tour>, Error> {
        let Some(count) = self.count.get(space, 0)?.checked_sub(1) else { return Ok(None) };
        self.count.put(space, 0, count)?;
        let (first, last) = (self.tours.get(space, 0)?, self.tours.get(space, count as usize)?);
        let (mut at, count) = (0, count as usize);
        while 2 * at + 1 < count {
            let mut child = 2 * at + 1;
            let mut below = self.tours.get(space, child)?;
            if child + 1 < count {
                let other = self.tours.get(space, child + 1)?;
                if other.bound < below.bound {
                    (child, below) = (child + 1, other);
                }
            }
            if last.bound <= below.bound {
                break;
            }
            self.tours.put(space, at, below)?;
            at = child;
        }
        self.tours.put(space, at, last)?;
        Ok(Some(first))
    }
}
