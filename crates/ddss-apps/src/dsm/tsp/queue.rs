//! Queue of partial tours that all ranks share: a binary heap in a region, under a lock.

use super::cities::{CITIES_MAX, Cities};
use super::tour::Tour;
use crate::Error;
use crate::dsm::elements::Elements;
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
    elements: Elements,
}

impl Queue {
    pub(super) fn open(space: &mut Space, elements: Elements) -> Result<Self, Error> {
        Ok(Self {
            tours: space.region("tours", TOURS_MAX, Homes::FirstTouch)?,
            count: space.region("number of tours", 1, Homes::FirstTouch)?,
            best: space.region("best tour", 1, Homes::FirstTouch)?,
            elements,
        })
    }

    /// Begins with one tour. One rank calls it, before a barrier.
    pub(super) fn begin(&self, space: &Space, tour: Tour) -> Result<(), Error> {
        self.elements.store(space, self.best, 0, &[Tour::NONE])?;
        self.push(space, tour)
    }

    /// Reports the best tour that this rank knows. Returns the most promising one to search, and the best that any rank knows.
    /// `None`: no tour that is left can be shorter.
    pub(super) fn take(&self, space: &mut Space, cities: &Cities, known: Tour) -> Result<Option<(Tour, Tour)>, Error> {
        let section = space.lock(LOCK)?;
        let mut best = self.elements.get(&section, self.best, 0)?;
        if known.bound < best.bound {
            self.elements.store(&section, self.best, 0, &[known])?;
            best = known;
        }
        let mut taken = None;
        while let Some(tour) = self.pop(&section)? {
            if tour.bound >= best.bound {
                // So are all others: nothing is left to do.
                self.elements.store(&section, self.count, 0, &[0])?;
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
        self.elements.get(space, self.best, 0)
    }

    fn push(&self, space: &Space, tour: Tour) -> Result<(), Error> {
        let count = self.elements.get(space, self.count, 0)?;
        self.elements.store(space, self.count, 0, &[count + 1])?;
        let mut at = count as usize;
        while at > 0 {
            let parent = (at - 1) / 2;
            let above = self.elements.get(space, self.tours, parent)?;
            if above.bound <= tour.bound {
                break;
            }
            self.elements.store(space, self.tours, at, &[above])?;
            at = parent;
        }
        self.elements.store(space, self.tours, at, &[tour])
    }

    /// Takes the tour with the lowest bound.
    fn pop(&self, space: &Space) -> Result<Option<Tour>, Error> {
        let Some(count) = self.elements.get(space, self.count, 0)?.checked_sub(1) else { return Ok(None) };
        self.elements.store(space, self.count, 0, &[count])?;
        let (first, last) =
            (self.elements.get(space, self.tours, 0)?, self.elements.get(space, self.tours, count as usize)?);
        let (mut at, count) = (0, count as usize);
        while 2 * at + 1 < count {
            let mut child = 2 * at + 1;
            let mut below = self.elements.get(space, self.tours, child)?;
            if child + 1 < count {
                let other = self.elements.get(space, self.tours, child + 1)?;
                if other.bound < below.bound {
                    (child, below) = (child + 1, other);
                }
            }
            if last.bound <= below.bound {
                break;
            }
            self.elements.store(space, self.tours, at, &[below])?;
            at = child;
        }
        self.elements.store(space, self.tours, at, &[last])?;
        Ok(Some(first))
    }
}
