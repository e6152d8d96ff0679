//! Lock queue of a segment: holders of the lock, waiters behind it, and watchers of a newer version.
//!
//! There is one queue, in order of arrival. Puts, atomics and (under Strict and Read) gets that find the lock held by
//! another client wait in the same queue as lock requests. A call under the lock waits for no other caller.
//!
//! A table has such a queue for each row that is locked as well (`row_locks.rs`). A lock of the table and locks of its rows
//! exclude each other. A request for a row's lock waits first in the queue of the table, then in that of the row.

use crate::requester::{LockOwner, Requester};
use ddss_core::limits::{ROW_LOCKS_PER_TABLE_MAX, WAITERS_PER_SEGMENT_MAX};
use ddss_core::{Failure, Header, Limit, LockRequest, LockToken, Version};

mod holder_queue;
mod row_locks;
#[cfg(test)]
mod tests;
mod wait_list;
mod waiter;
mod watchers;

use holder_queue::HolderQueue;
use row_locks::RowLocks;
pub(crate) use waiter::{Destination, Get, Holder, PendingOp, Ready, Waiter, Watcher};
use watchers::Watchers;

/// Holders, waiters and watchers of one segment, and locks of its rows.
#[derive(Debug)]
struct Waits {
    queue: HolderQueue,
    watchers: Watchers,
    /// Locks of rows; `None` if no row is locked.
    rows: Option<Box<RowLocks>>,
}

impl Waits {
    const fn new() -> Self {
        Self { queue: HolderQueue::new(), watchers: Watchers::new(), rows: None }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.watchers.list.is_empty() && self.rows.is_none()
    }
}

static NO_WAITS: Waits = Waits::new();

/// Lock, queue and watchers of one segment.
#[derive(Debug, Default)]
pub(crate) struct LockQueue {
    /// Most segments never have a holder, a waiter or a watcher: without one they take no memory for it.
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

    fn rows(&self) -> Option<&RowLocks> {
        self.waits.as_ref()?.rows.as_deref()
    }

    /// Changes the locks of rows, if there are any, and frees their memory after the last one.
    fn change_rows<T>(&mut self, change: impl FnOnce(&mut RowLocks) -> T) -> Option<T> {
        let rows = &mut self.waits.as_mut()?.rows;
        let result = change(rows.as_mut()?);
        rows.take_if(|rows| rows.is_empty());
        Some(result)
    }

    fn queue(&self) -> &HolderQueue {
        &self.waits().queue
    }

    fn queue_mut(&mut self) -> Option<&mut HolderQueue> {
        Some(&mut self.waits.as_mut()?.queue)
    }

    fn remove_watcher(&mut self, number: u64) -> Option<Watcher> {
        self.waits.as_mut()?.watchers.remove(number)
    }

    /// Returns true if no timeout and no client's end matters here.
    pub(crate) fn is_idle(&self) -> bool {
        self.waits.as_ref().is_none_or(|waits| waits.is_empty())
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
        let Waits { queue, watchers, rows } = self.waits();
        let due = [queue.due_us(), watchers.list.next_deadline_us(), rows.as_deref().and_then(RowLocks::due_us)];
        due.into_iter().flatten().min().unwrap_or(u64::MAX)
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

    /// Returns true if the lock of the whole segment is held exclusively.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.queue().exclusive().is_some()
    }

    /// Returns the lock word that the header shows: the token of the exclusive holder, or that rows are locked.
    pub(crate) fn lock_word(&self) -> LockToken {
        match self.queue().exclusive() {
            Some(holder) => holder.token,
            None if self.rows().is_some_and(RowLocks::has_exclusive) => LockToken(Header::ROWS_LOCKED),
            None => LockToken::default(),
        }
    }

    /// Returns true if that exclusive grant is in force and belongs to the caller: the lock of the segment, or of the row
    /// of a call.
    pub(crate) fn admits(&self, token: LockToken, owner: LockOwner, now_us: u64, row: Option<u64>) -> bool {
        self.queue().admits(token, owner, now_us)
            || self.queue_of(row).is_some_and(|queue| queue.admits(token, owner, now_us))
    }

    /// Returns why a grant does not admit a change: it is a shared one, or it was lost.
    pub(crate) fn refusal(&self, token: LockToken, owner: LockOwner, now_us: u64, row: Option<u64>) -> Failure {
        let mut queues = std::iter::once(self.queue()).chain(self.queue_of(row));
        let is_shared = queues.any(|queue| queue.is_shared_grant(token, owner, now_us));
        if is_shared { Failure::SharedLock } else { Failure::LockLost }
    }

