//! Copies of remote Temporal segments that this node keeps for its own readers.
//!
//! A copy is the whole segment, read into this node's own pool: never taken from a client's arena, where a client could
//! have forged what others would read. Its age counts from the moment when its reads began, so it shows every put that
//! had ended by then. Puts go to the home and not here; a put of this node's own clients ends the copy.

use crate::engine::action::{Action, FetchTarget, RangeSet};
use crate::engine::engine::{Engine, LocalCaller, Now};
use crate::engine::fault_injection::planted;
use crate::engine::state::pending::{Pending, PendingReads, StepId, Transfer, WaitState};
use crate::limits::{COPIES_MAX, COPY_BYTES_MAX};
use crate::peer::message::SegmentInfo;
use crate::{ChannelId, Completion, Failure, NodeId, Outcome, RequestId, SegmentId, Timestamp, Version};
use std::collections::BTreeMap;

/// One copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedSegment {
    /// Where its bytes are in the pool.
    at: u64,
    bytes: u64,
    version: Version,
    timestamp: Timestamp,
    /// When its reads began.
    began_us: u64,
    /// Its bytes are on their way.
    coming: bool,
    /// Something happened that the bytes on their way may not show: only who asked for them gets them.
    spoiled: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct ReadCache(BTreeMap<SegmentId, CachedSegment>);

impl ReadCache {
    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        !self.0.is_empty()
    }
}

impl Engine {
    /// Answers from the copy, or begins to read one; `false` if this get has to go to the home by itself.
    pub(crate) fn get_copied(
        &mut self,
        now: Now,
        caller: &LocalCaller,
        transfer: &Transfer,
        facts: &SegmentInfo,
        copy_us: u32,
    ) -> Result<bool, Failure> {
        let segment = transfer.segment;
        if copy_us == 0 || facts.bytes > COPY_BYTES_MAX || !matches!(facts.model, crate::Model::Temporal(_)) {
            return Ok(false);
        }
        let copy = match self.copies.0.get(&segment) {
            Some(copy) if copy.coming => return Ok(false),
            Some(copy)
                if planted!(self, EternalCopy) || now.steady_us < copy.began_us.saturating_add(copy_us.into()) =>
            {
                let copy = *copy;
                self.counters.copied += 1;
                self.answer_from(&copy, caller.lane, caller.request, transfer);
                self.give_up_table(&transfer.parts);
                return Ok(true);
            }
            Some(copy) => *copy,
            None => match self.make_copy(facts.bytes) {
                Some(copy) => copy,
                None => return Ok(false),
            },
        };
        let fetching = PendingReads { transfer: *transfer, tears: 0, kept: None, refresh: true };
        let step = self.begin(caller, WaitState::Fetch(fetching))?;
        let coming = CachedSegment { began_us: now.steady_us, coming: true, spoiled: false, ..copy };
        self.copies.0.insert(segment, coming);
        self.fetch(step, &fetching, FetchTarget::Pool(copy.at)).inspect_err(|_| {
            self.operations.remove(step);
            self.drop_coming(segment);
        })?;
        Ok(true)
    }

    /// Room for a copy, if need be that of the oldest one.
    fn make_copy(&mut self, bytes: u64) -> Option<CachedSegment> {
        if self.copies.0.len() >= COPIES_MAX {
            let idle = self.copies.0.iter().filter(|(_, copy)| !copy.coming);
            let (&oldest, _) = idle.min_by_key(|(id, copy)| (copy.began_us, **id))?;
            self.end_copy(oldest);
        }
        let at = self.segments.take_blocks(bytes)?;
        let (version, timestamp) = (Version(0), Timestamp(0));
        Some(CachedSegment { at, bytes, version, timestamp, began_us: 0, coming: true, spoiled: false })
    }

    fn answer_from(&mut self, copy: &CachedSegment, lane: ChannelId, request: RequestId, transfer: &Transfer) {
        let done = Completion::bare(request, Outcome::Done);
        let mut done = Completion { version: copy.version, timestamp: copy.timestamp, ..done };
        let data = match transfer.parts {
            RangeSet::One { offset, bytes } if transfer.inline => {
                done.inline = true;
                Some((copy.at + offset, bytes as u8))
            }
            parts => {
                self.act(Action::CopyOut { at: copy.at, parts, client: lane.client, into: transfer.range });
                None
            }
        };
        self.reply(lane, done, data);
    }

    /// The bytes of a copy are there, whole.
    pub(crate) fn refreshed(
        &mut self,
        step: StepId,
        pending: &Pending,
        transfer: &Transfer,
        stamp: (Version, Timestamp),
    ) {
        let Some(copy) = self.copies.0.get_mut(&transfer.segment) else { return };
        (copy.version, copy.timestamp) = stamp;
        copy.coming = false;
        let copy = *copy;
        self.answer_from(&copy, pending.lane, pending.request, transfer);
        self.over(step);
        if copy.spoiled {
            self.end_copy(transfer.segment);
        }
    }

    /// The bytes of a copy will not come, and the fabric does not touch its place any more.
    pub(crate) fn drop_coming(&mut self, segment: SegmentId) {
        if self.copies.0.get(&segment).is_some_and(|copy| copy.coming) {
            self.end_copy(segment);
        }
    }

    /// A client of this node changed the segment, or it is gone: what is here does not count any more.
    pub(crate) fn spoil_copy(&mut self, segment: SegmentId) {
        if planted!(self, UnspoiltCopy) {
            return;
        }
        match self.copies.0.get_mut(&segment) {
            Some(copy) if copy.coming => copy.spoiled = true,
            Some(_) => self.end_copy(segment),
            None => {}
        }
    }

    /// The same for everything whose home is there.
    pub(crate) fn spoil_copies_of(&mut self, home: NodeId) {
        let theirs: Vec<SegmentId> = self.copies.0.keys().copied().filter(|id| id.home() == home).collect();
        for segment in theirs {
            self.spoil_copy(segment);
        }
    }

    fn end_copy(&mut self, segment: SegmentId) {
        if let Some(copy) = self.copies.0.remove(&segment) {
            self.segments.give_blocks(copy.at, copy.bytes);
        }
    }
}
