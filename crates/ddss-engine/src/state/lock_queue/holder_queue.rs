//! Holders of one lock, of a segment or of a row, and the operations that wait behind them.

use super::wait_list::WaitList;
use super::waiter::{Get, Holder, PendingOp, Waiter};
use crate::requester::{LockOwner, Requester};
use ddss_core::limits::HOLDERS_PER_SEGMENT_MAX;
use ddss_core::{Limit, LockDependency, LockToken, PutConditions};

/// Holders of one lock, and waiters in the order of their arrival.
#[derive(Debug)]
pub(super) struct HolderQueue {
    pub(super) holders: Vec<Holder>,
    pub(super) waiters: WaitList<Waiter>,
}

impl HolderQueue {
    pub(super) const fn new() -> Self {
        Self { holders: Vec::new(), waiters: WaitList::new() }
    }

    /// Returns true if no client holds the lock or waits for it.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }

    /// Returns when a lease or a wait ends.
    pub(super) fn due_us(&self) -> Option<u64> {
        let leases = self.holders.iter().map(|holder| holder.until_us);
        leases.chain(self.waiters.next_deadline_us()).min()
    }

    /// Returns the exclusive holder.
    pub(super) fn exclusive(&self) -> Option<&Holder> {
        self.holders.iter().find(|holder| !holder.shared)
    }

    /// Returns true if that exclusive grant is in force and belongs to the caller. The owner is checked because every
    /// reader of the header sees the token.
    pub(super) fn admits(&self, token: LockToken, owner: LockOwner, now_us: u64) -> bool {
        let admits = |holder: &Holder| holder.token == token && holder.owner == owner && !holder.shared;
        self.holders.iter().any(|holder| admits(holder) && holder.until_us > now_us)
    }

    /// Returns true if that grant is in force, belongs to the caller, and is a shared one.
    pub(super) fn is_shared_grant(&self, token: LockToken, owner: LockOwner, now_us: u64) -> bool {
        let is_it = |holder: &Holder| holder.token == token && holder.owner == owner && holder.shared;
        self.holders.iter().any(|holder| is_it(holder) && holder.until_us > now_us)
    }

    /// Returns true if holders, or waiters in front, delay an operation. `depends_on_lock` is whether its coherence model
    /// makes it depend on the lock.
    pub(super) fn delays(&self, op: &PendingOp, owner: LockOwner, depends_on_lock: bool) -> bool {
        match op {
            PendingOp::Get(get) => self.blocks_get(get, owner),
            PendingOp::Lock(lock_request) if lock_request.shared => {
                self.exclusive().is_some() || !self.waiters.is_empty()
            }
            PendingOp::Lock(_) => !self.is_empty(),
            PendingOp::Put { .. } | PendingOp::Atomic { .. } => depends_on_lock && !self.holders.is_empty(),
        }
    }

    /// Returns true if a holder blocks the get. A local client is recognised as the holder by itself, a client of
    /// another node by its token.
    pub(super) fn blocks_get(&self, get: &Get, owner: LockOwner) -> bool {
        let own = |holder: &Holder| {
            Some(holder.token) == get.token || matches!(owner, LockOwner::Client(_)) && holder.owner == owner
        };
        match get.lock_dependency {
            LockDependency::None => false,
            LockDependency::Exclusive => self.holders.iter().any(|holder| !holder.shared && !own(holder)),
            LockDependency::Any => self.holders.iter().any(|holder| !own(holder)),
        }
    }

    /// Returns true if this local client holds the lock, exclusively or shared.
    pub(super) fn is_held_by(&self, owner: LockOwner) -> bool {
        matches!(owner, LockOwner::Client(_)) && self.holders.iter().any(|holder| holder.owner == owner)
    }

