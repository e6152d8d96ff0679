//! Content of the messages by which a home forwards puts and tokens.

use ddss_core::{Message, SegmentId, Timestamp, Version};

/// Content of a forward: the place of a put and of its staged bytes.
pub(crate) struct ForwardContent {
    pub(crate) row_version: Version,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) staged: u64,
    pub(crate) number: u64,
    pub(crate) ranges: u8,
}

impl ForwardContent {
    /// A token alone, without bytes.
    pub(crate) const TOKEN: Self = Self {
        row_version: Version(0),
        offset: 0,
        length: 0,
        staged: Message::NOT_STAGED,
        number: Message::NOT_STAGED,
        ranges: 0,
    };

    /// Returns the message to the replica. The timestamp of a token alone is the token.
    pub(crate) fn message(self, segment: SegmentId, epoch: u32, (version, timestamp): (Version, Timestamp)) -> Message {
        let Self { row_version, offset, length, staged, number, ranges } = self;
        Message::Forward { segment, epoch, version, row_version, timestamp, offset, length, staged, number, ranges }
    }
}
