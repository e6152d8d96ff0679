//! Calls of the table, which wait for nodes and daemons that are away.

use super::rows::{CURSOR, FIRST_UNIT, QueueRow, STATE, Settings, StoredUnit, Writer, encode_state, encode_unit};
use crate::error::QueueError;
use ddss::{Error, ErrorKind, LockGuard, LockOptions, PutOptions, Row, Table, Value, Version};
use ddss_river_core::{PutResult, UnitRow};
use std::time::{Duration, Instant};

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// Lease of the lock under which units are added; the client renews it.
const LOCK_LEASE: Duration = Duration::from_secs(10);

/// Table of a unit queue.
#[derive(Clone, Debug)]
pub(super) struct UnitTable {
    pub(super) name: String,
    pub(super) table: Table,
    pub(super) settings: Settings,
    pub(super) writer: Writer,
}

/// End of a call that writes.
enum WriteEnd<T> {
    Done(T),
    /// The row has another version.
    Conflict,
    /// It may have been executed.
    Unknown,
}

/// Reason why a change under the lock did not come to its end.
enum Unfinished {
    /// The lock is lost, or the outcome unknown: begin again.
    Again,
    Failed(QueueError),
}

impl From<QueueError> for Unfinished {
    fn from(error: QueueError) -> Self {
        Self::Failed(error)
    }
}

impl UnitTable {
    /// Returns the units that the table has rows for.
    pub(super) fn capacity(table: &Table) -> u64 {
        table.len().saturating_sub(FIRST_UNIT)
    }

    fn damaged(&self, row: u64) -> QueueError {
        QueueError::Row { queue: self.name.clone(), row }
    }

    /// Reads a row.
    fn read(&self, row: u64, deadline: Instant) -> Result<Value, QueueError> {
        patient(deadline, || match self.table.row(row).get() {
            Err(error) if error.is_retryable() || error.is_indeterminate() => Err(error),
            other => Ok(other),
        })?
        .map_err(QueueError::from)
    }

