//! Membership of a process: its place in the directory, its lock, and news of the others.
//!
//! A thread makes the calls, so that the caller's own thread never waits for a daemon. While no daemon answers, nothing changes:
//! the members go on.

use crate::directory::{GroupRow, LastWord, MemberRow, Note, ROW_BYTES, RowError, lock_row_of, row_of, word_row_of};
use crate::join::{JoinError, JoinOptions, PROBE_MAX, is_taken, take_place};
use crate::member::{Incarnation, Member};
use ddss::{Client, ErrorKind, LockGuard, LockOptions, Row, Table};
use ddss_auth::Key;
use rustix::event::{EventfdFlags, eventfd};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// News of a membership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Change {
    /// A process has taken the place of a member.
    Seen {
        /// Process.
        whom: Incarnation,
        /// Address of its fabric.
        address: SocketAddr,
        /// Its note.
        note: Note,
    },
    /// A suspect's lock is free. It is dead, or the daemon that kept its lock has restarted.
    LockFree(Member),
    /// The place of a lost process is cleared: it learns so when it returns.
    Evicted(Incarnation),
    /// The state of the group has changed. All members that joined before are seen.
    State(u8),
    /// This process has lost its place: it was stopped for longer than its lease, and another one took the place.
    Replaced,
    /// The directory cannot be read by this release.
    Unreadable(RowError),
}

/// A process whose place is to be cleared.
#[derive(Clone, Copy, Debug)]
struct Eviction {
    whom: Incarnation,
    /// True if the lock of the place may become free later.
    keeps_trying: bool,
    asked: Instant,
}

/// State that the caller and the thread share.
#[derive(Debug)]
struct Shared {
    /// Members whose lock is to be tried, as bits.
    suspects: AtomicU64,
    /// Processes whose places are to be cleared, one a member at most.
    evictions: Mutex<Vec<Eviction>>,
    has_evictions: AtomicBool,
    has_left: AtomicBool,
    /// Note that the caller wants to publish.
    note: Mutex<Option<Note>>,
    /// Wakes the thread before its next round is due.
    sleeping: Mutex<()>,
    wake: Condvar,
    has_news: AtomicBool,
    /// Readable when there is news.
    news: OwnedFd,
}