    /// Returns the queue of a row, if it has one.
    fn queue_of(&self, row: Option<u64>) -> Option<&HolderQueue> {
        self.rows()?.queue(row?)
    }

    /// Returns true if the operation has to be queued here. `depends_on_lock` is whether its coherence model makes it
    /// depend on the lock.
    pub(crate) fn must_wait(&self, op: &PendingOp, owner: LockOwner, depends_on_lock: bool) -> bool {
        if self.blocks_all() {
            return true;
        }
        match op {
            PendingOp::Get(get) => self.queue().blocks_get(get, owner),
            _ if self.puts_blocked || self.is_moving => true,
            // A lock of the table and locks of its rows exclude each other, in the order of their requests.
            PendingOp::Lock(LockRequest { row_offset: Some(_), .. }) => !self.queue().is_empty(),
            PendingOp::Lock(_) if self.has_row_locks() => true,
            _ => self.queue().delays(op, owner, depends_on_lock),
        }
    }

    /// Returns true if a row of the table is locked, or has waiters.
    #[inline]
    pub(crate) fn has_row_locks(&self) -> bool {
        self.rows().is_some()
    }

    /// Returns true if a sweep may change rows that are not locked: no operation goes first.
    pub(crate) fn admits_sweep(&self) -> bool {
        !self.blocks_puts() && self.queue().holders.is_empty()
    }

    /// Returns true if that row is locked, or has waiters.
    pub(crate) fn has_row_lock(&self, row: u64) -> bool {
        self.queue_of(Some(row)).is_some()
    }

    /// Returns true if the operation has to be queued for its row.
    pub(crate) fn must_wait_for_row(&self, row: u64, op: &PendingOp, owner: LockOwner, depends_on_lock: bool) -> bool {
        self.queue_of(Some(row)).is_some_and(|queue| queue.delays(op, owner, depends_on_lock))
    }

    /// Returns true if this local client holds the lock of the segment, or of that row, exclusively or shared.
    pub(crate) fn is_held_by(&self, owner: LockOwner, row: Option<u64>) -> bool {
        self.queue().is_held_by(owner) || self.queue_of(row).is_some_and(|queue| queue.is_held_by(owner))
    }

    /// Returns the number of holders, of the segment and of rows.
    pub(crate) fn holders(&self) -> usize {
        self.queue().holders.len() + self.rows().map_or(0, RowLocks::holders)
    }

    /// Returns the number of queued operations, for the segment and for rows.
    pub(crate) fn waiting(&self) -> usize {
        self.queue().waiters.len() + self.rows().map_or(0, RowLocks::waiting)
    }

    /// Appends to the queue of the segment, or of a row; `false` if there are too many waiters.
    pub(crate) fn enqueue(&mut self, waiter: Waiter, row: Option<u64>) -> bool {
        let has_room = self.waiting() < WAITERS_PER_SEGMENT_MAX;
        if has_room {
            let waits = self.waits_mut();
            match row {
                Some(row) => waits.rows.get_or_insert_default().enqueue(row, waiter),
                None => _ = waits.queue.waiters.push(waiter),
            }
        }
        has_room
    }

    /// Takes the next operation that may run now. The lock dependency of a put or get was checked when it was queued.
    ///
    /// Rows come first: a lock of the table has to wait until no row is locked.
    pub(crate) fn next_ready(&mut self) -> Option<Ready> {
        if self.blocks_all() {
            return None;
        }
        let only_gets = self.puts_blocked || self.is_moving;
        if let Some(waiter) = self.change_rows(|rows| rows.next_ready(only_gets)).flatten() {
            return Some(Ready::OfRow(waiter));
        }
        let excludes_first = self.excludes_first();
        let queue = self.queue_mut()?;
        let ready = match only_gets {
            true => queue.pop_get(),
            false if excludes_first => None,
            false => queue.pop_ready(),
        };
        ready.map(Ready::OfSegment)
    }

    /// Returns true if the first of this queue is a request for the lock of the table while rows are locked, or the
    /// other way round.
    fn excludes_first(&self) -> bool {
        match self.queue().waiters.first().map(|first| first.op) {
            Some(PendingOp::Lock(LockRequest { row_offset: Some(_), .. })) => !self.queue().holders.is_empty(),
            Some(PendingOp::Lock(_)) => self.has_row_locks(),
            _ => false,
        }
    }

