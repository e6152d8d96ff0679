//! Allocator of the pool's blocks: the shortest free run that is long enough; freed neighbours merge.

use ddss_core::limits::BLOCK_BYTES;
use std::collections::{BTreeMap, BTreeSet};

/// Free runs of one pool, in blocks: by start, and by length, so that a pool of many short runs is not searched.
#[derive(Debug)]
pub(crate) struct ExtentAllocator {
    free: BTreeMap<u64, u64>,
    lengths: BTreeSet<(u64, u64)>,
}

impl ExtentAllocator {
    pub(crate) fn new(pool_bytes: u64) -> Self {
        let mut blocks = Self { free: BTreeMap::new(), lengths: BTreeSet::new() };
        blocks.add_run(0, pool_bytes / BLOCK_BYTES as u64);
        blocks
    }

    fn blocks_of(bytes: u64) -> u64 {
        bytes.div_ceil(BLOCK_BYTES as u64)
    }

    fn add_run(&mut self, start: u64, count: u64) {
        if count > 0 {
            self.free.insert(start, count);
            self.lengths.insert((count, start));
        }
    }

    fn remove_run(&mut self, start: u64) -> Option<u64> {
        let count = self.free.remove(&start)?;
        assert!(self.lengths.remove(&(count, start)), "a run is listed by its start and by its length");
        Some(count)
    }

    /// Allocates a run that holds `bytes`; returns the offset of its first byte.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        let wanted = Self::blocks_of(bytes);
        let &(count, start) = self.lengths.range((wanted, 0)..).next()?;
        self.remove_run(start);
        self.add_run(start + wanted, count - wanted);
        Some(start * BLOCK_BYTES as u64)
    }

    /// Allocates the run at that offset, if all of it is free.
    pub(crate) fn take_at(&mut self, at: u64, bytes: u64) -> bool {
        let (start, wanted) = (at / BLOCK_BYTES as u64, Self::blocks_of(bytes));
        let Some((&from, &count)) = self.free.range(..=start).next_back() else { return false };
        let Some(end) = start.checked_add(wanted) else { return false };
        if !at.is_multiple_of(BLOCK_BYTES as u64) || wanted == 0 || end > from + count {
            return false;
        }
        self.remove_run(from);
        self.add_run(from, start - from);
        self.add_run(end, from + count - end);
        true
    }

    /// Frees what `allocate` returned for the same `bytes`. Returns the free bytes around it, as start and end.
    pub(crate) fn give(&mut self, at: u64, bytes: u64) -> (u64, u64) {
        let (mut start, mut count) = (at / BLOCK_BYTES as u64, Self::blocks_of(bytes));
        if let Some((&before, &length)) = self.free.range(..start).next_back() {
            assert!(before + length <= start, "blocks are given back once");
            if before + length == start {
                self.remove_run(before);
                (start, count) = (before, count + length);
            }
        }
        if let Some((&behind, _)) = self.free.range(start..).next() {
            assert!(start + count <= behind, "blocks are given back once");
        }
        count += self.remove_run(start + count).unwrap_or(0);
        self.add_run(start, count);
        (start * BLOCK_BYTES as u64, (start + count) * BLOCK_BYTES as u64)
    }

    /// Returns the free bytes, in runs of any length.
    #[cfg(test)]
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free.values().sum::<u64>() * BLOCK_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_runs_are_taken_first() {
        // If this broke, small segments would cut the runs that large ones need.
        let unit = BLOCK_BYTES as u64;
        let mut blocks = ExtentAllocator::new(100 * unit);
        let places: Vec<u64> = (0..6).map(|_| blocks.take(2 * unit).unwrap()).collect();
        blocks.give(places[1], 2 * unit);
        blocks.give(places[3], 2 * unit);
        assert_eq!(blocks.take(unit), Some(places[1]));
        assert_eq!(blocks.take(unit), Some(places[1] + unit));
        assert_eq!(blocks.take(3 * unit), Some(12 * unit), "the shortest run that is long enough");
        assert_eq!(blocks.take(2 * unit), Some(places[3]));
    }

    proptest! {
        #[test]
        fn extents_never_overlap(sizes in proptest::collection::vec(1..40_000u64, 1..40), keep in any::<u64>()) {
            // If this broke, a put to one segment would change another.
            let mut blocks = ExtentAllocator::new(1 << 20);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (turn, bytes) in sizes.iter().copied().enumerate() {
                if let Some(at) = blocks.take(bytes) {
                    prop_assert!(at + bytes <= 1 << 20);
                    for &(other, length) in &taken {
                        prop_assert!(at >= other + length || at + bytes <= other);
                    }
                    taken.push((at, bytes));
                }
                if keep >> (turn % 64) & 1 == 0 && !taken.is_empty() {
                    let (at, bytes) = taken.swap_remove(turn % taken.len());
                    let (from, to) = blocks.give(at, bytes);
                    prop_assert!(from <= at && at + bytes <= to);
                    for &(other, length) in &taken {
                        prop_assert!(to <= other || other + length <= from, "what is free around it is free");
                    }
                }
            }
            for (at, bytes) in taken {
                blocks.give(at, bytes);
            }
            prop_assert_eq!(blocks.free_bytes(), 1 << 20);
            prop_assert_eq!((blocks.free.len(), blocks.lengths.len()), (1, 1));
        }
    }
}
