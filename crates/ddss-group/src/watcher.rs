//! The thread of a membership.

use crate::directory::{GroupRow, MemberRow, ROW_BYTES, lock_row_of, row_of, rows_of};
use crate::member::{Incarnation, Member};
use crate::news::{Change, Eviction, Shared};
use crate::probe::{PROBE_MAX, Probe, free_min, is_taken, probing};
use ddss::{ErrorKind, LockGuard, LockOptions, Row, Table};
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Members that are not seen are looked for this often at first.
const LOOK_FIRST: Duration = Duration::from_millis(20);
/// The directory is looked through this often once all members are seen.
const LOOK_LAST: Duration = Duration::from_millis(500);
/// Time for which no directory is found before it is no more, if the lease is shorter: it may move to its replica at the moment.
const MISSING_MIN: Duration = Duration::from_secs(2);
/// Time beyond its lease for which a process that others have lost is tried to be cleared away.
const EVICT_MARGIN: Duration = Duration::from_secs(5);

/// The thread of a membership.
pub(crate) struct Watcher {
    /// Lock of the own place. `None` after it was lost.
    pub(crate) guard: Option<LockGuard<Row<'static>>>,
    pub(crate) table: Table,
    pub(crate) row: MemberRow,
    pub(crate) ours: Incarnation,
    pub(crate) members: u16,
    pub(crate) lease: Duration,
    /// Run of each member that was seen last; 0: none.
    pub(crate) seen: Vec<u32>,
    /// Locks of processes that are not seen yet.
    pub(crate) joining: Vec<Probe>,
    /// Locks of the seen processes that are suspected, and when the caller suspected each last.
    pub(crate) suspected: Vec<(Probe, Option<Instant>)>,
    /// True if a connected member was silent in this round: its lock may become free at any moment.
    pub(crate) has_silent: bool,
    /// State of the group that was reported last.
    pub(crate) state: u8,
    /// Time of the first of the rounds in a row that found no directory.
    pub(crate) missing_since: Option<Instant>,
    /// True once it was reported that the directory is no more.
    pub(crate) is_released: bool,
    pub(crate) sender: SyncSender<Change>,
    pub(crate) shared: Arc<Shared>,
}

