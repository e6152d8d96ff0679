//! Commit of the smallest puts ([`Engine::inline_put`](crate::Engine::inline_put)): decided on the ring entry, answered without
//! an action. The decisions and their order are those of `fast_path.rs`. Everything else, refusals included, goes through
//! [`request`](crate::Engine::request).

use crate::action::{Action, CommitSource, RangeSet, Reply, SegmentCommit};
use ddss_core::{ChannelId, Completion, Entry, Outcome, Payload, RequestId, Timestamp, Version};

/// Commit of an inline put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InlineCommit {
    /// Pool offset of the segment's header.
    pub at: u64,
    /// Offset of the first byte to replace.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u8,
    /// New bytes; those beyond `bytes` are undefined.
    pub words: [u64; 2],
    /// The new version.
    pub version: Version,
    /// Timestamp of the new version.
    pub timestamp: Timestamp,
}

impl InlineCommit {
    /// Converts to actions: the commit, and the reply behind it.
    pub fn actions(&self, channel: ChannelId, entry: &Entry) -> [Action; 2] {
        let &Self { at, offset, bytes, words, version, timestamp } = self;
        let mut payload = [0; 16];
        for (place, byte) in payload.iter_mut().zip(words.iter().flat_map(|word| word.to_le_bytes())).take(bytes.into())
        {
            *place = byte;
        }
        let from = Payload::Inline { bytes: payload, length: bytes };
        let (parts, source) =
            (RangeSet::One { offset, bytes: bytes.into() }, CommitSource::Client(channel.client, from));
        let done = Completion { version, timestamp, ..Completion::bare(RequestId(entry[1]), Outcome::Done) };
        [
            Action::Commit(SegmentCommit { at, parts, source, version, timestamp }),
            Action::Reply(Reply { channel, completion: done, data: None }),
        ]
    }
}
