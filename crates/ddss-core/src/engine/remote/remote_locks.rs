//! Which locks of other homes the clients of this node hold, so that they can be given back when a client dies.

use crate::engine::engine::{Engine, Now};
use crate::request::operation::LockToken;
use crate::{ClientId, Message, NodeId, SegmentId};

/// One lock of another home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RemoteLock {
    pub(crate) segment: SegmentId,
    /// Who gave it.
    pub(crate) home: NodeId,
    pub(crate) token: LockToken,
    pub(crate) client: ClientId,
    /// When the home will have ended it by itself.
    pub(crate) until_us: u64,
}

impl Engine {
    /// Whether a client of this node holds a remote segment's lock: then its own gets do not wait for it.
    pub(crate) fn holds_far(&self, client: ClientId, segment: SegmentId) -> bool {
        self.held.iter().any(|held| held.client == client && held.segment == segment)
    }

    /// The token of the lock that this client holds on a remote segment.
    pub(crate) fn token_of(&self, client: ClientId, segment: SegmentId) -> Option<LockToken> {
        let mine = self.held.iter().find(|held| held.client == client && held.segment == segment);
        mine.map(|held| held.token)
    }

    /// A client is gone: its locks elsewhere are given back.
    pub(crate) fn give_back_all(&mut self, client: ClientId) {
        let (gone, stay) = self.held.iter().partition::<Vec<_>, _>(|held| held.client == client);
        self.held = stay;
        for held in gone {
            self.give_back(held.home, held.segment, held.token);
        }
    }

    /// Tells a home that a lock is not needed; nobody waits for the answer.
    pub(crate) fn give_back(&mut self, home: NodeId, segment: SegmentId, token: LockToken) {
        if self.peers.reachable(home).is_some() {
            self.send(home, Message::Unlock { step: 0, segment, token });
        }
    }

    /// A home is gone, and its locks with it.
    pub(crate) fn held_lost(&mut self, home: NodeId) {
        self.held.retain(|held| held.home != home);
    }

    /// Leases that have run out need not be given back.
    pub(crate) fn tick_held(&mut self, now: Now) {
        self.held.retain(|held| held.until_us > now.steady_us);
    }
}
