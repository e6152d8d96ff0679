//! Random generator of the simulation: SplitMix64, so that a seed gives the same run on every machine and release.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// Returns the next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.word() % end.max(1)
    }

    /// Returns true with probability 1 / `of`.
    pub fn one_in(&mut self, of: u64) -> bool {
        of > 0 && self.below(of) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a recorded seed would replay another run, and no bug that it found.
    #[test]
    fn stream_of_a_seed_never_changes() {
        let mut random = Random::new(0);
        assert_eq!([random.word(), random.word()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
        let mut random = Random::new(1_234_567);
        assert_eq!([random.word(), random.word()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }
}
