//! The end of an edge, as a consumer sees it.

/// Counts the producers of a consumer that may still send.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Inputs {
    joined: usize,
    ended: usize,
}

impl Inputs {
    /// Adds a producer.
    pub(crate) fn join(&mut self) {
        self.joined += 1;
    }

    /// Counts a producer that is closed or dead. The caller counts each once.
    pub(crate) fn end(&mut self) {
        self.ended += 1;
        assert!(self.ended <= self.joined, "{} producers ended of {}", self.ended, self.joined);
    }

    /// Returns true if no message can arrive any more.
    pub(crate) const fn have_ended(self) -> bool {
        self.joined > 0 && self.ended == self.joined
    }
}
