//! Cancellation of calls that their caller gave up: a call that waits for another caller ends, here and at its home.
//!
//! A cancel changes only when a call ends. Each call gets its one completion: the cancelled call as if its deadline had
//! passed, a finished call as done.

use crate::engine::config::Now;
use crate::engine::engine::Engine;
use crate::engine::ids::StepId;
use crate::engine::requester::{LocalCaller, ReplyFields, Requester};
use crate::engine::state::pending::WaitState;
use crate::{ClientId, Failure, Message, Outcome, RequestId, SegmentId};

impl Engine {
    /// Ends a waiting request of the caller's channel.
    pub(crate) fn cancel(&mut self, now: Now, caller: &LocalCaller, segment: SegmentId, request: RequestId) {
        let channel = caller.channel;
        let here = self.is_home(segment) && self.cancel_at_home(now, segment, Requester::Client(channel, request));
        if !here
            && let Some(step) =
                self.operations.first(|pending| pending.channel == channel && pending.request == request)
        {
            self.cancel_remote(step);
        }
        // This comes after the end of the cancelled request: the last reply of a round is this request's own.
        self.output.finish_call(caller, Outcome::Done);
    }

    /// Removes a requester from a segment's queues; `false` if it is in none.
    pub(crate) fn cancel_at_home(&mut self, now: Now, id: SegmentId, requester: Requester) -> bool {
        let Ok(segment) = self.segments.get_mut(id) else { return false };
        if let Some(waiter) = segment.lock_queue.take_waiter(requester) {
            self.fail_waiter(&waiter, Failure::TimedOut);
            // Waiters behind it may have waited for it alone.
            self.serve_lock_queue(now, id);
        } else if segment.lock_queue.take_watcher(requester) {
            self.output.answer(requester, Outcome::Failed(Failure::TimedOut), ReplyFields::default());
        } else {
            return false;
        }
        true
    }

    /// Asks the home to end a wait there. A harmless wait ends here at once, whether the home answers or not; a late
    /// grant is given back.
    fn cancel_remote(&mut self, step: StepId) {
        let Some(&mut pending) = self.operations.get_mut(step) else { return };
        let waits_at_home = matches!(
            pending.wait,
            WaitState::Answer { .. } | WaitState::Lock { .. } | WaitState::Home(_) | WaitState::Put { .. }
        );
        let Some(segment) = pending.wait.segment().filter(|_| waits_at_home) else { return };
        if self.peers.reachable(pending.on).is_some() {
            self.output.send(pending.on, Message::Cancel { step: step.to_bits(), segment });
        }
        if !matches!(pending.wait, WaitState::Answer { harmless: false, .. } | WaitState::Put { .. }) {
            self.expire(step);
        }
    }

    /// Cancels all remote waits of a client that is gone.
    pub(crate) fn cancel_all_remote(&mut self, client: ClientId) {
        for step in self.operations.find(|pending| pending.channel.client == client) {
            self.cancel_remote(step);
        }
    }
}