impl Shared {
    fn new() -> Result<Self, rustix::io::Errno> {
        Ok(Self {
            suspects: AtomicU64::new(0),
            evictions: Mutex::new(Vec::new()),
            has_evictions: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            note: Mutex::new(None),
            sleeping: Mutex::new(()),
            wake: Condvar::new(),
            has_news: AtomicBool::new(false),
            news: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Tells the caller of news that it can take.
    fn announce(&self) {
        // A full counter is as readable as a fresh one. It comes first: the caller reads it only while there is news, and would
        // leave a later one readable.
        let _ = rustix::io::write(&self.news, &1_u64.to_ne_bytes());
        self.has_news.store(true, Ordering::Release);
    }

    fn sleep(&self, span: Duration) {
        let sleeping = self.sleeping.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle = || {
            let has_suspects = self.suspects.load(Ordering::Acquire) != 0;
            !self.has_left.load(Ordering::Acquire) && !has_suspects && !self.has_evictions.load(Ordering::Acquire)
        };
        if is_idle() {
            let _ = self.wake.wait_timeout(sleeping, span);
        }
    }

    fn wake(&self) {
        let _sleeping = self.sleeping.lock().unwrap_or_else(PoisonError::into_inner);
        self.wake.notify_all();
    }
}

/// State of a group: a byte in its directory, which only grows.
#[derive(Clone, Debug)]
pub struct GroupState {
    table: Table,
    shared: Arc<Shared>,
    ours: Incarnation,
    members: u16,
}

impl GroupState {
    /// Returns true if this process still has its place: no other member has lost it.
    ///
    /// # Errors
    /// The directory has another format, or the error of a call.
    pub fn has_place(&self) -> Result<bool, JoinError> {
        let row = row_of(self.ours.member);
        let found = MemberRow::decode(&self.table.row(row).get()?, row)?;
        Ok(found.is_some_and(|found| found.run == self.ours.run))
    }

    /// Leaves the last word of this process: the loss of which member ends it. It outlives the process's place.
    ///
    /// # Errors
    /// The error of a call, whose deadline is short.
    pub fn leave_word(&self, lost: Member) -> Result<(), JoinError> {
        let word = LastWord { run: self.ours.run, lost };
        self.hasty()?.row(word_row_of(self.ours.member, self.members)).put(&word.encode())?;
        Ok(())
    }

    /// Returns the last word of a process: the loss of which member has ended it. `None` if it has left none.
    ///
    /// # Errors
    /// The directory has another format, or the error of a call, whose deadline is short.
    pub fn last_word(&self, of: Incarnation) -> Result<Option<Member>, JoinError> {
        let row = word_row_of(of.member, self.members);
        let word = LastWord::decode(&self.hasty()?.row(row).get()?, row)?;
        Ok(word.filter(|word| word.run == of.run && word.lost.0 < self.members).map(|word| word.lost))
    }

    /// Returns the table for a process that ends: it waits for no daemon for long.
    fn hasty(&self) -> Result<Table, JoinError> {
        Ok(Table::try_from(self.table.segment().with_timeout(PROBE_MAX))?)
    }

    /// Publishes another note of this process, soon: what processes that [inspect](crate::inspect) the group see.
    pub fn publish(&self, note: Note) {
        *self.shared.note.lock().unwrap_or_else(PoisonError::into_inner) = Some(note);
    }

    /// Raises the state, for all members. A state that is as high stays.
    ///
    /// # Errors
    /// The directory has another format, or the error of a call.
    pub fn raise(&self, state: u8) -> Result<(), JoinError> {
        let row = self.table.row(0);
        loop {
            let found = row.get()?;
            let group = GroupRow::decode(&found)?.ok_or(RowError { row: 0 })?;
            if group.state >= state {
                return Ok(());
            }
            match row.put_if(found.version(), &GroupRow { state, ..group }.encode()) {
                // Another member changed the row: each time the state has grown.
                Err(error) if error.kind() == ErrorKind::VersionMismatch => {}
                other => {
                    other?;
                    self.shared.wake();
                    return Ok(());
                }
            }
        }
    }
}

/// The caller's end of the news.
#[derive(Debug)]
struct News {
    changes: Receiver<Change>,
    shared: Arc<Shared>,
}

impl News {
    /// Takes the next news, if there is some.
    fn next(&self) -> Option<Change> {
        if !self.shared.has_news.swap(false, Ordering::AcqRel) {
            return None;
        }
        // Nothing to read is fine too. What comes from now on makes the descriptor readable again.
        let _ = rustix::io::read(&self.shared.news, &mut [0; 8]);
        let change = self.changes.try_recv().ok();
        // There may be more.
        self.shared.has_news.fetch_or(change.is_some(), Ordering::AcqRel);
        change
    }
}

/// Membership of this process in a group. Dropping it gives the place up.
#[derive(Debug)]
pub struct Membership {
    ours: Incarnation,
    key: Key,
    state: u8,
    members: u16,
    table: Table,
    news: News,
    thread: Option<JoinHandle<()>>,
}

impl Membership {
    /// Members that are not seen are looked for this often at first.
    const LOOK_FIRST: Duration = Duration::from_millis(20);
    /// The directory is looked through this often once all members are seen.
    const LOOK_LAST: Duration = Duration::from_millis(500);
    /// Time beyond its lease for which a process that others have lost is tried to be cleared away.
    const EVICT_MARGIN: Duration = Duration::from_secs(5);
    /// News that the caller has not taken; the thread waits with more.
    const CHANGES_MAX: usize = 256;

    /// Joins a group by name, and makes it if it does not exist.
    ///
    /// # Errors
    /// The place is taken, the settings differ, or the error of a call.
    pub fn join(client: &Client, name: &str, options: &JoinOptions) -> Result<Self, JoinError> {
        let place = take_place(client, name, options)?;
        let (sender, changes) = sync_channel(Self::CHANGES_MAX);
        let shared = Arc::new(Shared::new()?);
        let (ours, members, key, state) = (place.ours, options.members, place.group.key, place.group.state);
        let table = place.table.clone();
        let watcher = Watcher {
            // Behind the members that joined before, as every later change.
            state: 0,
            guard: Some(place.guard),
            table: place.table,
            row: place.row,
            ours,
            members,
            lease: options.lease,
            seen: vec![0; usize::from(members)],
            free_since: vec![None; usize::from(members)],
            sender,
            shared: shared.clone(),
        };
        let body = move || watcher.run();
        let thread = Some(std::thread::Builder::new().name("ddss-group".to_owned()).spawn(body)?);
        Ok(Self { ours, key, state, members, table, news: News { changes, shared }, thread })
    }

    /// Returns this process's place.
    #[must_use]
    pub fn ours(&self) -> Incarnation {
        self.ours
    }

    /// Returns the key of the group.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the state of the group when this process joined.
    #[must_use]
    pub fn state(&self) -> u8 {
        self.state
    }

    /// Returns a handle that changes the state of the group.
    #[must_use]
    pub fn group_state(&self) -> GroupState {
        GroupState {
            table: self.table.clone(),
            shared: self.news.shared.clone(),
            ours: self.ours,
            members: self.members,
        }
    }

    /// Returns the number of places.
    #[must_use]
    pub fn members(&self) -> u16 {
        self.members
    }

    /// Takes the next news, if there is some.
    pub fn next_change(&self) -> Option<Change> {
        self.news.next()
    }

    /// Asks whether the lock of a member is free. The answer, if it is, comes as [`Change::LockFree`].
    pub fn suspect(&self, member: Member) {
        if member.0 < self.members {
            let bit = 1 << member.0;
            if self.news.shared.suspects.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
                self.news.shared.wake();
            }
        }
    }

    /// Clears the place of a process if its lock is free, and reports that as [`Change::Evicted`]. If the process was only
    /// stopped, it learns that the others have lost it: [`Change::Replaced`]. With `keeps_trying` the lock may become free
    /// later.
    pub fn evict(&self, whom: Incarnation, keeps_trying: bool) {
        let mut evictions = self.news.shared.evictions.lock().unwrap_or_else(PoisonError::into_inner);
        let keeps_trying = keeps_trying || evictions.iter().any(|other| other.whom == whom && other.keeps_trying);
        evictions.retain(|other| other.whom.member != whom.member);
        evictions.push(Eviction { whom, keeps_trying, asked: Instant::now() });
        drop(evictions);
        if !self.news.shared.has_evictions.swap(true, Ordering::AcqRel) {
            self.news.shared.wake();
        }
    }

    /// Returns a descriptor that is readable when there is news.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.news.shared.news.as_fd()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.news.shared.has_left.store(true, Ordering::Release);
        self.news.shared.wake();
        // A full channel would hold the thread up: nobody takes the news any more.
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            while self.news.changes.try_recv().is_ok() {}
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been reported where it happened.
            let _ = thread.join();
        }
    }
}

