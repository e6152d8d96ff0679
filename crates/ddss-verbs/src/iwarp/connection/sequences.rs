//! Sequence numbers of the three queues of untagged messages.

/// Sequence number of the next message of each queue.
pub(super) struct Sequences {
    pub(super) sends: u32,
    pub(super) requests: u32,
    pub(super) replies: u32,
}

impl Default for Sequences {
    /// The first number of each queue.
    fn default() -> Self {
        Self { sends: 1, requests: 1, replies: 1 }
    }
}
