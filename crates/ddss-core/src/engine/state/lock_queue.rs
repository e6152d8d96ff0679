//! Lock queue of a segment: holders of the lock, waiters behind it, and watchers of a newer version.
//!
//! There is one queue, in order of arrival. Puts, atomics and (under Strict and Read) gets that find the lock held by
//! another client wait in the same queue as lock requests. A call under the lock waits for no other caller.

use crate::Version;
use crate::engine::action::{CommitSource, RangeSet};
use crate::engine::requester::{LockOwner, Requester};
use crate::limits::{HOLDERS_PER_SEGMENT_MAX, WAITERS_PER_SEGMENT_MAX};
use crate::model::coherence::LockDependency;
use crate::model::segment::Principal;
use crate::request::operation::{ArenaRange, AtomicOp, LockRequest, LockToken, PutConditions};
use std::collections::BTreeSet;

mod wait_list;

use wait_list::{Wait, WaitList};

/// Operation on a segment at home here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PendingOp {
    Get(Get),
    Put { parts: RangeSet, source: CommitSource, conditions: PutConditions },
    Atomic { offset: u64, change: AtomicOp, token: Option<LockToken> },
    Lock(LockRequest),
}

/// Get as executed by its home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Get {
    pub(crate) parts: RangeSet,
    pub(crate) sink: Destination,
    pub(crate) lock_dependency: LockDependency,
    pub(crate) version: Option<Version>,
    /// Lock that the requester holds: its own gets do not wait for it.
    pub(crate) token: Option<LockToken>,
}

/// Destination of the bytes of a get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Destination {
    /// Arena of a client of this node.
    Arena(ArenaRange),
    /// The completion.
    Inline,
    /// The node that asked.
    Peer,
}

/// Queued operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiter {
    pub(crate) requester: Requester,
    pub(crate) principal: Principal,
    pub(crate) op: PendingOp,
    pub(crate) deadline_us: u64,
}

/// Holder of the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Holder {
    pub(crate) token: LockToken,
    pub(crate) owner: LockOwner,
    pub(crate) shared: bool,
    pub(crate) until_us: u64,
}

/// Watcher of the version of a segment, or of a row of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Watcher {
    pub(crate) requester: Requester,
    /// Row of a table; 0 for a plain segment.
    pub(crate) row: u64,
    pub(crate) above: Version,
    pub(crate) deadline_us: u64,
}

impl Wait for Waiter {
    fn requester(&self) -> Requester {
        self.requester
    }
    fn deadline_us(&self) -> u64 {
        self.deadline_us
    }
}

impl Wait for Watcher {
    fn requester(&self) -> Requester {
        self.requester
    }
    fn deadline_us(&self) -> u64 {
        self.deadline_us
    }
}

/// Watchers, found by row and version as well: a put costs the same beside any number of watchers of other rows and of
/// later versions.
#[derive(Debug)]
struct Watchers {
    list: WaitList<Watcher>,
    versions: BTreeSet<(u64, Version, u64)>,
}

impl Watchers {
    fn push(&mut self, watcher: Watcher) {
        let number = self.list.push(watcher);
        self.versions.insert((watcher.row, watcher.above, number));
    }

    fn remove(&mut self, number: u64) -> Option<Watcher> {
        let watcher = self.list.remove(number)?;
        self.versions.remove(&(watcher.row, watcher.above, number));
        Some(watcher)
    }

    /// Takes a watcher of that row whose version is reached.
    fn take_satisfied(&mut self, row: u64, version: Version) -> Option<Watcher> {
        let &(.., number) = self.versions.range((row, Version(0), 0)..(row, version, 0)).next()?;
        self.remove(number)
    }

    fn drain(&mut self) -> Vec<Watcher> {
        self.versions.clear();
        self.list.drain()
    }
}

/// Waiters and watchers of one segment.
#[derive(Debug)]
struct Waits {
    waiters: WaitList<Waiter>,
    watchers: Watchers,
}

impl Waits {
    const fn new() -> Self {
        Self { waiters: WaitList::new(), watchers: Watchers { list: WaitList::new(), versions: BTreeSet::new() } }
    }
}

static NO_WAITS: Waits = Waits::new();

