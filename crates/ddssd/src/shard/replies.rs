//! Replies that are not in the rings yet.

use ddss_core::{ChannelId, Entry};

/// Replies of a round, in the order in which the engine decided them.
#[derive(Debug)]
pub(crate) struct Replies(Vec<(ChannelId, Entry)>);

impl Replies {
    pub(crate) fn with_capacity(replies: usize) -> Self {
        Self(Vec::with_capacity(replies))
    }

    #[inline]
    pub(crate) fn push(&mut self, channel: ChannelId, entry: Entry) {
        self.0.push((channel, entry));
    }

    /// Takes the reply to a request, if it is there.
    pub(crate) fn take(&mut self, channel: ChannelId, request: u64) -> Option<Entry> {
        let at = self.0.iter().position(|&(to, reply)| to == channel && reply[1] == request);
        at.map(|at| self.0.swap_remove(at).1)
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (ChannelId, Entry)> {
        self.0.drain(..)
    }
}
