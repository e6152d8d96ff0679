//! The short way of nearly every call: a get or a put of one range of a segment at home here that nobody locks, waits for
//! or watches, that has no mirror, and of which nothing old is kept. The same is decided as in `home_ops.rs`, in the same
//! order; but nothing is looked up twice and nothing has to be remembered. Whatever else it is goes the long way.

use crate::engine::action::{Action, RangeSet};
use crate::engine::engine::{Engine, LocalCaller, Now};
use crate::engine::fault_injection::planted;
use crate::engine::immediate::Commit;
use crate::engine::state::pending::Transfer;
use crate::engine::state::segments::{Segment, Segments};
use crate::model::segment::{Access, Header};
use crate::request::operation::{Payload, PutConditions};
use crate::{Completion, Failure, Outcome, SegmentId, Version};

/// How a call ended that could go the short way: done, or refused.
type FastResult = Result<(), Failure>;

impl Segments {
    /// A segment of which a call has nobody to ask, nobody to tell and nothing to keep.
    #[inline(always)]
    pub(crate) fn plain(&mut self, id: SegmentId) -> Option<&mut Segment> {
        if self.long_way {
            return None;
        }
        let (past_lock, unkept) = (planted!(self, ShortWayPastLock), planted!(self, ShortWayUnkept));
        #[cfg(feature = "planted")]
        if self.bug.is_some() && !past_lock && !unkept {
            // Every other bug is on the long way.
            return None;
        }
        let is_plain = |segment: &&mut Segment| {
            (segment.guard.is_free() || past_lock) && segment.mirror.is_none() && (segment.stamps.is_empty() || unkept)
        };
        self.get_mut(id).ok().filter(is_plain)
    }
}

impl Engine {
    /// Has what is asked from now on go the long way, though it could go the short one. Both decide the same; that they do
    /// is what a simulator finds out.
    pub fn take_long_way(&mut self, long_way: bool) {
        self.segments.long_way = long_way;
    }

    /// A get, if it can go the short way.
    #[inline]
    pub(crate) fn get_plain(&mut self, caller: &LocalCaller, transfer: &Transfer) -> Option<FastResult> {
        let &Transfer { segment, parts: RangeSet::One { offset, bytes }, range, inline, look } = transfer else {
            return None;
        };
        if look.version.is_some() {
            return None;
        }
        let segment = self.segments.plain(segment)?;
        let allowed = segment.permissions.allow(caller.who, Access::Read);
        if let Err(failure) = allowed.and_then(|()| segment.check_range(offset, bytes)) {
            return Some(Err(failure));
        }
        let (version, timestamp) = (segment.version, segment.timestamp);
        let at = segment.at + Header::DATA_OFFSET;
        let done = Completion { version, timestamp, inline, ..Completion::bare(caller.request, Outcome::Done) };
        if inline {
            self.reply(caller.lane, done, Some((at + offset, bytes as u8)));
        } else {
            self.act(Action::CopyOut { at, parts: transfer.parts, client: caller.lane.client, into: range });
            self.reply(caller.lane, done, None);
        }
        Some(Ok(()))
    }

    /// A put, if it can go the short way.
    #[inline]
    pub(crate) fn put_plain(
        &mut self,
        now: Now,
        caller: &LocalCaller,
        id: SegmentId,
        (offset, from): (u64, &Payload),
        terms: &PutConditions,
    ) -> Option<FastResult> {
        if terms.token.is_some() {
            return None;
        }
        let bytes = from.length();
        let segment = self.segments.plain(id)?;
        let allowed = segment.permissions.allow(caller.who, Access::Write);
        if let Err(failure) = allowed.and_then(|()| segment.check_range(offset, bytes)) {
            return Some(Err(failure));
        }
        let named = match terms.version {
            Some(version) => version == segment.version,
            None => !segment.spec.model.put_names_version(terms.asks),
        };
        if !named {
            return Some(Err(Failure::VersionMismatch));
        }
        let version = Version(segment.version.0 + 1);
        (segment.version, segment.timestamp) = (version, self.clock.next(now.wall_us));
        let (at, timestamp) = (segment.at, segment.timestamp);
        self.counters.commits += 1;
        self.commit_at_once(Commit { at, offset, client: caller.lane.client, from: *from, version, timestamp });
        let done = Completion { version, timestamp, ..Completion::bare(caller.request, Outcome::Done) };
        self.reply(caller.lane, done, None);
        Some(Ok(()))
    }
}