/// The thread of a membership.
struct Watcher {
    /// Lock of the own place. `None` after it was lost.
    guard: Option<LockGuard<Row<'static>>>,
    table: Table,
    row: MemberRow,
    ours: Incarnation,
    members: u16,
    lease: Duration,
    /// Run of each member that was seen last; 0: none.
    seen: Vec<u32>,
    /// Since when the lock of a process that is not seen is free.
    free_since: Vec<Option<(u32, Instant)>>,
    /// State of the group that was reported last.
    state: u8,
    sender: SyncSender<Change>,
    shared: Arc<Shared>,
}

impl Watcher {
    fn run(mut self) {
        let mut pause = Membership::LOOK_FIRST;
        while !self.shared.has_left.load(Ordering::Acquire) {
            let begun = Instant::now();
            let keeps = self.keep_place() && self.look() && self.try_suspects() && self.clear_places();
            if !keeps {
                break;
            }
            self.publish();
            let is_complete = self.seen.iter().filter(|run| **run != 0).count() + 1 == self.seen.len();
            pause = if is_complete { Membership::LOOK_LAST } else { (pause * 2).min(Membership::LOOK_LAST / 2) };
            self.shared.sleep(pause.saturating_sub(begun.elapsed()));
        }
        self.give_place_up();
    }