    /// Records a grant; an error if there are too many.
    pub(crate) fn grant(&mut self, holder: Holder, row: Option<u64>) -> Result<(), Limit> {
        let Waits { queue, rows, .. } = self.waits_mut();
        let Some(row) = row else {
            assert!(rows.is_none(), "locks of rows and of their table exclude each other");
            return queue.grant(holder);
        };
        assert!(queue.holders.is_empty(), "locks of rows and of their table exclude each other");
        let rows = rows.get_or_insert_default();
        if rows.holders() < ROW_LOCKS_PER_TABLE_MAX { rows.grant(row, holder) } else { Err(Limit::RowLocks) }
    }

    /// Releases a grant; `false` if it is not in force.
    pub(crate) fn release(&mut self, token: LockToken, owner: LockOwner) -> bool {
        self.queue_mut().is_some_and(|queue| queue.release(token, owner))
            || self.change_rows(|rows| rows.release(token, owner)).unwrap_or(false)
    }

    /// Extends a grant that is in force; `false` if it is not, or belongs to another owner.
    pub(crate) fn renew(&mut self, token: LockToken, owner: LockOwner, now_us: u64, until_us: u64) -> bool {
        self.queue_mut().is_some_and(|queue| queue.renew(token, owner, now_us, until_us))
            || self.change_rows(|rows| rows.renew(token, owner, now_us, until_us)).unwrap_or(false)
    }

    /// Releases all grants, of the segment and of rows; returns their number.
    pub(crate) fn release_all(&mut self) -> usize {
        let count = self.holders();
        if let Some(queue) = self.queue_mut() {
            queue.holders.clear();
        }
        self.change_rows(RowLocks::release_all);
        count
    }

    /// Returns the holder of the segment's lock: the exclusive one, else the shared one with the longest lease.
    pub(crate) fn first_holder(&self) -> Option<&Holder> {
        self.queue().holders.iter().max_by_key(|holder| (!holder.shared, holder.until_us))
    }

    /// Removes all grants, watchers and waiters of an owner. Returns the waiters, so that their buffers can be freed.
    pub(crate) fn remove_owner(&mut self, owner: LockOwner) -> Vec<Waiter> {
        for number in self.waits().watchers.list.of_owner(owner) {
            self.remove_watcher(number);
        }
        let mut removed = self.queue_mut().map(|queue| queue.remove_owner(owner)).unwrap_or_default();
        removed.extend(self.change_rows(|rows| rows.remove_owner(owner)).into_iter().flatten());
        assert!(!self.is_held_by_or_waits(owner), "an owner that is gone blocks no other");
        removed
    }

    /// Returns true if an owner holds the lock, waits or watches.
    fn is_held_by_or_waits(&self, owner: LockOwner) -> bool {
        self.queue().holders.iter().any(|holder| holder.owner == owner)
            || !self.queue().waiters.of_owner(owner).is_empty()
            || !self.waits().watchers.list.of_owner(owner).is_empty()
    }

    /// Expires leases; returns true if one ended.
    pub(crate) fn expire_leases(&mut self, now_us: u64) -> bool {
        let own_ended = self.queue_mut().is_some_and(|queue| queue.expire_leases(now_us));
        self.change_rows(|rows| rows.expire_leases(now_us)).unwrap_or(false) || own_ended
    }

    /// Takes a waiter whose deadline has passed.
    pub(crate) fn next_expired_waiter(&mut self, now_us: u64) -> Option<Waiter> {
        let own = self.queue_mut()?.pop_expired(now_us);
        own.or_else(|| self.change_rows(|rows| rows.next_expired_waiter(now_us))?)
    }

    /// Removes the waiter of that requester.
    pub(crate) fn take_waiter(&mut self, requester: Requester) -> Option<Waiter> {
        let own = self.queue_mut()?.take_waiter(requester);
        own.or_else(|| self.change_rows(|rows| rows.take_waiter(requester))?)
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

    /// Takes all watchers and the waiters for locks, or (`all`) all waiters.
    pub(crate) fn drain_blocked(&mut self, all: bool) -> (Vec<Waiter>, Vec<Watcher>) {
        let Some(Waits { queue, watchers, .. }) = self.waits.as_deref_mut() else { return Default::default() };
        let (mut removed, watchers) = (queue.drain_blocked(all), watchers.drain());
        removed.extend(self.change_rows(|rows| rows.drain_blocked(all)).unwrap_or_default());
        (removed, watchers)
    }
}
