//! Observation of the lock of a place.

use crate::directory::lock_row_of;
use crate::member::Member;
use ddss::{Error, ErrorKind, LockOptions, Table};
use std::time::{Duration, Instant};

/// Time for which a place that others probe may seem to be taken.
pub(crate) const PROBE_MAX: Duration = Duration::from_secs(1);

/// Returns the time for which the lock of a place is free before its process is taken for dead. A living process whose lock
/// ended with the lock's home takes it again within a third of its lease.
pub(crate) fn free_min(lease: Duration) -> Duration {
    lease / 3 + PROBE_MAX
}

/// Returns true if a process holds the lock. A home that does not answer in time says nothing of it.
pub(crate) fn is_taken(error: &Error) -> bool {
    error.kind() == ErrorKind::Locked
}

/// Returns the options of a lock that keeps the process of a place from its lock for a moment, and no other process that asks.
pub(crate) fn probing() -> LockOptions {
    LockOptions::new().shared().lease(PROBE_MAX).timeout(Duration::ZERO)
}

/// Observation of the lock of a place, while one process has the place.
#[derive(Clone, Default, Debug)]
pub(crate) struct Probe {
    /// Run of the process.
    run: u32,
    free_since: Option<Instant>,
    /// Reads in a row that found the lock held.
    held: u32,
}

impl Probe {
    /// Reads in a row from which a member holds the lock, and not a process that probes it.
    const HELD_MIN: u32 = 3;

    /// Begins again if another process has the place.
    pub(crate) fn observe(&mut self, run: u32) {
        if self.run != run {
            *self = Self { run, ..Self::default() };
        }
    }

    /// Returns true if no process holds the lock. The lock is shared for the moment of the question: processes that ask at the same
    /// time do not take each other for its holder.
    ///
    /// # Errors
    /// The error of the call: then nothing is known of the lock.
    pub(crate) fn is_free(&mut self, table: &Table, member: Member, members: u16) -> Result<bool, Error> {
        match table.row(lock_row_of(member, members)).lock_with(probing()) {
            Ok(_) => {
                self.held = 0;
                self.free_since.get_or_insert_with(Instant::now);
                Ok(true)
            }
            Err(error) if is_taken(&error) => {
                self.held += 1;
                if self.is_held() {
                    self.free_since = None;
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns true if a member holds the lock.
    pub(crate) fn is_held(&self) -> bool {
        self.held >= Self::HELD_MIN
    }

    /// Returns true if the lock was free at a read, and was not found held since.
    pub(crate) fn has_been_free(&self) -> bool {
        self.free_since.is_some()
    }

    /// Returns true if the lock is free for so long that its process is dead.
    pub(crate) fn is_dead(&self, lease: Duration) -> bool {
        self.free_since.is_some_and(|since| since.elapsed() >= free_min(lease))
    }
}
