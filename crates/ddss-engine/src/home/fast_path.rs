//! Fast path for nearly every put: one range of a segment at home here. The segment has no lock holder, waiter, watcher,
//! replica or history, and no rows. The checks are those of every path (`state/segments/versions.rs`), in the order of
//! `operations/execution.rs`, without a second lookup and without pending state. Every other call takes the general path, which
//! needs nearly twice as many instructions for a put (`scripts/guard --only engine-put-general`). Gets have no such
//! path: a client reads a local segment in place.

use crate::action::Commit;
use crate::config::Now;
use crate::fault_injection::planted;
use crate::requester::LocalCaller;
use crate::state::output::Output;
use crate::state::segments::{Segment, Segments};
use ddss_core::{Access, Completion, Failure, HybridClock, Outcome, Payload, PutConditions, SegmentId};

/// End of a call on the fast path: done, or refused.
type FastResult = Result<(), Failure>;

impl Segments {
    /// Returns the segment if it qualifies for the fast path.
    #[inline(always)]
    pub(crate) fn fast_path_segment(&mut self, id: SegmentId) -> Option<&mut Segment> {
        if !self.allows_fast_path() {
            return None;
        }
        let (past_lock, unkept) = (planted!(self, ShortWayPastLock), planted!(self, ShortWayUnkept));
        #[cfg(feature = "planted")]
        if self.bug.is_some() && !past_lock && !unkept {
            // Every other bug is on the slow path.
            return None;
        }
        let is_plain = |segment: &&mut Segment| {
            // A put beside a large one ends by an assertion, which is no way to find this bug.
            (segment.lock_queue.is_free() || past_lock && !segment.lock_queue.is_memory_busy())
                && segment.replication.is_none()
                && segment.spec.row_bytes == 0
                && (!segment.has_history() || unkept)
        };
        self.get_mut(id).ok().filter(is_plain)
    }
}

/// Borrows what a call on the fast path needs.
pub(crate) struct FastPath<'a> {
    pub(crate) segments: &'a mut Segments,
    pub(crate) clock: &'a mut HybridClock,
    pub(crate) output: &'a mut Output,
}

impl FastPath<'_> {
    /// Executes a put on the fast path, or returns `None`.
    #[inline(always)]
    pub(crate) fn put_fast(
        &mut self,
        now: Now,
        caller: &LocalCaller,
        id: SegmentId,
        (offset, from): (u64, &Payload),
        conditions: &PutConditions,
    ) -> Option<FastResult> {
        if conditions.token.is_some() || conditions.entry.is_some() {
            return None;
        }
        let bytes = from.length();
        let segment = self.segments.fast_path_segment(id)?;
        let checked = segment
            .check_access(caller.principal, Access::Write, offset, bytes)
            .and_then(|()| segment.check_names_version(conditions))
            .and_then(|()| segment.check_version(conditions.version));
        if let Err(failure) = checked {
            if failure == Failure::VersionMismatch && conditions.version.is_some() {
                self.output.name_version(segment.version());
            }
            return Some(Err(failure));
        }
        let (version, timestamp) = segment.next_stamp(self.clock, now.wall_us);
        segment.advance((version, timestamp));
        let at = segment.at;
        self.output.counters.commits += 1;
        self.output.commit(Commit { at, offset, client: caller.channel.client, from: *from, version, timestamp });
        let done = Completion { version, timestamp, ..Completion::bare(caller.request, Outcome::Done) };
        self.output.reply(caller.channel, done, None);
        Some(Ok(()))
    }
}
