//! Locks of single rows of a table. A row has a queue here only while a client holds its lock or waits for it.

use super::holder_queue::HolderQueue;
use super::waiter::{Holder, Waiter};
use crate::requester::{LockOwner, Requester};
use ddss_core::{Limit, LockToken};
use std::collections::{BTreeMap, BTreeSet};

/// Queue of one row, with the time under which it stands in the schedule.
#[derive(Debug)]
struct RowQueue {
    queue: HolderQueue,
    due_us: Option<u64>,
}

impl RowQueue {
    const fn new() -> Self {
        Self { queue: HolderQueue::new(), due_us: None }
    }
}

/// Locks of the rows of one table. A grant is found by its token or owner and a waiter by its requester, so that neither
/// costs more beside many other locked rows.
#[derive(Debug, Default)]
pub(super) struct RowLocks {
    queues: BTreeMap<u64, RowQueue>,
    tokens: BTreeMap<LockToken, u64>,
    owners: BTreeSet<(LockOwner, LockToken)>,
    requesters: BTreeSet<(Requester, u64)>,
    /// Rows by the time when a lease or a wait ends.
    due: BTreeSet<(u64, u64)>,
    /// Rows whose first waiter may be able to run.
    unserved: BTreeSet<u64>,
    /// Rows of which no get can run, while nothing but gets may.
    gated: BTreeSet<u64>,
    exclusive: usize,
    waiting: usize,
}

impl RowLocks {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Returns the number of holders of all rows.
    pub(super) fn holders(&self) -> usize {
        self.tokens.len()
    }

    /// Returns the number of operations that wait for rows.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns true if a row is locked exclusively.
    pub(super) fn has_exclusive(&self) -> bool {
        self.exclusive > 0
    }

    /// Returns when the first lease or wait ends.
    pub(super) fn due_us(&self) -> Option<u64> {
        self.due.first().map(|&(due_us, _)| due_us)
    }

    /// Returns the queue of a row, if it has one.
    pub(super) fn queue(&self, row: u64) -> Option<&HolderQueue> {
        self.queues.get(&row).map(|row| &row.queue)
    }

    /// Changes the queue of a row, and what depends on it but the indexes of grants and requesters. A queue that is idle
    /// afterwards is removed.
    fn change<T>(&mut self, row: u64, change: impl FnOnce(&mut HolderQueue) -> T) -> T {
        let RowQueue { queue, due_us } = self.queues.entry(row).or_insert_with(RowQueue::new);
        let (was_exclusive, waited) = (queue.exclusive().is_some(), queue.waiters.len());
        let result = change(queue);
        self.exclusive = self.exclusive + usize::from(queue.exclusive().is_some()) - usize::from(was_exclusive);
        self.waiting = self.waiting + queue.waiters.len() - waited;
        if let Some(due_us) = due_us.take() {
            self.due.remove(&(due_us, row));
        }
        *due_us = queue.due_us();
        self.due.extend(due_us.map(|due_us| (due_us, row)));
        self.gated.remove(&row);
        if queue.waiters.is_empty() {
            self.unserved.remove(&row);
        } else {
            self.unserved.insert(row);
        }
        if queue.is_empty() {
            self.queues.remove(&row);
        }
        result
    }

    /// Removes the grants of a row for which `ends` is true from the indexes: the caller removes them from the queue.
    fn forget_holders(&mut self, row: u64, ends: impl Fn(&Holder) -> bool) {
        let holders = self.queues.get(&row).map_or(&[][..], |row| &row.queue.holders);
        for holder in holders.iter().filter(|holder| ends(holder)) {
            self.tokens.remove(&holder.token);
            self.owners.remove(&(holder.owner, holder.token));
        }
        assert!(self.tokens.len() == self.owners.len(), "each grant has one owner");
    }

    /// Drops the entry of a waiter that has left the queue of a row.
    fn forget_requester(&mut self, requester: Requester, row: u64) {
        let waits_again = self.queue(row).is_some_and(|queue| queue.waiters.find(requester).is_some());
        if !waits_again {
            self.requesters.remove(&(requester, row));
        }
    }

    /// Appends to the queue of a row.
    pub(super) fn enqueue(&mut self, row: u64, waiter: Waiter) {
        self.requesters.insert((waiter.requester, row));
        self.change(row, |queue| queue.waiters.push(waiter));
    }

    /// Takes the first of the queue of a row, if it may run now. With `only_gets`, all other operations have to wait.
    pub(super) fn next_ready(&mut self, only_gets: bool) -> Option<Waiter> {
        if !only_gets {
            self.unserved.append(&mut self.gated);
        }
        while let Some(&row) = self.unserved.first() {
            let ready = self.change(row, |queue| if only_gets { queue.pop_get() } else { queue.pop_ready() });
            if let Some(waiter) = ready {
                self.forget_requester(waiter.requester, row);
                return Some(waiter);
            }
            // It is served again when a holder or a waiter of this row goes, or when all operations may run.
            self.unserved.remove(&row);
            if only_gets {
                self.gated.insert(row);
            }
        }
        None
    }

