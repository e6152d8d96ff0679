//! Locks that clients of this node hold at other homes, so that they can be released when a client dies.

use crate::config::Now;
use crate::remote::handler::Remote;
use ddss_core::{ClientId, Failure, LockToken, Message, NodeId, Operation, Outcome, Principal, SegmentId};

/// User of an unlock: the token alone decides.
const NO_USER: Principal = Principal { uid: u32::MAX, gid: u32::MAX };

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
            self.output.send(home, Message::call(0, NO_USER, 0, Operation::Unlock { segment, token }));
        }
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
