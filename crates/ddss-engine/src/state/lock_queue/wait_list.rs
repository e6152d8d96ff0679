//! A list of waits in order of arrival. Each wait is found by its requester and by its deadline in logarithmic time.

use crate::requester::{LockOwner, Requester};
use std::collections::{BTreeMap, BTreeSet};

/// An entry of a [`WaitList`].
pub(crate) trait Wait: Copy {
    fn requester(&self) -> Requester;
    fn deadline_us(&self) -> u64;
}

/// Waits, each under the number of its arrival.
#[derive(Debug)]
pub(crate) struct WaitList<W> {
    waits: BTreeMap<u64, W>,
    deadlines: BTreeSet<(u64, u64)>,
    requesters: BTreeSet<(Requester, u64)>,
    arrivals: u64,
}

impl<W: Wait> WaitList<W> {
    /// Makes an empty list, which takes no memory of its own.
    pub(crate) const fn new() -> Self {
        Self { waits: BTreeMap::new(), deadlines: BTreeSet::new(), requesters: BTreeSet::new(), arrivals: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waits.len()
    }

    /// Appends a wait and returns its number.
    pub(crate) fn push(&mut self, wait: W) -> u64 {
        let number = self.arrivals;
        self.arrivals += 1;
        self.waits.insert(number, wait);
        self.deadlines.insert((wait.deadline_us(), number));
        self.requesters.insert((wait.requester(), number));
        number
    }

    /// Returns the first wait.
    pub(crate) fn first(&self) -> Option<&W> {
        self.waits.values().next()
    }

    /// Returns all waits in order, with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &W)> {
        self.waits.iter().map(|(&number, wait)| (number, wait))
    }

    /// Removes a wait.
    pub(crate) fn remove(&mut self, number: u64) -> Option<W> {
        let wait = self.waits.remove(&number)?;
        self.deadlines.remove(&(wait.deadline_us(), number));
        self.requesters.remove(&(wait.requester(), number));
        assert!(self.deadlines.len() == self.waits.len(), "each wait has one deadline");
        Some(wait)
    }

    /// Removes the first wait.
    pub(crate) fn pop_first(&mut self) -> Option<W> {
        let number = *self.waits.keys().next()?;
        self.remove(number)
    }

    /// Returns the earliest deadline.
    pub(crate) fn next_deadline_us(&self) -> Option<u64> {
        self.deadlines.first().map(|&(deadline_us, _)| deadline_us)
    }

    /// Returns the number of a wait whose deadline has passed.
    pub(crate) fn expired(&self, now_us: u64) -> Option<u64> {
        self.deadlines.first().filter(|&&(deadline_us, _)| deadline_us <= now_us).map(|&(_, number)| number)
    }

    /// Returns the number of the first wait of a requester.
    pub(crate) fn find(&self, requester: Requester) -> Option<u64> {
        self.requesters.range((requester, 0)..=(requester, u64::MAX)).next().map(|&(_, number)| number)
    }

    /// Returns the numbers of all waits of an owner.
    pub(crate) fn of_owner(&self, owner: LockOwner) -> Vec<u64> {
        let (first, last) = owner.requesters();
        self.requesters.range((first, 0)..=(last, u64::MAX)).map(|&(_, number)| number).collect()
    }

    /// Removes all waits.
    pub(crate) fn drain(&mut self) -> Vec<W> {
        self.deadlines.clear();
        self.requesters.clear();
        std::mem::take(&mut self.waits).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::{ChannelId, ClientId, NodeId, RequestId};

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct Plain(Requester, u64);

    impl Wait for Plain {
        fn requester(&self) -> Requester {
            self.0
        }
        fn deadline_us(&self) -> u64 {
            self.1
        }
    }

    #[test]
    fn waits_are_found_by_order_deadline_requester_and_owner() {
        // If this broke, a wait would miss its deadline, or survive its client.
        let client = |index, request| {
            let channel = ChannelId { client: ClientId { index, generation: 1 }, index: (request % 3) as u8 };
            Requester::Client(channel, RequestId(request))
        };
        let mut list = WaitList::new();
        for request in 0..30 {
            list.push(Plain(client(request as u32 % 2, request), 1000 - request));
        }
        list.push(Plain(Requester::Peer(NodeId(7), 4), 5));
        list.push(Plain(Requester::Peer(NodeId(7), 4), 6));
        assert_eq!((list.expired(4), list.expired(5), list.next_deadline_us()), (None, Some(30), Some(5)));
        assert_eq!(list.find(Requester::Peer(NodeId(7), 4)), Some(30));
        assert_eq!(list.remove(30), Some(Plain(Requester::Peer(NodeId(7), 4), 5)));
        assert_eq!((list.find(Requester::Peer(NodeId(7), 4)), list.remove(30)), (Some(31), None));
        let first = LockOwner::Client(ClientId { index: 0, generation: 1 });
        assert_eq!(list.of_owner(first).len(), 15);
        for number in list.of_owner(first) {
            list.remove(number);
        }
        assert_eq!((list.len(), list.first().map(|wait| wait.1)), (16, Some(999)));
        assert_eq!(list.pop_first().map(|wait| wait.1), Some(999));
        assert_eq!((list.drain().len(), list.is_empty(), list.next_deadline_us()), (15, true, None));
    }
}
