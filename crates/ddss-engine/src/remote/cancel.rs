//! Cancellation of calls that their caller gave up: a call that waits for another caller ends, here and at its home.
//!
//! A cancel changes only when a call ends. Each call gets its one completion: the cancelled call as if its deadline had
//! passed, a finished call as done.

use crate::ids::StepId;
use crate::remote::handler::Remote;
use crate::state::pending::WaitState;
use ddss_core::{ChannelId, ClientId, Message, Operation, RequestId};

impl Remote<'_> {
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
