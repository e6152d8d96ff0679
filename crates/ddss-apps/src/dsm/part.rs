//! Division of work between ranks.

use ddss_dsm::Space;
use std::ops::Range;

/// Returns the part of a rank of so many things, in order. Each rank has one if there are as many things as ranks.
pub(super) fn part(count: usize, rank: usize, ranks: usize) -> Range<usize> {
    rank * count / ranks..(rank + 1) * count / ranks
}

/// Returns the part of this rank.
pub(super) fn own_part(space: &Space, count: usize) -> Range<usize> {
    part(count, space.rank().into(), space.ranks().into())
}
