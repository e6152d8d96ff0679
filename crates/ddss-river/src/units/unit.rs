//! A unit that this process has claimed.

use super::renewal::Held;
use super::session::{Session, after};
use crate::error::QueueError;
use ddss_river_core::{UnitAction, Worker};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Reason of a unit that is dropped before its end.
const DROPPED: &[u8] = b"its worker dropped it";

/// A claimed unit, and the duty to end it. If it is dropped before, or its process dies, another worker gets it; the third
/// time it has [failed](crate::UnitStatus::Failed).
pub struct Unit {
    pub(super) session: Arc<Session>,
    pub(super) held: Arc<Held>,
    /// Key of the renewal.
    pub(super) key: u64,
    pub(super) number: u32,
    pub(super) attempt: u16,
    pub(super) bytes: Vec<u8>,
    pub(super) timeout: Duration,
}

impl Unit {
    /// Returns the bytes of the unit.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of the unit: from 0 on, in the order in which units were added.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the number of the attempt, from 1 on. An earlier worker may have done a part of a unit with a higher one.
    #[must_use]
    pub fn attempt(&self) -> u16 {
        self.attempt
    }

    /// Returns true once it is known that another worker has the unit: this process was stopped, or cut off from the queue,
    /// for longer than the lease.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.held.is_fenced()
    }

    /// Ends the unit with a result, which [`UnitQueue::list`](crate::UnitQueue::list) shows.
    ///
    /// # Errors
    /// [`QueueError::UnitFenced`]: another worker has the unit, and nothing has changed. The result is too long, and the unit
    /// goes on. The unit has ended before. Or a call failed: then the unit may be done, or another worker gets it.
    pub fn done(&self, result: &[u8]) -> Result<(), QueueError> {
        let (bytes, max) = (result.len(), self.session.table.settings.result_bytes_max as usize);
        if bytes > max {
            return Err(QueueError::ResultTooLong { queue: self.session.table.name.clone(), bytes, max });
        }
        self.end(result, |worker, out| worker.finish(bytes, out))
    }

    /// Gives the unit up, with a reason that is cut to the length of a result. Another worker gets it; the third time it has
    /// failed.
    ///
    /// # Errors
    /// As for [`done`](Self::done).
    pub fn fail(&self, reason: &[u8]) -> Result<(), QueueError> {
        let reason = &reason[..reason.len().min(self.session.table.settings.result_bytes_max as usize)];
        self.end(reason, |worker, out| worker.fail(reason.len(), out))
    }

    /// Gives the unit back as it was: its end here counts as no failure.
    ///
    /// # Errors
    /// As for [`done`](Self::done).
    pub fn give_back(&self) -> Result<(), QueueError> {
        self.end(&[], Worker::release)
    }

    fn end(&self, result: &[u8], end: impl FnOnce(&mut Worker, &mut Vec<UnitAction>)) -> Result<(), QueueError> {
        let (queue, unit) = (self.session.table.name.clone(), self.number);
        let Some(mut work) = self.held.take() else { return Err(QueueError::UnitEnded { queue, unit }) };
        self.session.renewals.remove(self.key);
        let deadline = after(self.timeout);
        let ended = work.search.end(&self.session.table, result, end, deadline)?;
        self.session.keep(work.search);
        match ended {
            UnitAction::Finished(_) => Ok(()),
            _ => Err(QueueError::UnitFenced { queue, unit }),
        }
    }
}

impl fmt::Debug for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, attempt, bytes, .. } = self;
        f.debug_struct("Unit").field("number", number).field("attempt", attempt).field("bytes", &bytes.len()).finish()
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        // Without success the lease ends, and another worker gets it then.
        let _ = self.fail(DROPPED);
    }
}
