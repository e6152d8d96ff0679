//! Locks that clients of this node hold at other homes, so that they can be released when a client dies.

use crate::engine::remote::handler::Remote;
use crate::request::operation::LockToken;
use crate::{ClientId, Message, NodeId, SegmentId};

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
}
