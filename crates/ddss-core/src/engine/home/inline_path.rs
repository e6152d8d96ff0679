//! The way of the smallest calls (see `crate::request::inline_request`): decided while the entry is looked at, and answered without an action.
//! What is decided is what `fast_path.rs` decides, in the same order; what is not done here goes by
//! [`request`](Engine::request), and so does whatever is refused.

use crate::engine::action::{Action, CommitSource, RangeSet};
use crate::engine::engine::{Client, Engine, Now};
use crate::engine::state::segments::{Segment, Segments};
use crate::model::segment::{Access, Header};
use crate::request::inline_request::{InlineGet, InlinePut};
use crate::request::operation::Payload;
use crate::{ChannelId, Completion, Entry, Outcome, RequestId, SegmentId, Timestamp, Version};

/// What a small get found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InlineResult {
    /// Where its bytes are in this node's memory.
    pub at: u64,
    /// How many.
    pub bytes: u8,
    /// Of which version they are.
    pub version: Version,
    /// When that was made.
    pub timestamp: Timestamp,
}

/// What a small put commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InlineCommit {
    /// Where the header of the segment is.
    pub at: u64,
    /// From where on its bytes are replaced.
    pub offset: u64,
    /// By how many.
    pub bytes: u8,
    /// By which; those behind them are nobody's.
    pub words: [u64; 2],
    /// The new version.
    pub version: Version,
    /// And its timestamp.
    pub timestamp: Timestamp,
}

impl InlineResult {
    /// The same as an action, for who answers by actions.
    pub fn action(&self, lane: ChannelId, entry: &Entry) -> Action {
        let &Self { at, bytes, version, timestamp } = self;
        let done =
            Completion { version, timestamp, inline: true, ..Completion::bare(RequestId(entry[1]), Outcome::Done) };
        Action::Reply { lane, completion: done, data: Some((at, bytes)) }
    }
}

impl InlineCommit {
    /// The same as actions: the commit, and the answer behind it.
    pub fn actions(&self, lane: ChannelId, entry: &Entry) -> [Action; 2] {
        let &Self { at, offset, bytes, words, version, timestamp } = self;
        let mut held = [0; 16];
        for (place, byte) in held.iter_mut().zip(words.iter().flat_map(|word| word.to_le_bytes())).take(bytes.into()) {
            *place = byte;
        }
        let from = Payload::Inline { bytes: held, length: bytes };
        let (parts, source) = (RangeSet::One { offset, bytes: bytes.into() }, CommitSource::Client(lane.client, from));
        let done = Completion { version, timestamp, ..Completion::bare(RequestId(entry[1]), Outcome::Done) };
        [Action::Commit { at, parts, source, version, timestamp }, Action::Reply { lane, completion: done, data: None }]
    }
}

impl Segments {
    /// A segment that somebody may use so, with nobody to ask.
    #[inline(always)]
    fn plain_for(&mut self, client: &Client, wish: Access, id: SegmentId, range: (u64, u32)) -> Option<&mut Segment> {
        let segment = self.plain(id)?;
        let allowed = segment.permissions.allow(client.who, wish);
        (allowed.is_ok() && segment.check_range(range.0, range.1).is_ok()).then_some(segment)
    }
}

impl Engine {
    /// Who asks, if nothing has to be done before, and what is asked for is at home here.
    #[inline(always)]
    fn asks_small(&self, lane: ChannelId, id: SegmentId) -> Option<Client> {
        if self.has_nothing_due() && self.is_home(id) { self.client(lane.client) } else { None }
    }

    /// A get, if it is a small one that can be answered as it stands there.
    #[inline(always)]
    pub fn small_get(&mut self, lane: ChannelId, entry: &Entry) -> Option<InlineResult> {
        let InlineGet { segment, offset, into } = InlineGet::of(entry)?;
        let client = self.asks_small(lane, segment)?;
        let segment = self.segments.plain_for(&client, Access::Read, segment, (offset, into.bytes))?;
        if !into.fits(client.arena_bytes) {
            return None;
        }
        let (version, timestamp, at) = (segment.version, segment.timestamp, segment.at + Header::DATA_OFFSET + offset);
        self.counters.requests += 1;
        Some(InlineResult { at, bytes: into.bytes as u8, version, timestamp })
    }

    /// A put, if it is a small one that can be committed as it stands there.
    #[inline(always)]
    pub fn small_put(&mut self, now: Now, lane: ChannelId, entry: &Entry) -> Option<InlineCommit> {
        let InlinePut { segment, offset, bytes, words } = InlinePut::of(entry)?;
        let client = self.asks_small(lane, segment)?;
        let segment = self.segments.plain_for(&client, Access::Write, segment, (offset, bytes.into()))?;
        if segment.spec.model.put_names_version(None) {
            return None;
        }
        let (version, at) = (Version(segment.version.0 + 1), segment.at);
        segment.version = version;
        let timestamp = self.clock.next(now.wall_us);
        segment.timestamp = timestamp;
        self.counters.requests += 1;
        self.counters.commits += 1;
        Some(InlineCommit { at, offset, bytes, words, version, timestamp })
    }
}
