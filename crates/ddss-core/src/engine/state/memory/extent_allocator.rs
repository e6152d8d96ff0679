//! Allocator of the pool's blocks: first fit over runs; freed neighbours merge.

use crate::limits::BLOCK_BYTES;
use std::collections::BTreeMap;

/// Free runs of one pool, in blocks.
#[derive(Debug)]
pub(crate) struct ExtentAllocator {
    free: BTreeMap<u64, u64>,
}

impl ExtentAllocator {
    pub(crate) fn new(pool_bytes: u64) -> Self {
        let count = pool_bytes / BLOCK_BYTES as u64;
        Self { free: BTreeMap::from_iter((count > 0).then_some((0, count))) }
    }

    fn blocks_of(bytes: u64) -> u64 {
        bytes.div_ceil(BLOCK_BYTES as u64)
    }

    /// Allocates a run that holds `bytes`; returns the offset of its first byte.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        let wanted = Self::blocks_of(bytes);
        let (&start, &count) = self.free.iter().find(|&(_, &count)| count >= wanted)?;
        self.free.remove(&start);
        if count > wanted {
            self.free.insert(start + wanted, count - wanted);
        }
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
        self.free.remove(&from);
        if start > from {
            self.free.insert(from, start - from);
        }
        if end < from + count {
            self.free.insert(end, from + count - end);
        }
        true
    }

    /// Frees what `allocate` returned for the same `bytes`.
    pub(crate) fn give(&mut self, at: u64, bytes: u64) {
        let (mut start, mut count) = (at / BLOCK_BYTES as u64, Self::blocks_of(bytes));
        if let Some((&before, &length)) = self.free.range(..start).next_back() {
            assert!(before + length <= start, "blocks are given back once");
            if before + length == start {
                self.free.remove(&before);
                (start, count) = (before, count + length);
            }
        }
        if let Some((&behind, _)) = self.free.range(start..).next() {
            assert!(start + count <= behind, "blocks are given back once");
        }
        if let Some(length) = self.free.remove(&(start + count)) {
            count += length;
        }
        self.free.insert(start, count);
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
                    blocks.give(at, bytes);
                }
            }
            for (at, bytes) in taken {
                blocks.give(at, bytes);
            }
            prop_assert_eq!(blocks.free_bytes(), 1 << 20);
            prop_assert_eq!(blocks.free.len(), 1);
        }
    }
}