    /// Records a grant; an error if the row has too many.
    pub(super) fn grant(&mut self, row: u64, holder: Holder) -> Result<(), Limit> {
        self.change(row, |queue| queue.grant(holder))?;
        self.tokens.insert(holder.token, row);
        self.owners.insert((holder.owner, holder.token));
        Ok(())
    }

    /// Releases a grant; `false` if it is not in force.
    pub(super) fn release(&mut self, token: LockToken, owner: LockOwner) -> bool {
        if !self.owners.remove(&(owner, token)) {
            return false;
        }
        let row = self.tokens.remove(&token).expect("each grant has a row");
        self.change(row, |queue| queue.release(token, owner))
    }

    /// Extends a grant that is in force; `false` if it is not.
    pub(super) fn renew(&mut self, token: LockToken, owner: LockOwner, now_us: u64, until_us: u64) -> bool {
        let Some(&row) = self.tokens.get(&token) else { return false };
        self.change(row, |queue| queue.renew(token, owner, now_us, until_us))
    }

    /// Changes all queues.
    fn change_all(&mut self, mut change: impl FnMut(&mut HolderQueue)) {
        let rows: Vec<u64> = self.queues.keys().copied().collect();
        rows.into_iter().for_each(|row| self.change(row, &mut change));
    }

    /// Releases all grants.
    pub(super) fn release_all(&mut self) {
        self.tokens.clear();
        self.owners.clear();
        self.change_all(|queue| queue.holders.clear());
    }

    /// Removes all grants and waiters of an owner; returns the waiters.
    pub(super) fn remove_owner(&mut self, owner: LockOwner) -> Vec<Waiter> {
        let grants = self.owners.range((owner, LockToken(0))..=(owner, LockToken(u64::MAX)));
        let held = grants.filter_map(|(_, token)| self.tokens.get(token).copied());
        let (first, last) = owner.requesters();
        let waits: Vec<_> = self.requesters.range((first, 0)..=(last, u64::MAX)).copied().collect();
        let rows: BTreeSet<u64> = held.chain(waits.iter().map(|&(_, row)| row)).collect();
        let mut removed = Vec::new();
        for row in rows {
            self.forget_holders(row, |holder| holder.owner == owner);
            removed.extend(self.change(row, |queue| queue.remove_owner(owner)));
        }
        waits.iter().for_each(|wait| _ = self.requesters.remove(wait));
        removed
    }

    /// Returns the rows for which a time has passed.
    fn due_rows(&self, now_us: u64) -> impl Iterator<Item = u64> {
        self.due.iter().take_while(move |&&(due_us, _)| due_us <= now_us).map(|&(_, row)| row)
    }

    /// Expires leases; returns true if one ended.
    pub(super) fn expire_leases(&mut self, now_us: u64) -> bool {
        let before = self.tokens.len();
        for row in self.due_rows(now_us).collect::<Vec<_>>() {
            self.forget_holders(row, |holder| holder.until_us <= now_us);
            self.change(row, |queue| queue.expire_leases(now_us));
        }
        self.tokens.len() < before
    }

    /// Takes a waiter whose deadline has passed. Leases have expired before, so nearly every due row has one.
    pub(super) fn next_expired_waiter(&mut self, now_us: u64) -> Option<Waiter> {
        let has_expired = |row: &u64| self.queue(*row).is_some_and(|queue| queue.waiters.expired(now_us).is_some());
        let row = self.due_rows(now_us).find(has_expired)?;
        let waiter = self.change(row, |queue| queue.pop_expired(now_us))?;
        self.forget_requester(waiter.requester, row);
        Some(waiter)
    }

    /// Removes the waiter of that requester.
    pub(super) fn take_waiter(&mut self, requester: Requester) -> Option<Waiter> {
        let &(_, row) = self.requesters.range((requester, 0)..=(requester, u64::MAX)).next()?;
        let waiter = self.change(row, |queue| queue.take_waiter(requester));
        self.forget_requester(requester, row);
        waiter
    }

    /// Takes the waiters for locks, or (`all`) all waiters.
    pub(super) fn drain_blocked(&mut self, all: bool) -> Vec<Waiter> {
        let mut removed = Vec::new();
        self.change_all(|queue| removed.extend(queue.drain_blocked(all)));
        let (queues, requesters) = (&self.queues, &mut self.requesters);
        requesters.retain(|&(requester, row)| {
            queues.get(&row).is_some_and(|row| row.queue.waiters.find(requester).is_some())
        });
        removed
    }
}
