//! Pseudo-random numbers, reproducible from a seed.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

/// A small generator (SplitMix64): for tests and for programs that simulate chance, not for secrets.
#[derive(Debug, Clone)]
pub struct Random(SplitMix64);

impl Random {
    /// Creates a generator; equal seeds give equal numbers.
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::seed_from_u64(seed))
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// A number from 0 up to 1.
    pub fn unit(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }
}
