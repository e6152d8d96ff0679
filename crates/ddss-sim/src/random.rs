//! The one source of chance: SplitMix64, so that a seed means the same on every machine and in every release.

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.word() % end.max(1)
    }

    /// Whether something happens that happens once in `of` times.
    pub fn one_in(&mut self, of: u64) -> bool {
        of > 0 && self.below(of) == 0
    }
}
