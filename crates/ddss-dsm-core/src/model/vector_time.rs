//! Vector times: the last interval of each rank that a rank knows.

use super::rank::Rank;
use crate::limits::{LINE_BYTES, RANKS_MAX};

/// The number of an interval for each rank; 0 is before the first one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VectorTime([u32; RANKS_MAX]);

impl VectorTime {
    /// Returns the interval of a rank.
    #[must_use]
    pub const fn get(&self, rank: Rank) -> u32 {
        self.0[rank.index()]
    }

    /// Raises the interval of a rank; never lowers it.
    pub fn raise(&mut self, rank: Rank, interval: u32) {
        let own = &mut self.0[rank.index()];
        *own = interval.max(*own);
    }

    /// Raises each interval to that of another time.
    pub fn join(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own = other.max(*own);
        }
    }

    /// Returns true if no interval of `other` is later.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(own, other)| *own >= other)
    }

    /// Returns the intervals in the order of the ranks.
    #[must_use]
    pub const fn intervals(&self) -> &[u32; RANKS_MAX] {
        &self.0
    }

    /// Decodes the stamps of a version line.
    #[must_use]
    pub fn of_line(line: &[u8; LINE_BYTES]) -> Self {
        let mut time = Self::default();
        for (interval, bytes) in time.0.iter_mut().zip(line.as_chunks::<4>().0) {
            *interval = u32::from_le_bytes(*bytes);
        }
        time
    }
}
