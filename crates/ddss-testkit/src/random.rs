//! Pseudo-random numbers and bytes, reproducible from a seed.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

/// A seeded generator for tests, and for programs that simulate chance. It is no source of secrets.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// Starts from a seed; equal seeds give equal numbers.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// Returns the next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `end`, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.word() % end
    }

    /// Returns a number from 0 up to 1.
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns the next `length` bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}

/// Returns bytes that a test puts and expects to get. They are equal for equal seeds, and differ at every place for a
/// seed and its neighbour.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = Random::new(seed).bytes(length);
    for (index, byte) in bytes.iter_mut().enumerate() {
        // The lowest bit is the seed's, so that no byte of one pattern could pass for a byte of its neighbour.
        *byte = *byte & !1 | (seed as u8 & 1) ^ (index as u8 & 1);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_differ_in_every_byte() {
        // If this failed, a torn value could pass for a complete one.
        let (first, second) = (pattern(0, 500), pattern(1, 500));
        assert!(first.iter().zip(&second).all(|(a, b)| a != b));
        assert_eq!(first, pattern(0, 500));
        assert_ne!(first[..8], first[8..16]);
    }
}