    /// Writes, and sorts the errors.
    fn write<T>(&self, deadline: Instant, call: impl Fn() -> Result<T, Error>) -> Result<WriteEnd<T>, QueueError> {
        let ended = patient(deadline, || match call() {
            Err(error) if error.is_retryable() => Err(error),
            other => Ok(other),
        })?;
        match ended {
            Ok(done) => Ok(WriteEnd::Done(done)),
            Err(error) if error.is_indeterminate() => Ok(WriteEnd::Unknown),
            Err(error) if error.kind() == ErrorKind::VersionMismatch => Ok(WriteEnd::Conflict),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the description of the queue.
    pub(super) fn state(&self, deadline: Instant) -> Result<QueueRow, QueueError> {
        let row = self.read(STATE, deadline)?;
        QueueRow::decode(&row, Self::capacity(&self.table)).ok_or_else(|| self.damaged(STATE))
    }

    /// Reads a unit and the version of its row.
    pub(super) fn unit(&self, number: u32, deadline: Instant) -> Result<(StoredUnit, u64), QueueError> {
        let at = FIRST_UNIT + u64::from(number);
        let row = self.read(at, deadline)?;
        let stored = StoredUnit::decode(&row, &self.settings).ok_or_else(|| self.damaged(at))?;
        Ok((stored, row.version().0))
    }

    /// Adds one to the cursor. `None` if the outcome is unknown.
    pub(super) fn next_number(&self, deadline: Instant) -> Result<Option<u64>, QueueError> {
        Ok(match self.write(deadline, || self.table.row(CURSOR).word(0).fetch_add(1))? {
            WriteEnd::Done(added) => Some(added.before),
            WriteEnd::Conflict | WriteEnd::Unknown => None,
        })
    }

    /// Waits until the home executes a call that changes nothing. Reads tell nothing of it: they may be made in place, or by
    /// adapters, while it is dead. Returns false if it may not have executed it.
    pub(super) fn probe(&self, deadline: Instant) -> Result<bool, QueueError> {
        // The cursor never has this value.
        let ended = self.write(deadline, || self.table.row(CURSOR).word(0).compare_and_swap(u64::MAX, u64::MAX))?;
        Ok(!matches!(ended, WriteEnd::Unknown))
    }

    /// Ends a repetition of calls whose outcome is unknown.
    pub(super) fn check_deadline(&self, deadline: Instant) -> Result<(), QueueError> {
        let late = Instant::now().saturating_duration_since(deadline);
        if late.is_zero() { Ok(()) } else { Err(QueueError::Unreachable { queue: self.name.clone() }) }
    }

    /// Changes the state of a unit, if its row has that version.
    pub(super) fn put_state(
        &self,
        number: u32,
        row: &UnitRow,
        result: &[u8],
        expected: u64,
        deadline: Instant,
    ) -> Result<PutResult, QueueError> {
        let state = encode_state(row, self.writer);
        let parts = [(0, &state[..]), (self.settings.result_offset() as u64, result)];
        let parts = if result.is_empty() { &parts[..1] } else { &parts[..] };
        let at = FIRST_UNIT + u64::from(number);
        let put = || self.table.row(at).put_with(parts, PutOptions::new().if_version(Version(expected)));
        Ok(match self.write(deadline, put)? {
            WriteEnd::Done(stamp) => PutResult::Done(stamp.version.0),
            WriteEnd::Conflict => PutResult::Conflict,
            WriteEnd::Unknown => PutResult::Unknown,
        })
    }

    /// Adds units: all of them, or none. Returns the number of the first one.
    pub(super) fn add(&self, units: &[&[u8]], deadline: Instant) -> Result<u32, QueueError> {
        self.change(deadline, |state, token| {
            let left = Self::capacity(&self.table).saturating_sub(state.count.into());
            if units.len() as u64 > left {
                let (queue, capacity) = (self.name.clone(), Self::capacity(&self.table));
                return Err(QueueError::Full { queue, capacity, count: state.count }.into());
            }
            let first = state.count;
            for unit in units {
                self.write_unit(state.count, &encode_unit(unit, token, self.writer), token, deadline)?;
                state.count += 1;
            }
            Ok(first)
        })
    }

    /// Opens failed units again. Returns how many.
    pub(super) fn reopen(&self, deadline: Instant) -> Result<u32, QueueError> {
        let mut opened = 0;
        self.change(deadline, |state, _| {
            for number in 0..state.count {
                let (stored, version) = self.unit(number, deadline)?;
                if stored.row.state == ddss_river_core::UnitState::Failed {
                    let row = UnitRow { claims: stored.row.claims, ..UnitRow::NEW };
                    match self.put_state(number, &row, &[], version, deadline)? {
                        PutResult::Done(_) => opened += 1,
                        PutResult::Conflict | PutResult::Unknown => return Err(Unfinished::Again),
                    }
                }
            }
            // Also if none was found: a process may have died before this step, and its units would not be looked at again.
            state.reopened = state.reopened.wrapping_add(1);
            Ok(())
        })?;
        Ok(opened)
    }

    /// Changes the description of the queue under its lock, again and again until it succeeds. Workers read it meanwhile.
    fn change<T>(
        &self,
        deadline: Instant,
        mut attempt: impl FnMut(&mut QueueRow, u64) -> Result<T, Unfinished>,
    ) -> Result<T, QueueError> {
        loop {
            let guard = self.lock(deadline)?;
            let token = guard.token().0;
            let mut state = self.state(deadline)?;
            let first = state.count;
            state.token = token;
            let ended = match attempt(&mut state, token) {
                Ok(done) => self.commit(&guard, &state, first, deadline)?.then_some(done),
                Err(Unfinished::Again) => None,
                Err(Unfinished::Failed(error)) => return Err(error),
            };
            if let Some(done) = ended {
                return Ok(done);
            }
            self.check_deadline(deadline)?;
        }
    }

    fn lock(&self, deadline: Instant) -> Result<LockGuard<Row<'static>>, QueueError> {
        let options = LockOptions::new().lease(LOCK_LEASE).keep_alive();
        let guard = patient(deadline, || match self.table.row(STATE).lock_with(options) {
            // A lock that nobody holds by this guard ends with its lease.
            Err(error) if error.is_retryable() || error.is_indeterminate() => Err(error),
            other => Ok(other),
        })?;
        Ok(guard?)
    }

    /// Writes row 0 under its lock; `first` is the number of the first unit that is added. Returns false if the lock is lost
    /// before.
    fn commit(
        &self,
        guard: &LockGuard<Row<'static>>,
        state: &QueueRow,
        first: u32,
        deadline: Instant,
    ) -> Result<bool, QueueError> {
        match self.write(deadline, || guard.put(&state.encode())) {
            Ok(WriteEnd::Done(_)) => Ok(true),
            Ok(WriteEnd::Conflict | WriteEnd::Unknown) => self.is_committed(state, first, deadline),
            // An earlier attempt of the put may have come first.
            Err(QueueError::Client(error)) if error.kind() == ErrorKind::LockLost => {
                self.is_committed(state, first, deadline)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns true if row 0 has this change, and perhaps later ones.
    fn is_committed(&self, state: &QueueRow, first: u32, deadline: Instant) -> Result<bool, QueueError> {
        let found = self.state(deadline)?;
        let token = if found.count > first { self.unit(first, deadline)?.0.token } else { 0 };
        Ok(state.is_part_of(&found, first, token))
    }

    /// Writes the row of a unit that is not counted yet, whatever a process that died left in it.
    fn write_unit(&self, number: u32, bytes: &[u8], token: u64, deadline: Instant) -> Result<(), Unfinished> {
        let (at, mut version) = (FIRST_UNIT + u64::from(number), Version(0));
        loop {
            match self.write(deadline, || self.table.row(at).put_if(version, bytes))? {
                WriteEnd::Done(_) => return Ok(()),
                WriteEnd::Conflict | WriteEnd::Unknown => {}
            }
            let found = self.read(at, deadline)?;
            version = found.version();
            let is_empty = found.iter().all(|byte| *byte == 0);
            match StoredUnit::decode(&found, &self.settings) {
                None if !is_empty => return Err(self.damaged(at).into()),
                // This process has lost the lock, and another one adds units.
                Some(stored) if stored.token > token => return Err(Unfinished::Again),
                _ => self.check_deadline(deadline)?,
            }
        }
    }
}

/// Repeats a call while it fails in passing, up to the deadline.
fn patient<T>(deadline: Instant, mut call: impl FnMut() -> Result<T, Error>) -> Result<T, QueueError> {
    loop {
        match call() {
            Ok(done) => return Ok(done),
            Err(error) if Instant::now() >= deadline => return Err(error.into()),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}
