//! Locks that clients of this node hold at other homes, so that they can be released when a client dies.

use crate::engine::config::Now;
use crate::engine::engine::Engine;
use crate::request::operation::LockToken;
use crate::{ClientId, Message, NodeId, SegmentId};

impl Engine {
    /// Returns true if a local client holds a remote segment's lock: its own gets do not wait for it.
    pub(crate) fn holds_remote_lock(&self, client: ClientId, segment: SegmentId) -> bool {
        self.remote_locks.iter().any(|lock| lock.client == client && lock.segment == segment)
    }

    /// Returns the token of the lock that this client holds on a remote segment.
    pub(crate) fn remote_lock_token(&self, client: ClientId, segment: SegmentId) -> Option<LockToken> {
        let mine = self.remote_locks.iter().find(|lock| lock.client == client && lock.segment == segment);
        mine.map(|lock| lock.token)
    }

    /// Releases all remote locks of a client that is gone.
    pub(crate) fn release_remote_locks(&mut self, client: ClientId) {
        let (gone, stay) = self.remote_locks.iter().partition::<Vec<_>, _>(|lock| lock.client == client);
        self.remote_locks = stay;
        for lock in gone {
            self.release_remote_lock(lock.home, lock.segment, lock.token);
        }
    }

    /// Releases a remote lock without waiting for the answer.
    pub(crate) fn release_remote_lock(&mut self, home: NodeId, segment: SegmentId, token: LockToken) {
        if self.peers.reachable(home).is_some() {
            self.send(home, Message::Unlock { step: 0, segment, token });
        }
    }

    /// Forgets the locks of a home that is gone.
    pub(crate) fn drop_locks_of_home(&mut self, home: NodeId) {
        self.remote_locks.retain(|lock| lock.home != home);
    }

    /// Forgets locks whose lease has expired.
    pub(crate) fn expire_remote_locks(&mut self, now: Now) {
        self.remote_locks.retain(|lock| lock.until_us > now.steady_us);
    }
}
