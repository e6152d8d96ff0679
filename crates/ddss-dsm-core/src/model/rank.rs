//! Ranks and sets of ranks.

use crate::limits::RANKS_MAX;
use std::fmt;

/// One process of a space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rank(u8);

impl Rank {
    /// The rank that counts arrivals at barriers.
    pub const ZERO: Self = Self(0);

    /// Returns a rank, or `None` if the number is too large for any space.
    #[must_use]
    pub const fn new(number: usize) -> Option<Self> {
        if number < RANKS_MAX { Some(Self(number as u8)) } else { None }
    }

    /// Returns the number of the rank.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the word with which this rank claims the home of a page.
    #[must_use]
    pub const fn home_word(self) -> u64 {
        self.0 as u64 + 1
    }

    /// Returns the home that a claimed word names: `None` if it names no rank of the space.
    #[must_use]
    pub(crate) const fn of_home_word(word: u64, ranks: usize) -> Option<Self> {
        if word == 0 || word > ranks as u64 { None } else { Some(Self((word - 1) as u8)) }
    }

    /// Returns the rank that manages the page, lock or other object with this number.
    pub(crate) const fn manager_of(index: u32, ranks: usize) -> Self {
        Self((index as usize % ranks) as u8)
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.0)
    }
}

/// A set of ranks.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct RankSet(u16);

impl RankSet {
    /// Adds a rank. Returns false if the set had it.
    pub fn insert(&mut self, rank: Rank) -> bool {
        let before = self.0;
        self.0 |= 1 << rank.0;
        self.0 != before
    }

    /// Returns true if the set has the rank.
    #[must_use]
    pub const fn contains(self, rank: Rank) -> bool {
        self.0 >> rank.0 & 1 == 1
    }

    /// Returns the number of ranks.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns true if the set has no rank.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the set as bits.
    pub(crate) const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the set of these bits. `None` if it has a rank that is none of so many.
    pub(crate) const fn from_bits(bits: u16, ranks: usize) -> Option<Self> {
        if (bits as u32) >> ranks == 0 { Some(Self(bits)) } else { None }
    }

    /// Returns the ranks, the lowest first.
    pub fn iter(self) -> impl Iterator<Item = Rank> {
        (0..RANKS_MAX as u8).map(Rank).filter(move |rank| self.contains(*rank))
    }
}

impl fmt::Display for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rank) in self.iter().enumerate() {
            write!(f, "{}{rank}", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}
