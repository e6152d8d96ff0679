//! Calls that their caller has given up: a call that still waits for another caller ends, here and at its home.
//!
//! A cancel changes when a call ends and nothing else. Each call gets its one completion: the cancelled one as if its
//! deadline had passed, the one that was done meanwhile as done.

use super::home_ops::ReplyFields;
use crate::engine::engine::{Engine, LocalCaller, Now};
use crate::engine::state::lock_queue::Requester;
use crate::engine::state::pending::{StepId, WaitState};
use crate::{ClientId, Failure, Message, Outcome, RequestId, SegmentId};

impl Engine {
    /// Ends a request of the caller's lane that still waits.
    pub(crate) fn cancel(&mut self, now: Now, caller: &LocalCaller, segment: SegmentId, request: RequestId) {
        let lane = caller.lane;
        let here = self.is_home(segment) && self.cancel_here(now, segment, Requester::Client(lane, request));
        if !here && let Some(step) = self.operations.first(|pending| pending.lane == lane && pending.request == request)
        {
            self.cancel_far(step);
        }
        // Behind the end of the other one: the last reply of a round is this request's own.
        self.end(caller, Outcome::Done);
    }

    /// Takes an asker out of a segment's lines; `false` if it is in none.
    pub(crate) fn cancel_here(&mut self, now: Now, id: SegmentId, asker: Requester) -> bool {
        let Ok(segment) = self.segments.get_mut(id) else { return false };
        if let Some(waiter) = segment.guard.take_waiter(asker) {
            self.turn_away(&waiter, Failure::TimedOut);
            // Those behind it may have waited for it alone.
            self.serve_line(now, id);
        } else if segment.guard.take_watcher(asker) {
            self.answer(asker, Outcome::Failed(Failure::TimedOut), ReplyFields::default());
        } else {
            return false;
        }
        true
    }

    /// Asks the home to end what waits there. What is harmless ends here at once, whether the home answers or not: a lock
    /// that is granted all the same is given back.
    fn cancel_far(&mut self, step: StepId) {
        let Some(&mut pending) = self.operations.get_mut(step) else { return };
        let waits_at_home = matches!(
            pending.wait,
            WaitState::Answer { .. } | WaitState::Lock { .. } | WaitState::Home(_) | WaitState::Put { .. }
        );
        let Some(segment) = pending.wait.segment().filter(|_| waits_at_home) else { return };
        if self.peers.reachable(pending.on).is_some() {
            self.send(pending.on, Message::Cancel { step: step.to_bits(), segment });
        }
        if !matches!(pending.wait, WaitState::Answer { harmless: false, .. } | WaitState::Put { .. }) {
            self.expire(step);
        }
    }

    /// The same for all that a client, which is gone, has under way.
    pub(crate) fn cancel_all_far(&mut self, client: ClientId) {
        for step in self.operations.find(|pending| pending.lane.client == client) {
            self.cancel_far(step);
        }
    }
}
