//! Checkpoints of a space, as one rank knows them.

use super::format::{CompleteCheckpoint, Root};
use super::store::{Part, Reason, Store};
use crate::error::SpaceError;
use crate::transport::HomeFrames;
use ddss::Client;
use ddss_group::GroupState;
use std::time::{Duration, Instant};

/// Checkpoints of a space, as one rank knows them.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    store: Store,
    frames: HomeFrames,
    /// The last complete one, and the one before it.
    complete: [CompleteCheckpoint; 2],
    /// Number of the last attempt.
    attempt: u64,
    /// True if there may be segments.
    may_exist: bool,
    /// Step of the checkpoint from which the space was restored.
    restored: Option<u64>,
    /// Value of the counter with which ranks agree, when all of them read it last.
    counted: u64,
}

impl Checkpoints {
    pub(crate) fn new(client: &Client, space: &str, rank: u16, frames: HomeFrames, patience: Duration) -> Self {
        let store = Store::new(client.clone(), space, rank, patience);
        let complete = [CompleteCheckpoint::default(); 2];
        Self { store, frames, complete, attempt: 0, may_exist: false, restored: None, counted: 0 }
    }

    /// Begins a life of the space, which rank 0's random number names. No attempt has a number of another life: a rank that was
    /// stopped in an earlier one leaves no part that fits.
    pub(crate) fn begin(&mut self, life: u32) {
        self.attempt = u64::from(life) << 32;
    }

    /// Reads the root, and refuses one of another shape.
    pub(crate) fn find_root(&self, ranks: u16) -> Result<Option<Root>, SpaceError> {
        let root = self.store.read_root().map_err(SpaceError::CheckpointUnreadable)?;
        if let Some(root) = &root {
            root.compare(ranks, self.frames.pages(), self.frames.page_bytes() as u32)
                .map_err(|(what, theirs, ours)| SpaceError::CheckpointMismatch { what, theirs, ours })?;
        }
        Ok(root)
    }

    /// Returns the slot that does not have the last complete checkpoint.
    fn free_slot(&self) -> u64 {
        if self.complete[0].attempt() == 0 { 0 } else { 1 - self.complete[0].slot() }
    }

    /// Returns the step from which the space was restored.
    pub(crate) fn restored(&self) -> Option<u64> {
        self.restored
    }

    /// Writes the part of this rank in the next checkpoint. Returns its entry in the root.
    pub(crate) fn write_part(&mut self, step: u64) -> (CompleteCheckpoint, Result<(), Reason>) {
        (self.attempt, self.may_exist) = (self.attempt + 1, true);
        let entry = CompleteCheckpoint::new(self.attempt, step, self.free_slot());
        (entry, self.store.write_part(&entry, &self.frames))
    }

    /// Names a checkpoint that all ranks have written.
    pub(crate) fn write_root(
        &self,
        ranks: u16,
        entry: CompleteCheckpoint,
        directory: &GroupState,
    ) -> Result<(), Reason> {
        let (pages, page_bytes) = (self.frames.pages(), self.frames.page_bytes() as u32);
        self.store.write_root(&Root::new(ranks, pages, page_bytes, [entry, self.complete[0]]), directory)
    }

    /// Records a checkpoint that is named.
    pub(crate) fn complete(&mut self, entry: CompleteCheckpoint) {
        self.complete = [entry, self.complete[0]];
    }

    /// Records the checkpoint from which the space was restored.
    pub(crate) fn restore(&mut self, entry: CompleteCheckpoint) {
        (self.restored, self.complete, self.may_exist) =
            (Some(entry.step()), [entry, CompleteCheckpoint::default()], true);
    }

    /// Opens the part of this rank in a checkpoint. `None` if it is damaged, or of another attempt.
    pub(crate) fn open_part(&self, entry: CompleteCheckpoint) -> Result<Option<Part>, Reason> {
        self.store.open_part(&entry, &self.frames)
    }

    /// Returns the time until which calls of one step are repeated.
    pub(crate) fn deadline(&self) -> Instant {
        self.store.deadline()
    }

    /// Returns how much the ranks have counted since all of them looked last, from the value of their counter.
    pub(crate) fn new_count(&mut self, counter: u64) -> u64 {
        counter.wrapping_sub(std::mem::replace(&mut self.counted, counter))
    }

    /// Releases the checkpoints of a space with so many ranks, if there are any.
    pub(crate) fn release(&self, ranks: u16) -> Result<(), SpaceError> {
        if !self.may_exist {
            return Ok(());
        }
        self.store.release_all(ranks).map_err(SpaceError::CheckpointUnreadable)
    }
}