/// Lock, queue and watchers of one segment.
#[derive(Debug, Default)]
pub(crate) struct LockQueue {
    holders: Vec<Holder>,
    /// Most segments never have a waiter or a watcher: without one they take no memory for it.
    waits: Option<Box<Waits>>,
    /// An atomic reads its word: no other operation may run before it is done.
    is_reading_word: bool,
    /// No operation may run here: this node may have lost the home role.
    is_suspended: bool,
    /// Only gets may run: a put is on its way to the replica.
    puts_blocked: bool,
    /// Only gets may run: the segment is being moved.
    is_moving: bool,
    /// No operation may run: the daemon writes a large value, slice after slice.
    is_committing: bool,
}

impl LockQueue {
    fn waits(&self) -> &Waits {
        self.waits.as_deref().unwrap_or(&NO_WAITS)
    }

    fn waits_mut(&mut self) -> &mut Waits {
        self.waits.get_or_insert_with(|| Box::new(Waits::new()))
    }

    fn remove_waiter(&mut self, number: u64) -> Option<Waiter> {
        self.waits.as_mut()?.waiters.remove(number)
    }

    fn remove_watcher(&mut self, number: u64) -> Option<Watcher> {
        self.waits.as_mut()?.watchers.remove(number)
    }

    /// Returns true if no timeout and no client's end matters here.
    pub(crate) fn is_idle(&self) -> bool {
        self.holders.is_empty()
            && self.waits.as_ref().is_none_or(|waits| waits.waiters.is_empty() && waits.watchers.list.is_empty())
            && !self.puts_blocked
            && !self.is_moving
            && !self.is_committing
    }

    /// Returns when time alone has an effect here, on the steady clock: the end of a lease or of a wait. Returns 0
    /// while operations are blocked, since that is checked again on each tick.
    pub(crate) fn due_us(&self) -> u64 {
        if self.blocks_puts() {
            return 0;
        }
        let (leases, waits) = (self.holders.iter().map(|holder| holder.until_us), self.waits());
        let waits = [waits.waiters.next_deadline_us(), waits.watchers.list.next_deadline_us()];
        leases.chain(waits.into_iter().flatten()).min().unwrap_or(u64::MAX)
    }

