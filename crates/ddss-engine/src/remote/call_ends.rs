//! Ends of calls at other nodes: by an answer, by a deadline, or by a cancel of the caller, which ends the wait here and at the home.
//!
//! A cancel changes only when a call ends. Each call gets its one completion: the cancelled call as if its deadline had
//! passed, a finished call as done.

use crate::ids::StepId;
use crate::remote::handler::Remote;
use crate::state::pending::{Pending, WaitState};
use ddss_core::{ChannelId, ClientId, Failure, ListPage, Message, Operation, Outcome, RequestId, SegmentId};

impl Remote<'_> {
    /// Ends a pending operation: frees its buffers and invalidates the cached copy of a segment that it may have
    /// changed.
    #[inline]
    pub(crate) fn end_pending(&mut self, step: StepId) -> Option<Pending> {
        let pending = self.operations.remove(step)?;
        if let Some(table) = pending.wait.table() {
            self.output.free_buffer(table);
        }
        if let WaitState::Unlock { token, segment } = pending.wait {
            // Whatever the outcome, the client no longer counts on the lock.
            self.remote_locks.remove(segment, token);
        }
        if let Some(segment) = pending.wait.changes() {
            self.invalidate_cached(segment);
        }
        Some(pending)
    }

    /// Handles the deadline of an operation. While the fabric may still touch the client's arena there is no end yet.
    /// The client has the same deadline, stops waiting by itself and keeps the range until the end.
    pub(crate) fn expire(&mut self, step: StepId) {
        let Some(pending) = self.operations.get_mut(step) else { return };
        let outcome = match pending.wait {
            WaitState::Fetch(_)
            | WaitState::Put { ticket: Some(_), .. }
            | WaitState::Part { ticket: Some(_), .. }
            | WaitState::LateLock { .. } => return,
            // A late grant is given back when its message arrives.
            WaitState::Lock { segment, .. } => return self.expire_lock(step, segment),
            // A list continues with the next node.
            WaitState::Page { node, list: true, .. } => {
                let Some(pending) = self.end_pending(step) else { return };
                return self.output.complete_page(
                    pending.channel,
                    pending.request,
                    ListPage { node, away: true, ..ListPage::default() },
                );
            }
            WaitState::Put { .. }
            | WaitState::Release { .. }
            | WaitState::Allocate { .. }
            | WaitState::Unlock { .. }
            | WaitState::Renew { .. }
            | WaitState::Answer { .. } => Outcome::Indeterminate(Failure::TimedOut),
            WaitState::Lookup
            | WaitState::Info { .. }
            | WaitState::Home(_)
            | WaitState::Page { .. }
            | WaitState::Part { .. }
            | WaitState::Version { .. } => Outcome::Failed(Failure::TimedOut),
        };
        self.lookups.remove(&step);
        if let Some(pending) = self.end_pending(step) {
            self.output.finish(&pending, outcome);
        }
    }

    fn expire_lock(&mut self, step: StepId, segment: SegmentId) {
        let Some(pending) = self.operations.get_mut(step) else { return };
        pending.wait = WaitState::LateLock { segment };
        let pending = *pending;
        self.output.finish(&pending, Outcome::Failed(Failure::TimedOut));
    }

    /// Ends a waiting request of a channel.
    pub(crate) fn cancel(&mut self, channel: ChannelId, request: RequestId) {
        if let Some(step) = self.operations.of_request(channel, request) {
            self.cancel_remote(step);
        }
    }

    /// Asks the home to end a wait there. A harmless wait ends here at once, whether the home answers or not; a late
    /// grant is given back.
    fn cancel_remote(&mut self, step: StepId) {
        let Some(&mut pending) = self.operations.get_mut(step) else { return };
        let waits_at_home = matches!(
            pending.wait,
            WaitState::Answer { .. }
                | WaitState::Version { .. }
                | WaitState::Lock { .. }
                | WaitState::Home(_)
                | WaitState::Put { .. }
        );
        let Some(segment) = pending.wait.segment().filter(|_| waits_at_home) else { return };
        if self.peers.reachable(pending.on).is_some() {
            let cancel = Operation::Cancel { segment, request: RequestId(step.to_bits()) };
            self.output.send(pending.on, Message::call(0, pending.principal, 0, cancel));
        }
        if !matches!(pending.wait, WaitState::Answer { .. } | WaitState::Put { .. }) {
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
