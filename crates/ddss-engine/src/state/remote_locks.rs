//! Locks that clients of this node hold at other homes.

use ddss_core::limits::OPERATIONS_MAX;
use ddss_core::{ClientId, LockToken, NodeId, SegmentId};
use std::collections::{BTreeMap, BTreeSet};

/// One lock at another home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RemoteLock {
    pub(crate) segment: SegmentId,
    /// Offset of the row's first byte; `None` for the lock of the whole segment.
    pub(crate) row_offset: Option<u64>,
    /// Home that granted it.
    pub(crate) home: NodeId,
    pub(crate) token: LockToken,
    pub(crate) client: ClientId,
    /// End of the lease at the home.
    pub(crate) until_us: u64,
}

/// All such locks: found by token, by client with segment and row, and by the end of the lease. Two homes may give the same
/// token.
#[derive(Debug, Default)]
pub(crate) struct RemoteLocks {
    locks: BTreeMap<(SegmentId, LockToken), RemoteLock>,
    clients: BTreeSet<(ClientId, SegmentId, Option<u64>, LockToken)>,
    leases: BTreeSet<(u64, SegmentId, LockToken)>,
}

impl RemoteLocks {
    /// Returns true if no client of this node holds a lock at another home.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// Returns true if no further lock may be requested.
    pub(crate) fn is_full(&self) -> bool {
        self.locks.len() >= OPERATIONS_MAX
    }

    /// Adds a grant.
    pub(crate) fn add(&mut self, lock: RemoteLock) {
        let RemoteLock { segment, row_offset, token, client, until_us, .. } = lock;
        self.remove(segment, token);
        self.locks.insert((segment, token), lock);
        self.clients.insert((client, segment, row_offset, token));
        self.leases.insert((until_us, segment, token));
    }

    /// Returns the token of the lock that this client holds on that row, or on the segment.
    fn token_of(&self, client: ClientId, segment: SegmentId, row_offset: Option<u64>) -> Option<LockToken> {
        let bound = |token| (client, segment, row_offset, LockToken(token));
        self.clients.range(bound(0)..=bound(u64::MAX)).next().map(|&(.., token)| token)
    }

    /// Returns the token of the lock that this client holds on the whole segment.
    #[inline]
    pub(crate) fn token_of_segment(&self, client: ClientId, segment: SegmentId) -> Option<LockToken> {
        if self.is_empty() { None } else { self.token_of(client, segment, None) }
    }

    /// Returns the token that a get at `offset` carries: that of the segment, else that of the last locked row that begins
    /// there or before. The home ignores the token of another row, so the size of the rows does not matter.
    pub(crate) fn token_for(&self, client: ClientId, segment: SegmentId, offset: u64) -> Option<LockToken> {
        let (first, last) =
            ((client, segment, Some(0), LockToken(0)), (client, segment, Some(offset), LockToken(u64::MAX)));
        let of_row = || self.clients.range(first..=last).next_back().map(|&(.., token)| token);
        self.token_of_segment(client, segment).or_else(of_row)
    }

    /// Returns true if this client holds the lock of the segment, or of the row that begins at that offset.
    pub(crate) fn is_held_by(&self, client: ClientId, segment: SegmentId, row_offset: Option<u64>) -> bool {
        let holds = |row_offset| self.token_of(client, segment, row_offset).is_some();
        holds(None) || row_offset.is_some() && holds(row_offset)
    }

    /// Returns true if this client holds that grant.
    pub(crate) fn contains(&self, client: ClientId, segment: SegmentId, token: LockToken) -> bool {
        self.locks.get(&(segment, token)).is_some_and(|lock| lock.client == client)
    }

    /// Records a later end of the lease.
    pub(crate) fn extend(&mut self, segment: SegmentId, token: LockToken, until_us: u64) {
        let lock = self.locks.get(&(segment, token)).filter(|lock| lock.until_us < until_us).copied();
        if let Some(lock) = lock {
            self.add(RemoteLock { until_us, ..lock });
        }
    }

    /// Removes a grant.
    pub(crate) fn remove(&mut self, segment: SegmentId, token: LockToken) -> Option<RemoteLock> {
        let lock = self.locks.remove(&(segment, token))?;
        self.clients.remove(&(lock.client, segment, lock.row_offset, token));
        self.leases.remove(&(lock.until_us, segment, token));
        assert!(
            self.clients.len() == self.locks.len() && self.leases.len() == self.locks.len(),
            "each lock has a lease"
        );
        Some(lock)
    }