    /// Returns true if no holder, waiter, watcher or block affects a new operation.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.is_idle() && !self.is_reading_word && !self.is_suspended
    }

    /// Sets which operations have to wait for the cluster or for the replica.
    pub(crate) fn set_gate(&mut self, is_suspended: bool, puts_blocked: bool) {
        (self.is_suspended, self.puts_blocked) = (is_suspended, puts_blocked);
    }

    /// Returns true if no put may run, whatever the holders.
    pub(crate) fn blocks_puts(&self) -> bool {
        self.puts_blocked || self.is_moving || self.blocks_all()
    }

    /// Returns true if this node may have lost the home role.
    pub(crate) fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    /// Returns true if no operation may run, whatever the holders.
    #[inline]
    fn blocks_all(&self) -> bool {
        self.is_suspended || self.is_reading_word || self.is_committing
    }

    /// Blocks all other operations until a large value is committed.
    pub(crate) fn begin_commit(&mut self) {
        assert!(!self.is_committing, "a segment gets one version at a time");
        self.is_committing = true;
    }

    /// Ends the block of [`begin_commit`](Self::begin_commit).
    pub(crate) fn end_commit(&mut self) {
        assert!(self.is_committing, "a commit is begun before it ends");
        self.is_committing = false;
    }

    /// Returns true while the daemon works on the segment's memory, which has to stay where it is.
    pub(crate) fn is_memory_busy(&self) -> bool {
        self.is_moving || self.is_committing
    }

    /// Blocks all other operations until an atomic has its word.
    pub(crate) fn begin_word_read(&mut self) {
        assert!(!self.is_reading_word, "one atomic at a time reads its word");
        self.is_reading_word = true;
    }

    /// Ends the block of [`begin_word_read`](Self::begin_word_read).
    pub(crate) fn end_word_read(&mut self) {
        assert!(self.is_reading_word, "a word is read before it is changed");
        self.is_reading_word = false;
    }

    /// Blocks all but gets until the segment is in its new place.
    pub(crate) fn begin_move(&mut self) {
        assert!(!self.is_moving, "a segment is moved to one place at a time");
        self.is_moving = true;
    }

    /// Ends the block of [`begin_move`](Self::begin_move).
    pub(crate) fn end_move(&mut self) {
        assert!(self.is_moving, "a move is begun before it ends");
        self.is_moving = false;
    }

    /// Returns true if the lock is held exclusively.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.holders.iter().any(|holder| !holder.shared)
    }

    /// Returns true if that exclusive grant is in force and belongs to the caller. The owner is checked because every
    /// reader of the header sees the token.
    pub(crate) fn admits(&self, token: LockToken, owner: LockOwner, now_us: u64) -> bool {
        let admits = |holder: &Holder| holder.token == token && holder.owner == owner && !holder.shared;
        self.holders.iter().any(|holder| admits(holder) && holder.until_us > now_us)
    }

    /// Returns true if the operation has to be queued. `depends` is whether its coherence model makes it depend on the
    /// lock.
    pub(crate) fn must_wait(&self, op: &PendingOp, owner: LockOwner, depends_on_lock: bool) -> bool {
        if self.blocks_all() {
            return true;
        }
        match op {
            PendingOp::Get(get) => self.is_blocked(get, owner),
            _ if self.puts_blocked || self.is_moving => true,
            PendingOp::Lock(lock_request) if lock_request.shared => {
                self.is_exclusive() || !self.waits().waiters.is_empty()
            }
            PendingOp::Lock(_) => !self.holders.is_empty() || !self.waits().waiters.is_empty(),
            PendingOp::Put { .. } | PendingOp::Atomic { .. } => depends_on_lock && !self.holders.is_empty(),
        }
    }

    /// Returns true if a holder blocks the get. A local client is recognised as the holder by itself, a client of
    /// another node by its token.
    fn is_blocked(&self, get: &Get, owner: LockOwner) -> bool {
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
    pub(crate) fn is_held_by(&self, owner: LockOwner) -> bool {
        matches!(owner, LockOwner::Client(_)) && self.holders.iter().any(|holder| holder.owner == owner)
    }

    /// Returns the number of holders.
    pub(crate) fn holders(&self) -> usize {
        self.holders.len()
    }

    /// Returns the number of queued operations.
    pub(crate) fn waiting(&self) -> usize {
        self.waits().waiters.len()
    }

    /// Appends to the queue; `false` if it is full.
    pub(crate) fn enqueue(&mut self, waiter: Waiter) -> bool {
        let has_room = self.waiting() < WAITERS_PER_SEGMENT_MAX;
        if has_room {
            self.waits_mut().waiters.push(waiter);
        }
        has_room
    }

    /// Takes the first of the queue, if it may run now. The lock dependency of a put or get was checked when it was
    /// queued.
    pub(crate) fn next_ready(&mut self) -> Option<Waiter> {
        if self.blocks_all() {
            return None;
        }
        if self.puts_blocked || self.is_moving {
            return self.next_get();
        }
        let first = self.waits().waiters.first()?;
        let ready = match first.op {
            PendingOp::Lock(lock_request) if lock_request.shared => !self.is_exclusive(),
            PendingOp::Get(get) => !self.is_blocked(&get, first.requester.owner()),
            PendingOp::Put { conditions: PutConditions { token: Some(_), .. }, .. }
            | PendingOp::Atomic { token: Some(_), .. } => true,
            PendingOp::Lock(_) | PendingOp::Put { .. } | PendingOp::Atomic { .. } => self.holders.is_empty(),
        };
        if ready { self.waits.as_mut()?.waiters.pop_first() } else { None }
    }

    /// Takes the first get of the queue that only a forwarded put delays.
    fn next_get(&mut self) -> Option<Waiter> {
        let can_run = |waiter: &Waiter| match &waiter.op {
            PendingOp::Get(get) => !self.is_blocked(get, waiter.requester.owner()),
            _ => false,
        };
        let number = self.waits().waiters.iter().find(|(_, waiter)| can_run(waiter))?.0;
        self.remove_waiter(number)
    }

    /// Records a grant; `false` if there are too many.
    pub(crate) fn grant(&mut self, holder: Holder) -> bool {
        let is_free = self.holders.is_empty() || holder.shared && !self.is_exclusive();
        assert!(is_free, "an exclusive holder is alone");
        let has_room = self.holders.len() < HOLDERS_PER_SEGMENT_MAX;
        if has_room {
            self.holders.push(holder);
        }
        assert!(holder.shared || self.holders.len() <= 1, "an exclusive holder stays alone");
        has_room
    }

    /// Releases a grant; `false` if it is not in force.
    pub(crate) fn release(&mut self, token: LockToken, owner: LockOwner) -> bool {
        let before = self.holders.len();
        self.holders.retain(|holder| holder.token != token || holder.owner != owner);
        assert!(self.holders.len() + 1 >= before, "a token is given once");
        self.holders.len() < before
    }

    /// Extends a grant that is in force; `false` if it is not, or belongs to another owner. An earlier end is ignored,
    /// so that a renewal that arrives late takes nothing away.
    pub(crate) fn renew(&mut self, token: LockToken, owner: LockOwner, now_us: u64, until_us: u64) -> bool {
        let is_it = |holder: &&mut Holder| holder.token == token && holder.owner == owner && holder.until_us > now_us;
        let Some(holder) = self.holders.iter_mut().find(is_it) else { return false };
        holder.until_us = holder.until_us.max(until_us);
        true
    }

    /// Releases all grants; returns their number.
    pub(crate) fn release_all(&mut self) -> usize {
        std::mem::take(&mut self.holders).len()
    }

    /// Returns the blocking holder: the exclusive one, else the shared one with the longest lease.
    pub(crate) fn first_holder(&self) -> Option<&Holder> {
        self.holders.iter().max_by_key(|holder| (!holder.shared, holder.until_us))
    }

    /// Removes all grants, watchers and waiters of an owner. Returns the waiters, so that their buffers can be freed.
    pub(crate) fn remove_owner(&mut self, owner: LockOwner) -> Vec<Waiter> {
        self.holders.retain(|holder| holder.owner != owner);
        for number in self.waits().watchers.list.of_owner(owner) {
            self.remove_watcher(number);
        }
        let numbers = self.waits().waiters.of_owner(owner);
        let removed = numbers.into_iter().filter_map(|number| self.remove_waiter(number)).collect();
        assert!(!self.is_held_by_or_waits(owner), "an owner that is gone blocks no other");
        removed
    }

    /// Returns true if an owner holds the lock, waits or watches.
    fn is_held_by_or_waits(&self, owner: LockOwner) -> bool {
        self.holders.iter().any(|holder| holder.owner == owner)
            || !self.waits().waiters.of_owner(owner).is_empty()
            || !self.waits().watchers.list.of_owner(owner).is_empty()
    }

    /// Expires leases; returns true if one ended.
    pub(crate) fn expire_leases(&mut self, now_us: u64) -> bool {
        let before = self.holders.len();
        self.holders.retain(|holder| holder.until_us > now_us);
        self.holders.len() < before
    }

    /// Takes a waiter whose deadline has passed.
    pub(crate) fn next_expired_waiter(&mut self, now_us: u64) -> Option<Waiter> {
        self.remove_waiter(self.waits().waiters.expired(now_us)?)
    }

    /// Removes the waiter of that requester.
    pub(crate) fn take_waiter(&mut self, requester: Requester) -> Option<Waiter> {
        self.remove_waiter(self.waits().waiters.find(requester)?)
    }

    /// Removes the watcher of that requester; `false` if there is none.
    pub(crate) fn take_watcher(&mut self, requester: Requester) -> bool {
        self.waits().watchers.list.find(requester).and_then(|number| self.remove_watcher(number)).is_some()
    }

    pub(crate) fn watch(&mut self, watcher: Watcher) -> bool {
        let has_room = self.waits().watchers.list.len() < WAITERS_PER_SEGMENT_MAX;
        if has_room {
            self.waits_mut().watchers.push(watcher);
        }
        has_room
    }

    /// Takes a watcher of that row whose version is reached.
    #[inline(always)]
    pub(crate) fn next_satisfied_watcher(&mut self, row: u64, version: Version) -> Option<Watcher> {
        self.waits.as_mut()?.watchers.take_satisfied(row, version)
    }

    /// Takes a watcher whose deadline has passed.
    pub(crate) fn next_expired_watcher(&mut self, now_us: u64) -> Option<Watcher> {
        self.remove_watcher(self.waits().watchers.list.expired(now_us)?)
    }

    /// Takes all watchers and the waiters for the lock, or (`all`) all waiters.
    pub(crate) fn drain_blocked(&mut self, all: bool) -> (Vec<Waiter>, Vec<Watcher>) {
        let Some(Waits { waiters, watchers }) = self.waits.as_deref_mut() else { return Default::default() };
        let ends = |waiter: &Waiter| all || matches!(waiter.op, PendingOp::Lock(_));
        let numbers: Vec<u64> = waiters.iter().filter(|(_, waiter)| ends(waiter)).map(|(number, _)| number).collect();
        let removed = numbers.into_iter().filter_map(|number| waiters.remove(number)).collect();
        (removed, watchers.drain())
    }

    /// Takes everything: the segment is gone.
    pub(crate) fn drain(&mut self) -> (Vec<Waiter>, Vec<Watcher>) {
        self.holders.clear();
        let Some(Waits { waiters, watchers }) = self.waits.as_deref_mut() else { return Default::default() };
        (waiters.drain(), watchers.drain())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    const NOBODY: Principal = Principal { uid: 0, gid: 0 };

    fn lock(node: u16, shared: bool) -> Waiter {
        let lock_request = LockRequest { shared, no_wait: false, lease_us: 1 };
        Waiter {
            requester: Requester::Peer(NodeId(node), 0),
            principal: NOBODY,
            op: PendingOp::Lock(lock_request),
            deadline_us: 100,
        }
    }

    fn hold(node: u16, shared: bool) -> Holder {
        Holder { token: LockToken(node.into()), owner: LockOwner::Peer(NodeId(node)), shared, until_us: 50 }
    }

    #[test]
    fn lock_queue_is_fifo_and_readers_do_not_overtake_writer() {
        // If this broke, a stream of readers could keep a writer out for ever.
        let mut lock_queue = LockQueue::default();
        lock_queue.grant(hold(1, true));
        let (alone, shared) = (lock(2, false), lock(3, true));
        assert!(lock_queue.must_wait(&alone.op, alone.requester.owner(), true));
        assert!(lock_queue.enqueue(alone));
        assert!(lock_queue.must_wait(&shared.op, shared.requester.owner(), true));
        assert!(lock_queue.enqueue(shared));
        assert_eq!(lock_queue.next_ready(), None);
        assert!(lock_queue.release(LockToken(1), LockOwner::Peer(NodeId(1))));
        assert_eq!(lock_queue.next_ready(), Some(alone));
        lock_queue.grant(hold(2, false));
        assert_eq!(lock_queue.next_ready(), None);
        assert!(!lock_queue.release(LockToken(2), LockOwner::Peer(NodeId(9))), "only its owner releases it");
        assert!(lock_queue.release(LockToken(2), LockOwner::Peer(NodeId(2))));
        assert_eq!(lock_queue.next_ready(), Some(shared));
    }

    #[test]
    fn expired_lease_admits_no_put() {
        // If this broke, a holder that was away for too long could overwrite its successor's put.
        let mut lock_queue = LockQueue::default();
        lock_queue.grant(hold(1, false));
        let owner = LockOwner::Peer(NodeId(1));
        assert!(lock_queue.admits(LockToken(1), owner, 49));
        assert!(!lock_queue.admits(LockToken(1), owner, 50));
        assert!(!lock_queue.admits(LockToken(1), LockOwner::Peer(NodeId(2)), 49), "the lock belongs to another owner");
        assert!(lock_queue.expire_leases(50));
        assert!(lock_queue.is_idle());
    }

    #[test]
    fn only_a_lease_in_force_is_renewed_by_its_owner() {
        // If this broke, a holder could take back a lock that it had lost, or extend the lock of another.
        let mut lock_queue = LockQueue::default();
        lock_queue.grant(hold(1, false));
        let (token, owner) = (LockToken(1), LockOwner::Peer(NodeId(1)));
        assert!(!lock_queue.renew(token, LockOwner::Peer(NodeId(2)), 10, 90), "another owner");
        assert!(!lock_queue.renew(LockToken(2), owner, 10, 90), "another token");
        assert!(lock_queue.renew(token, owner, 49, 90));
        assert!(lock_queue.renew(token, owner, 49, 60), "a renewal never shortens a lease");
        assert!(!lock_queue.expire_leases(89));
        assert!(lock_queue.admits(token, owner, 89) && !lock_queue.admits(token, owner, 90));
        assert!(!lock_queue.renew(token, owner, 90, 200), "the lease has ended, though no tick has removed it");
        assert!(lock_queue.expire_leases(90));
        assert!(!lock_queue.renew(token, owner, 50, 200));
    }

    #[test]
    fn removed_owner_holds_no_lock() {
        // If this broke, a lock would outlive its holder.
        let mut lock_queue = LockQueue::default();
        lock_queue.grant(hold(1, false));
        lock_queue.enqueue(lock(1, false));
        lock_queue.enqueue(lock(2, false));
        assert_eq!(lock_queue.remove_owner(LockOwner::Peer(NodeId(1))).len(), 1);
        assert_eq!(lock_queue.next_ready(), Some(lock(2, false)));
    }
}
