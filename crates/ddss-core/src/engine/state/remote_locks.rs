//! Locks that clients of this node hold at other homes.

use crate::limits::OPERATIONS_MAX;
use crate::request::operation::LockToken;
use crate::{ClientId, NodeId, SegmentId};

/// One lock at another home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RemoteLock {
    pub(crate) segment: SegmentId,
    /// Home that granted it.
    pub(crate) home: NodeId,
    pub(crate) token: LockToken,
    pub(crate) client: ClientId,
    /// End of the lease at the home.
    pub(crate) until_us: u64,
}

/// All such locks.
#[derive(Debug, Default)]
pub(crate) struct RemoteLocks(Vec<RemoteLock>);

impl RemoteLocks {
    /// Returns true if no further lock may be requested.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= OPERATIONS_MAX
    }

    /// Adds a grant.
    pub(crate) fn add(&mut self, lock: RemoteLock) {
        self.0.push(lock);
    }

    /// Returns the token of the lock that this client holds on a segment.
    pub(crate) fn token_of(&self, client: ClientId, segment: SegmentId) -> Option<LockToken> {
        let own = self.0.iter().find(|lock| lock.client == client && lock.segment == segment);
        own.map(|lock| lock.token)
    }

    /// Returns true if this client holds that grant.
    pub(crate) fn contains(&self, client: ClientId, segment: SegmentId, token: LockToken) -> bool {
        let key = (segment, token, client);
        self.0.iter().any(|lock| (lock.segment, lock.token, lock.client) == key)
    }

    /// Records a later end of the lease.
    pub(crate) fn extend(&mut self, segment: SegmentId, token: LockToken, until_us: u64) {
        for lock in self.0.iter_mut().filter(|lock| (lock.segment, lock.token) == (segment, token)) {
            lock.until_us = lock.until_us.max(until_us);
        }
    }

    /// Removes a grant. Two homes may give the same token.
    pub(crate) fn remove(&mut self, segment: SegmentId, token: LockToken) {
        self.0.retain(|lock| (lock.segment, lock.token) != (segment, token));
    }

    /// Removes the locks of a segment whose home has changed.
    pub(crate) fn remove_segment(&mut self, segment: SegmentId) {
        self.0.retain(|lock| lock.segment != segment);
    }

    /// Removes the locks of a home that is gone.
    pub(crate) fn remove_home(&mut self, home: NodeId) {
        self.0.retain(|lock| lock.home != home);
    }

    /// Takes the locks of a client that is gone.
    pub(crate) fn take_client(&mut self, client: ClientId) -> Vec<RemoteLock> {
        let (gone, stay) = self.0.iter().partition::<Vec<_>, _>(|lock| lock.client == client);
        self.0 = stay;
        gone
    }

    /// Removes the locks whose lease has ended.
    pub(crate) fn expire(&mut self, now_us: u64) {
        self.0.retain(|lock| lock.until_us > now_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_ends_with_its_client_home_lease_or_segment() {
        // If this broke, a client would count on a lock that another one holds.
        let id = |home, slot| SegmentId::new(NodeId(home), slot, 1);
        let client = |index| ClientId { index, generation: 1 };
        let lock = |home, slot, owner, until_us| RemoteLock {
            segment: id(home, slot),
            home: NodeId(home),
            token: LockToken(slot.into()),
            client: client(owner),
            until_us,
        };
        let mut locks = RemoteLocks::default();
        let all = [lock(2, 1, 1, 10), lock(2, 2, 2, 20), lock(3, 3, 2, 20), lock(3, 4, 2, 20), lock(3, 5, 3, 20)];
        all.into_iter().for_each(|lock| locks.add(lock));
        assert!(
            locks.contains(client(1), id(2, 1), LockToken(1)) && !locks.contains(client(2), id(2, 1), LockToken(1))
        );
        locks.extend(id(2, 1), LockToken(1), 12);
        locks.extend(id(2, 1), LockToken(1), 11);
        locks.expire(11);
        assert_eq!(locks.token_of(client(1), id(2, 1)), Some(LockToken(1)), "its lease was renewed");
        locks.expire(12);
        assert_eq!(locks.token_of(client(1), id(2, 1)), None);
        locks.remove_home(NodeId(2));
        locks.remove_segment(id(3, 3));
        locks.remove(id(2, 4), LockToken(4));
        assert_eq!(locks.token_of(client(2), id(3, 4)), Some(LockToken(4)), "another home's lock has this token");
        assert_eq!(locks.take_client(client(2)), [all[3]]);
        assert_eq!(locks.take_client(client(3)), [all[4]]);
    }
}