    fn remove_all(&mut self, which: impl Fn(&RemoteLock) -> bool) {
        let found: Vec<_> = self.locks.iter().filter(|(_, lock)| which(lock)).map(|(&key, _)| key).collect();
        for (segment, token) in found {
            self.remove(segment, token);
        }
    }

    /// Removes the locks of a segment whose home has changed.
    pub(crate) fn remove_segment(&mut self, segment: SegmentId) {
        self.remove_all(|lock| lock.segment == segment);
    }

    /// Removes the locks of a home that is gone.
    pub(crate) fn remove_home(&mut self, home: NodeId) {
        self.remove_all(|lock| lock.home == home);
    }

    /// Takes the locks of a client that is gone.
    pub(crate) fn take_client(&mut self, client: ClientId) -> Vec<RemoteLock> {
        let first = (client, SegmentId::from_bits(0), None, LockToken(0));
        let own = self.clients.range(first..).take_while(|(owner, ..)| *owner == client);
        let keys: Vec<_> = own.map(|&(_, segment, _, token)| (segment, token)).collect();
        keys.into_iter().filter_map(|(segment, token)| self.remove(segment, token)).collect()
    }

    /// Removes the locks whose lease has ended.
    pub(crate) fn expire(&mut self, now_us: u64) {
        while let Some(&(_, segment, token)) = self.leases.first().filter(|&&(until_us, ..)| until_us <= now_us) {
            self.remove(segment, token);
        }
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
            row_offset: None,
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
        assert_eq!(locks.token_of_segment(client(1), id(2, 1)), Some(LockToken(1)), "its lease was renewed");
        locks.expire(12);
        assert_eq!(locks.token_of_segment(client(1), id(2, 1)), None);
        locks.remove_home(NodeId(2));
        locks.remove_segment(id(3, 3));
        locks.remove(id(2, 4), LockToken(4));
        assert_eq!(
            locks.token_of_segment(client(2), id(3, 4)),
            Some(LockToken(4)),
            "another home's lock has this token"
        );
        assert_eq!(locks.take_client(client(2)), [all[3]]);
        assert_eq!(locks.take_client(client(3)), [all[4]]);
    }

    #[test]
    fn locks_of_rows_are_found_by_row_and_by_the_offset_of_a_get() {
        // If this broke, a holder's get would wait for its own lock, or its put would wait instead of being refused.
        let (segment, home) = (SegmentId::new(NodeId(2), 1, 1), NodeId(2));
        let [mine, other] = [1, 2].map(|index| ClientId { index, generation: 1 });
        let mut locks = RemoteLocks::default();
        for (client, row_offset, token) in [(mine, Some(0), 1), (mine, Some(64), 2), (other, Some(32), 3)] {
            locks.add(RemoteLock { segment, row_offset, home, token: LockToken(token), client, until_us: 10 });
        }
        let token_for = |locks: &RemoteLocks, offset| locks.token_for(mine, segment, offset).map(|token| token.0);
        assert_eq!([0, 31, 64, 95, 200].map(|offset| token_for(&locks, offset)), [1, 1, 2, 2, 2].map(Some));
        assert_eq!(locks.token_of_segment(mine, segment), None, "it holds rows only");
        assert_eq!([0, 32, 64].map(|row| locks.is_held_by(mine, segment, Some(row))), [true, false, true]);
        assert!(!locks.is_held_by(mine, segment, None));
        locks.remove(segment, LockToken(1));
        assert_eq!((token_for(&locks, 0), token_for(&locks, 64)), (None, Some(2)));
        let whole = RemoteLock { segment, row_offset: None, home, token: LockToken(9), client: mine, until_us: 10 };
        locks.add(whole);
        assert_eq!((token_for(&locks, 64), locks.is_held_by(mine, segment, Some(32))), (Some(9), true));
        assert_eq!(locks.take_client(mine).len(), 2);
        locks.expire(10);
        assert!(locks.is_empty() && locks.clients.is_empty() && locks.leases.is_empty());
    }
}
