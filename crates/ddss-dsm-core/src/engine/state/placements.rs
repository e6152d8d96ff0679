//! Waits until writes are in the memory of their homes.

use crate::limits::RANKS_MAX;
use crate::model::{Rank, RankSet};
use std::collections::VecDeque;

/// Number of a wait; they end in order.
pub(crate) type PlacementId = u32;

/// One wait: for reads behind the writes, and for acknowledgements of diff messages.
#[derive(Clone, Debug)]
struct Placement {
    id: PlacementId,
    /// Last interval whose writes it covers.
    interval: u32,
    /// Reads in flight.
    fences: u32,
    /// Flush behind which the reads were posted.
    flush: u64,
    /// All diffs below this number have to be acknowledged.
    diffs_below: u64,
}

/// Waits of this rank, the oldest first, and which one-sided writes are known to be placed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placements {
    last: PlacementId,
    open: VecDeque<Placement>,
    /// Homes with writes behind which no read has been posted.
    unfenced: RankSet,
    /// Number of the last flush.
    flush: u64,
    /// The last flush whose writes to each home are placed: something that was posted behind them is complete.
    placed: [u64; RANKS_MAX],
}

impl Placements {
    /// Starts a flush.
    pub(crate) fn start_flush(&mut self) {
        self.flush += 1;
    }

    /// Returns the number of the last flush.
    pub(crate) fn last_flush(&self) -> u64 {
        self.flush
    }

    /// Records that runs are written to a home. Returns the number of the flush.
    pub(crate) fn add_write(&mut self, home: Rank) -> u64 {
        self.unfenced.insert(home);
        self.flush
    }

    /// Records that an operation is complete which was posted to a home behind the writes of a flush.
    pub(crate) fn prove(&mut self, home: Rank, flush: u64) {
        let placed = &mut self.placed[home.index()];
        *placed = flush.max(*placed);
    }

    /// Returns true if the writes of a flush to a home are known to be placed.
    pub(crate) fn is_placed(&self, home: Rank, flush: u64) -> bool {
        self.placed[home.index()] >= flush
    }

    /// Starts a wait for all writes so far. Returns its number and the ranks from which a read has to be posted.
    pub(crate) fn start(&mut self, interval: u32, diffs_below: u64) -> (PlacementId, RankSet) {
        let homes = std::mem::take(&mut self.unfenced);
        self.last = self.last.wrapping_add(1);
        self.open.push_back(Placement {
            id: self.last,
            interval,
            fences: homes.len() as u32,
            flush: self.flush,
            diffs_below,
        });
        (self.last, homes)
    }

    /// Counts a read that is complete.
    pub(crate) fn count_fence(&mut self, id: PlacementId, home: Rank) {
        if let Some(placement) = self.open.iter_mut().find(|placement| placement.id == id) {
            placement.fences = placement.fences.saturating_sub(1);
            let flush = placement.flush;
            self.prove(home, flush);
        }
    }

    /// Ends the oldest wait if all that it waits for has happened. Returns its interval.
    pub(crate) fn finish_first(&mut self, first_open_diff: u64) -> Option<u32> {
        let is_done = |first: &&Placement| first.fences == 0 && first.diffs_below <= first_open_diff;
        let interval = self.open.front().filter(is_done)?.interval;
        self.open.pop_front();
        Some(interval)
    }

    /// Returns the youngest wait: `None` if all writes that have to be placed are.
    pub(crate) fn youngest(&self) -> Option<PlacementId> {
        self.open.back().map(|placement| placement.id)
    }

    /// Returns true if a wait is not over.
    pub(crate) fn is_open(&self, id: PlacementId) -> bool {
        self.open.iter().any(|placement| placement.id == id)
    }
}
