//! Time and chance, which the driver brings along.

/// Time and chance of one event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Monotonic time in microseconds.
    pub now_us: u64,
    /// A random word.
    pub random: u64,
}

/// Choices from the random word of one event.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) const fn new(moment: Moment) -> Self {
        Self(moment.random)
    }

    /// Returns a number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        // SplitMix64: its eight lines are all that is needed here.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ word >> 31) % end as u64) as usize
    }
}
