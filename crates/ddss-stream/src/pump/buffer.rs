//! Bytes that one side gave and the other side has not taken.

/// Bytes on their way in one direction. The pump reads more once it is empty.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    /// Stores what a side did not take.
    pub(super) fn fill(&mut self, bytes: &[u8]) {
        debug_assert!(self.is_empty());
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.start = 0;
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        self.start += bytes.min(self.bytes.len() - self.start);
        if self.is_empty() {
            // An idle connection keeps no memory.
            *self = Self::default();
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
