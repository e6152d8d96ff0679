//! Path of the smallest calls (see `crate::request::inline_request`): decided on the ring entry, answered without an
//! action. The decisions and their order are those of `fast_path.rs`. Everything else, refusals included, goes through
//! [`request`](Engine::request).

use crate::action::{Action, CommitSource, RangeSet};
use crate::config::Now;
use crate::engine::Engine;
use crate::state::clients::Client;
use crate::state::segments::{Segment, Segments};
use ddss_core::{
    Access, ChannelId, Completion, Entry, Header, InlineGet, InlinePut, Outcome, Payload, PutConditions, RequestId,
    SegmentId, Timestamp, Version,
};

/// Result of an inline get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InlineResult {
    /// Pool offset of the bytes.
    pub at: u64,
    /// Length in bytes.
    pub bytes: u8,
    /// Version of the bytes.
    pub version: Version,
    /// Timestamp of that version.
    pub timestamp: Timestamp,
}

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

impl InlineResult {
    /// Converts to an action, for a caller that replies by actions.
    pub fn action(&self, channel: ChannelId, entry: &Entry) -> Action {
        let &Self { at, bytes, version, timestamp } = self;
        let done =
            Completion { version, timestamp, inline: true, ..Completion::bare(RequestId(entry[1]), Outcome::Done) };
        Action::Reply { channel, completion: done, data: Some((at, bytes)) }
    }
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
            Action::Commit { at, parts, source, version, timestamp },
            Action::Reply { channel, completion: done, data: None },
        ]
    }
}

impl Segments {
    /// Returns a fast-path segment that the client may access.
    #[inline(always)]
    fn inline_segment(
        &mut self,
        client: &Client,
        access: Access,
        id: SegmentId,
        range: (u64, u32),
    ) -> Option<&mut Segment> {
        let segment = self.fast_path_segment(id)?;
        segment.check_access(client.principal, access, range.0, range.1).is_ok().then_some(segment)
    }
}

impl Engine {
    /// Returns the client if no action is queued and the segment is at home here.
    #[inline(always)]
    fn inline_client(&self, channel: ChannelId, id: SegmentId) -> Option<Client> {
        if self.output.is_empty() && self.is_home(id) { self.output.client(channel.client) } else { None }
    }

    /// Executes a get if it is an inline get on the fast path.
    #[inline(always)]
    pub fn inline_get(&mut self, channel: ChannelId, entry: &Entry) -> Option<InlineResult> {
        let InlineGet { segment, offset, into } = InlineGet::of(entry)?;
        let client = self.inline_client(channel, segment)?;
        let segment = self.segments.inline_segment(&client, Access::Read, segment, (offset, into.bytes))?;
        if !into.fits(client.arena_bytes) {
            return None;
        }
        let ((version, timestamp), at) = (segment.stamp(), segment.at + Header::DATA_OFFSET + offset);
        self.counters.requests += 1;
        Some(InlineResult { at, bytes: into.bytes as u8, version, timestamp })
    }

    /// Commits a put if it is an inline put on the fast path.
    #[inline(always)]
    pub fn inline_put(&mut self, now: Now, channel: ChannelId, entry: &Entry) -> Option<InlineCommit> {
        let InlinePut { segment, offset, bytes, words } = InlinePut::of(entry)?;
        let client = self.inline_client(channel, segment)?;
        let segment = self.segments.inline_segment(&client, Access::Write, segment, (offset, bytes.into()))?;
        segment.check_names_version(&PutConditions::default()).ok()?;
        let (version, timestamp) = segment.next_stamp(&mut self.clock, now.wall_us);
        segment.advance((version, timestamp));
        let at = segment.at;
        self.counters.requests += 1;
        self.counters.commits += 1;
        Some(InlineCommit { at, offset, bytes, words, version, timestamp })
    }
}