impl Watcher {
    pub(crate) fn run(mut self) {
        let mut pause = LOOK_FIRST;
        while !self.shared.has_left.load(Ordering::Acquire) {
            let begun = Instant::now();
            let keeps = self.keep_place() && self.look() && self.try_suspects() && self.clear_places();
            if !keeps {
                break;
            }
            self.publish();
            self.publish_rows();
            let is_complete = self.seen.iter().filter(|run| **run != 0).count() + 1 == self.seen.len();
            pause = match self.has_silent {
                true => LOOK_FIRST,
                false if is_complete => LOOK_LAST,
                false => (pause * 2).min(LOOK_LAST / 2),
            };
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
        if self.is_replaced() {
            return false;
        }
        if self.guard.as_ref().is_some_and(|guard| !guard.lease_left().is_zero()) {
            return true;
        }
        self.guard = None;
        // Processes that probe this lock share it, and their turns may overlap for ever: this process waits in the lock's queue.
        let options = LockOptions::new().lease(self.lease).keep_alive().timeout(PROBE_MAX);
        let lock_row = lock_row_of(self.ours.member, self.members);
        // Without it no daemon answers: again in the next round.
        let Ok(guard) = self.table.row(lock_row).lock_with(options) else { return true };
        self.guard = Some(guard);
        // Another process may have cleared the place before this one had the lock.
        !self.is_replaced()
    }

    /// Reports, and returns true, if the own row names another process, or none. The lock alone is no proof of the place: the
    /// write that clears it may be older, and late.
    fn is_replaced(&mut self) -> bool {
        let row = match self.table.row(row_of(self.ours.member)).get() {
            Ok(row) => row,
            Err(error) => {
                self.miss(error.kind() == ErrorKind::NotFound);
                return false;
            }
        };
        self.missing_since = None;
        // A row that cannot be read is for the other members to report.
        let found = MemberRow::decode(&row, row_of(self.ours.member));
        let is_replaced = found.is_ok_and(|found| found.is_none_or(|found| found.run != self.ours.run));
        if is_replaced {
            self.report(Change::Replaced);
        }
        is_replaced
    }

    /// Notes that the own row could not be read. Reports once that the directory is no more.
    fn miss(&mut self, is_missing: bool) {
        if !is_missing {
            self.missing_since = None;
            return;
        }
        let missing = self.missing_since.get_or_insert_with(Instant::now).elapsed();
        if missing >= self.lease.max(MISSING_MIN) && !std::mem::replace(&mut self.is_released, true) {
            self.report(Change::Released);
        }
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

    /// Writes the rows of the caller. Behind the first error they wait for the next round, unless newer ones come.
    fn publish_rows(&self) {
        let rows = || self.shared.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let (due, first) = (std::mem::take(&mut *rows()), rows_of(self.members));
        let mut has_failed = false;
        for (number, row) in due {
            has_failed = has_failed || self.table.row(first + u64::from(number)).put(&row).is_err();
            if has_failed {
                rows().entry(number).or_insert(row);
            }
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
            let probe = &mut self.joining[usize::from(member.0)];
            probe.observe(run);
            match probe.is_free(&self.table, member, self.members) {
                // The row of a process that is gone stays until another takes the place. But a living member may have lost its
                // lock with its home's daemon: nothing that comes behind the members is reported before that is known.
                Ok(true) => {
                    is_complete &= probe.is_dead(self.lease);
                    continue;
                }
                Ok(false) => {}
                Err(_) => return true,
            }
            self.seen[usize::from(member.0)] = run;
            if !self.report(Change::Seen { whom: Incarnation { member, run }, address, note }) {
                return false;
            }
        }
        self.shared.record_read();
        let state = state.map(|group| group.state).filter(|state| *state != self.state && is_complete);
        let Some(state) = state else { return true };
        self.state = state;
        self.report(Change::State(state))
    }

    /// Observes the locks of suspects. A lock that ended with its home is free for a while although its member lives: it proves
    /// nothing at once, unless the member is silent, too.
    fn try_suspects(&mut self) -> bool {
        let suspects = self.shared.suspects.swap(0, Ordering::AcqRel);
        let silent = self.shared.silent.swap(0, Ordering::AcqRel);
        self.has_silent = silent != 0;
        for member in (0..self.members).map(Member) {
            let index = usize::from(member.0);
            // Run 0 is of no process: an observation ends with the suspicion. A process that was never seen may be suspected too.
            let (probe, suspected_at) = &mut self.suspected[index];
            if suspects & 1 << member.0 != 0 {
                *suspected_at = Some(Instant::now());
            }
            // Longer than a round: a caller that is late does not end the observation.
            let is_suspected = suspected_at.is_some_and(|at| at.elapsed() < free_min(self.lease));
            let run = if is_suspected { self.seen[index].max(1) } else { 0 };
            probe.observe(run);
            let is_dead = run != 0
                && probe.is_free(&self.table, member, self.members).is_ok_and(|is_free| is_free)
                && (silent & 1 << member.0 != 0 || probe.is_dead(self.lease));
            if is_dead && !self.report(Change::LockFree(member)) {
                return false;
            }
        }
        true
    }

    /// Clears the places of processes whose locks are free. Returns false if there is no sense in going on.
    fn clear_places(&self) -> bool {
        self.shared.has_evictions.store(false, Ordering::Release);
        let evictions = || self.shared.evictions.lock().unwrap_or_else(PoisonError::into_inner);
        let due = std::mem::take(&mut *evictions());
        // The lock of a process that is gone is free after its lease. Later a free lock says nothing about that process.
        let max = self.lease.saturating_add(EVICT_MARGIN);
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
        let _guard = match self.table.row(lock).lock_with(probing()) {
            Ok(guard) => guard,
            Err(error) if is_taken(&error) => return Some(false),
            Err(_) => return None,
        };
        // Another process may have taken the place, and left it or lost its lock.
        let row = place.get().ok()?;
        (!is_its(&row) || place.put_if(row.version(), &[0; ROW_BYTES]).is_ok()).then_some(true)
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