    /// Takes the first waiter, if the holders let it run. The lock dependency of a put or get was checked when it was
    /// queued.
    pub(super) fn pop_ready(&mut self) -> Option<Waiter> {
        let first = self.waiters.first()?;
        let ready = match first.op {
            PendingOp::Lock(lock_request) if lock_request.shared => self.exclusive().is_none(),
            PendingOp::Get(get) => !self.blocks_get(&get, first.requester.owner()),
            PendingOp::Put { conditions: PutConditions { token: Some(_), .. }, .. }
            | PendingOp::Atomic { token: Some(_), .. } => true,
            PendingOp::Lock(_) | PendingOp::Put { .. } | PendingOp::Atomic { .. } => self.holders.is_empty(),
        };
        if ready { self.waiters.pop_first() } else { None }
    }

    /// Takes the first get that no holder blocks, whatever waits in front of it.
    pub(super) fn pop_get(&mut self) -> Option<Waiter> {
        let can_run = |waiter: &Waiter| match &waiter.op {
            PendingOp::Get(get) => !self.blocks_get(get, waiter.requester.owner()),
            _ => false,
        };
        let number = self.waiters.iter().find(|(_, waiter)| can_run(waiter))?.0;
        self.waiters.remove(number)
    }

    /// Records a grant; an error if there are too many.
    pub(super) fn grant(&mut self, holder: Holder) -> Result<(), Limit> {
        let is_free = self.holders.is_empty() || holder.shared && self.exclusive().is_none();
        assert!(is_free, "an exclusive holder is alone");
        if self.holders.len() == HOLDERS_PER_SEGMENT_MAX {
            return Err(Limit::Holders);
        }
        self.holders.push(holder);
        assert!(holder.shared || self.holders.len() <= 1, "an exclusive holder stays alone");
        Ok(())
    }

    /// Releases a grant; `false` if it is not in force.
    pub(super) fn release(&mut self, token: LockToken, owner: LockOwner) -> bool {
        let before = self.holders.len();
        self.holders.retain(|holder| holder.token != token || holder.owner != owner);
        assert!(self.holders.len() + 1 >= before, "a token is given once");
        self.holders.len() < before
    }

    /// Extends a grant that is in force; `false` if it is not, or belongs to another owner. An earlier end is ignored,
    /// so that a renewal that arrives late takes nothing away.
    pub(super) fn renew(&mut self, token: LockToken, owner: LockOwner, now_us: u64, until_us: u64) -> bool {
        let is_it = |holder: &&mut Holder| holder.token == token && holder.owner == owner && holder.until_us > now_us;
        let Some(holder) = self.holders.iter_mut().find(is_it) else { return false };
        holder.until_us = holder.until_us.max(until_us);
        true
    }

    /// Removes all grants and waiters of an owner; returns the waiters.
    pub(super) fn remove_owner(&mut self, owner: LockOwner) -> Vec<Waiter> {
        self.holders.retain(|holder| holder.owner != owner);
        let numbers = self.waiters.of_owner(owner);
        numbers.into_iter().filter_map(|number| self.waiters.remove(number)).collect()
    }

    /// Expires leases; returns true if one ended.
    pub(super) fn expire_leases(&mut self, now_us: u64) -> bool {
        let before = self.holders.len();
        self.holders.retain(|holder| holder.until_us > now_us);
        self.holders.len() < before
    }

    /// Takes a waiter whose deadline has passed.
    pub(super) fn pop_expired(&mut self, now_us: u64) -> Option<Waiter> {
        self.waiters.remove(self.waiters.expired(now_us)?)
    }

    /// Removes the waiter of that requester.
    pub(super) fn take_waiter(&mut self, requester: Requester) -> Option<Waiter> {
        self.waiters.remove(self.waiters.find(requester)?)
    }

    /// Takes the waiters for the lock, or (`all`) all waiters.
    pub(super) fn drain_blocked(&mut self, all: bool) -> Vec<Waiter> {
        let ends = |waiter: &Waiter| all || matches!(waiter.op, PendingOp::Lock(_));
        let numbers: Vec<u64> =
            self.waiters.iter().filter(|(_, waiter)| ends(waiter)).map(|(number, _)| number).collect();
        numbers.into_iter().filter_map(|number| self.waiters.remove(number)).collect()
    }
}
