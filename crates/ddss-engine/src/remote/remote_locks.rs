//! Locks that clients of this node hold at other homes, so that they can be released when a client dies.

use crate::config::Now;
use crate::remote::handler::Remote;
use crate::requester::LocalCaller;
use crate::state::pending::WaitState;
use ddss_core::{ClientId, Failure, LockToken, Message, NodeId, Outcome, SegmentId};

impl Remote<'_> {
    /// Releases all remote locks of a client that is gone.
    pub(crate) fn release_remote_locks(&mut self, client: ClientId) {
        for lock in self.remote_locks.take_client(client) {
            self.release_remote_lock(lock.home, lock.segment, lock.token);
        }
    }

    /// Releases a remote lock without waiting for the answer.
    pub(crate) fn release_remote_lock(&mut self, home: NodeId, segment: SegmentId, token: LockToken) {
        if self.peers.reachable(home).is_some() {
            self.output.send(home, Message::Unlock { step: 0, segment, token });
        }
    }

    /// Asks the home to extend the lease of a lock.
    pub(crate) fn renew_remote(
        &mut self,
        caller: &LocalCaller,
        segment: SegmentId,
        token: LockToken,
        lease_us: u32,
    ) -> Result<(), Failure> {
        let home = self.reachable_home(segment)?;
        if !self.remote_locks.contains(caller.channel.client, segment, token) {
            return Err(Failure::LockLost);
        }
        let step = self.begin(caller, WaitState::Renew { segment, token, lease_us })?.to_bits();
        // The record here outlives the lease at the home, whenever the message arrives within the deadline.
        let until_us = caller.deadline_us.saturating_add(lease_us.into());
        self.remote_locks.extend(segment, token, until_us);
        self.output.send(home, Message::Renew { step, segment, token, lease_us });
        Ok(())
    }

    /// Records the answer to a renewal.
    pub(crate) fn renewal_answered(
        &mut self,
        now: Now,
        segment: SegmentId,
        token: LockToken,
        (lease_us, outcome): (u32, Outcome),
    ) {
        match outcome {
            Outcome::Done => self.remote_locks.extend(segment, token, now.steady_us.saturating_add(lease_us.into())),
            Outcome::Failed(Failure::LockLost | Failure::NotFound) => _ = self.remote_locks.remove(segment, token),
            _ => {}
        }
    }
}