    /// Reports a change. Returns false if the caller is gone.
    fn report(&self, change: Change) -> bool {
        let is_taken = self.sender.send(change).is_ok();
        self.shared.announce();
        is_taken
    }

    /// Takes the lock again after its home has forgotten it. Returns false if another process has the place.
    fn keep_place(&mut self) -> bool {
        if self.guard.as_ref().is_some_and(|guard| !guard.lease_left().is_zero()) {
            return true;
        }
        self.guard = None;
        let options = LockOptions::new().lease(self.lease).keep_alive().timeout(Duration::ZERO);
        let lock_row = lock_row_of(self.ours.member, self.members);
        let (Ok(guard), Ok(row)) =
            (self.table.row(lock_row).lock_with(options), self.table.row(row_of(self.ours.member)).get())
        else {
            // No daemon answers, or another process tries this lock at the moment: again in the next round.
            return !self.is_replaced();
        };
        if !self.is_ours(&row) {
            self.report(Change::Replaced);
            return false;
        }
        self.guard = Some(guard);
        true
    }

    /// Reports, and returns true, if the own row names another process.
    fn is_replaced(&self) -> bool {
        let Ok(row) = self.table.row(row_of(self.ours.member)).get() else { return false };
        let is_replaced = !self.is_ours(&row);
        if is_replaced {
            self.report(Change::Replaced);
        }
        is_replaced
    }

    /// Returns true if a row in the own place is of this process.
    fn is_ours(&self, row: &[u8]) -> bool {
        matches!(MemberRow::decode(row, row_of(self.ours.member)), Ok(Some(found)) if found.run == self.ours.run)
    }

    /// Writes the note of the caller into the own row.
    fn publish(&mut self) {
        let note = self.shared.note.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(note) = note.filter(|note| *note != self.row.note) else { return };
        let row = self.table.row(row_of(self.ours.member));
        let Ok(found) = row.get() else { return };
        let new = MemberRow { note, ..self.row };
        // Without success another note follows. A member that clears this place comes first.
        if self.is_ours(&found) && row.put_if(found.version(), &new.encode()).is_ok() {
            self.row = new;
        }
    }

    /// Reports the processes that have come, and then the state. Returns false if there is no sense in going on.
    fn look(&mut self) -> bool {
        // Before the members: each one that joined in an earlier state is in the rows that follow.
        let state = self.table.row(0).get().ok().and_then(|row| GroupRow::decode(&row).ok().flatten());
        let mut is_complete = true;
        for member in (0..self.members).map(Member).filter(|member| *member != self.ours.member) {
            // While no daemon answers nobody comes.
            let Ok(row) = self.table.row(row_of(member)).get() else { return true };
            let found = match MemberRow::decode(&row, row_of(member)) {
                Ok(found) => found,
                Err(error) => {
                    self.report(Change::Unreadable(error));
                    return false;
                }
            };
            let Some(MemberRow { run, address, note, .. }) = found else { continue };
            let seen = &mut self.seen[usize::from(member.0)];
            if *seen == run {
                continue;
            }
            if self.table_lock_is_free(member) {
                // The row of a process that is gone stays until another takes the place. But a living member may have lost its
                // lock with its home's daemon: nothing that comes behind the members is reported before that is known.
                let free = &mut self.free_since[usize::from(member.0)];
                let (_, since) = free.filter(|(of, _)| *of == run).unwrap_or((run, Instant::now()));
                *free = Some((run, since));
                is_complete &= since.elapsed() >= self.lease / 3 + PROBE_MAX;
                continue;
            }
            self.seen[usize::from(member.0)] = run;
            if !self.report(Change::Seen { whom: Incarnation { member, run }, address, note }) {
                return false;
            }
        }
        let state = state.map(|group| group.state).filter(|state| *state != self.state && is_complete);
        let Some(state) = state else { return true };
        self.state = state;
        self.report(Change::State(state))
    }

    fn try_suspects(&mut self) -> bool {
        let suspects = self.shared.suspects.swap(0, Ordering::AcqRel);
        (0..self.members)
            .map(Member)
            .filter(|member| suspects & 1 << member.0 != 0)
            .all(|member| !self.table_lock_is_free(member) || self.report(Change::LockFree(member)))
    }

