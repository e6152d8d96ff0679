//! Calls that wait for the sweep of a map: their end without it.

use crate::config::Now;
use crate::requester::{ReplyFields, Requester};
use crate::state::output::Output;
use crate::state::segments::Segments;
use crate::state::segments::sweeps::SweepCall;
use ddss_core::{Failure, Outcome, SegmentId};

/// Borrows the segments, whose maps have the calls, and the output.
pub(crate) struct SweepCalls<'a> {
    pub(crate) segments: &'a mut Segments,
    pub(crate) output: &'a mut Output,
}

impl SweepCalls<'_> {
    /// Ends the sweeps of a segment that is not at home here any more.
    pub(crate) fn fail(&mut self, id: SegmentId, failure: Failure) {
        for call in self.segments.sweeps.remove(id) {
            self.output.answer(call.requester, Outcome::Failed(failure), ReplyFields::default());
        }
    }

    /// Ends all sweeps before the node stops.
    pub(crate) fn fail_all(&mut self, failure: impl Fn(Requester) -> Failure) {
        for call in self.segments.sweeps.remove_all() {
            self.output.answer(call.requester, Outcome::Failed(failure(call.requester)), ReplyFields::default());
        }
    }

    /// Ends calls that their callers gave up; returns true if there are some. What they have freed stays free.
    pub(crate) fn end(&mut self, now: Now, id: SegmentId, ends: impl Fn(&SweepCall) -> bool) -> bool {
        let Some(sweep) = self.segments.sweeps.get(id) else { return false };
        let before = sweep.calls.len();
        sweep.calls.retain(|call| {
            if ends(call) {
                self.output.answer(call.requester, Outcome::Failed(Failure::TimedOut), ReplyFields::default());
            }
            !ends(call)
        });
        let has_ended = sweep.calls.len() < before;
        if has_ended && sweep.calls.is_empty() {
            self.segments.sweeps.schedule(now, id, 0);
        }
        has_ended
    }
}
