//! The loop of a rank.

use super::cities::Cities;
use super::held_karp::shortest;
use super::queue::Queue;
use super::search::search;
use super::tour::Tour;
use crate::Error;
use crate::dsm::job::{Job, Size};
use ddss_dsm::Space;

/// Finds the shortest tour. Rank 0 returns its length.
pub(in crate::dsm) fn run(space: &mut Space, job: Job) -> Result<Option<String>, Error> {
    let cities = Cities::spread(match job.size {
        Size::Paper => 20,
        Size::Small => 13,
    });
    let queue = Queue::open(space, job.elements)?;
    if space.rank() == 0 {
        queue.begin(space, Tour::begin(&cities))?;
    }
    space.barrier()?;
    let mut known = Tour::NONE;
    while let Some((tour, best)) = queue.take(space, &cities, known)? {
        known = search(&cities, &tour, best);
    }
    space.barrier()?;
    if space.rank() > 0 {
        return Ok(None);
    }
    let (best, count) = (queue.best(space)?, cities.count());
    if !best.is_complete(&cities) {
        return Err(Error::Wrong(format!("{best:?} is no tour of {count} cities")));
    }
    if job.has_check {
        let shortest = shortest(&cities);
        if best.bound != shortest {
            return Err(Error::Wrong(format!("the shortest tour has a length of {shortest}, and not {}", best.bound)));
        }
    }
    Ok(Some(format!("the shortest tour of {count} cities has a length of {}", best.bound)))
}