    /// Clears the places of processes whose locks are free. Returns false if there is no sense in going on.
    fn clear_places(&self) -> bool {
        self.shared.has_evictions.store(false, Ordering::Release);
        let evictions = || self.shared.evictions.lock().unwrap_or_else(PoisonError::into_inner);
        let due = std::mem::take(&mut *evictions());
        // The lock of a process that is gone is free after its lease. Later a free lock says nothing about that process.
        let max = self.lease.saturating_add(Membership::EVICT_MARGIN);
        for Eviction { whom, keeps_trying, asked } in due {
            let cleared = self.clear_place(whom);
            if cleared == Some(true) {
                if !self.report(Change::Evicted(whom)) {
                    return false;
                }
            } else if keeps_trying && (cleared.is_none() || asked.elapsed() <= max) {
                let mut evictions = evictions();
                if !evictions.iter().any(|newer| newer.whom.member == whom.member) {
                    evictions.push(Eviction { whom, keeps_trying, asked });
                }
            }
        }
        true
    }

    /// Clears the place of a process. Returns false if its lock is held, and `None` if no daemon answers.
    fn clear_place(&self, lost: Incarnation) -> Option<bool> {
        let (place, lock) = (self.table.row(row_of(lost.member)), lock_row_of(lost.member, self.members));
        let is_its = |row: &[u8]| matches!(MemberRow::decode(row, row_of(lost.member)), Ok(Some(MemberRow { run, .. })) if run == lost.run);
        match place.get() {
            Ok(row) if !is_its(&row) => return Some(true),
            Ok(_) => {}
            Err(_) => return None,
        }
        let options = LockOptions::new().lease(Duration::from_secs(1)).timeout(Duration::ZERO);
        let _guard = match self.table.row(lock).lock_with(options) {
            Ok(guard) => guard,
            Err(error) if is_taken(&error) => return Some(false),
            Err(_) => return None,
        };
        // Another process may have taken the place, and left it or lost its lock.
        let row = place.get().ok()?;
        (!is_its(&row) || place.put_if(row.version(), &[0; ROW_BYTES]).is_ok()).then_some(true)
    }

    /// Returns true if nobody holds the lock of a place. The lock is held for the moment of the question.
    fn table_lock_is_free(&self, member: Member) -> bool {
        let options = LockOptions::new().lease(Duration::from_secs(1)).timeout(Duration::ZERO);
        self.table.row(lock_row_of(member, self.members)).lock_with(options).is_ok()
    }

    /// Clears the own row and frees the lock, so that nobody takes this process for a member any more.
    fn give_place_up(&mut self) {
        let Some(guard) = self.guard.take() else { return };
        let row = row_of(self.ours.member);
        let cleared = self.table.row(row).get().and_then(|found| {
            if self.is_ours(&found) {
                self.table.row(row).put_if(found.version(), &[0; ROW_BYTES]).map(|_| ())
            } else {
                Ok(())
            }
        });
        // Without a daemon the lock ends with the session, and an old row behind a free lock names nobody.
        let _ = cleared.and_then(|()| guard.unlock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::Barrier;

    const ROUNDS: usize = 50_000;

    #[test]
    fn descriptor_is_quiet_once_all_news_are_taken() {
        // If this broke, a thread that sleeps on the descriptor would never sleep again.
        let (sender, changes) = sync_channel(1);
        let (shared, turn) = (Arc::new(Shared::new().unwrap()), Barrier::new(2));
        let received = News { changes, shared: shared.clone() };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    turn.wait();
                    sender.send(Change::Replaced).unwrap();
                    shared.announce();
                    turn.wait();
                }
            });
            let mut readable = 0;
            for _ in 0..ROUNDS {
                turn.wait();
                while received.next().is_none() {}
                let _ = received.next();
                turn.wait();
                let _ = received.next();
                let mut fds = [PollFd::new(&received.shared.news, PollFlags::IN)];
                readable += poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
            }
            assert_eq!(readable, 0, "of {ROUNDS}");
        });
    }
}
