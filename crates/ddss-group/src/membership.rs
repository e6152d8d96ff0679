//! Membership of a process: its place in the directory, its lock, and news of the others.
//!
//! A thread makes the calls, so that the caller's own thread never waits for a daemon. While no daemon answers, nothing changes:
//! the members go on.

use crate::directory::{GroupRow, LastWord, MemberRow, Note, Row, RowError, row_of, word_row_of};
use crate::join::{JoinError, JoinOptions, take_place};
use crate::member::{Incarnation, Member};
use crate::news::{Change, Eviction, News, Shared};
use crate::probe::{PROBE_MAX, Probe};
use crate::watcher::Watcher;
use ddss::{Client, ErrorKind, Table};
use ddss_auth::Key;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
        Ok(self.run_of(self.ours.member)? == Some(self.ours.run))
    }

    /// Returns the run of the process that has the place of a member, dead or alive. `None` if its place is cleared.
    ///
    /// # Errors
    /// The directory has another format, or the error of a call.
    pub fn run_of(&self, member: Member) -> Result<Option<u32>, JoinError> {
        let row = row_of(member);
        Ok(MemberRow::decode(&self.table.row(row).get()?, row)?.map(|found| found.run))
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

    /// Publishes one of the rows that the options of the join have asked for, soon. A later one of the same number replaces it.
    pub fn publish_row(&self, number: u16, row: Row) {
        self.shared.rows.lock().unwrap_or_else(PoisonError::into_inner).insert(number, row);
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
            has_silent: false,
            // Behind the members that joined before, as every later change.
            state: 0,
            missing_since: None,
            is_released: false,
            guard: Some(place.guard),
            table: place.table,
            row: place.row,
            ours,
            members,
            lease: options.lease,
            seen: vec![0; usize::from(members)],
            joining: vec![Probe::default(); usize::from(members)],
            suspected: vec![(Probe::default(), None); usize::from(members)],
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

    /// Suspects a member for a third of its lease and a second. While it is suspected, its lock is observed: once that is free for
    /// so long that the member is dead, the answer comes as [`Change::LockFree`].
    pub fn suspect(&self, member: Member) {
        if member.0 < self.members {
            self.news.shared.suspects.fetch_or(1 << member.0, Ordering::AcqRel);
        }
    }

    /// Suspects a connected member that answers nothing: a free lock is enough. It is stopped or dead, or its node is cut off.
    pub fn suspect_silent(&self, member: Member) {
        if member.0 < self.members {
            self.news.shared.silent.fetch_or(1 << member.0, Ordering::AcqRel);
            self.suspect(member);
        }
    }

    /// Returns the time since this process has read the directory completely. Meanwhile no process finds a new member.
    #[must_use]
    pub fn directory_unread_for(&self) -> Duration {
        self.news.shared.unread_for()
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
