//! Checkpoints of a space, as one rank knows them.

use super::format::{Entry, Root};
use super::store::{Part, Reason, Store};
use crate::error::SpaceError;
use crate::transport::HomeFrames;
use ddss::Client;
use std::time::Duration;

/// Number of a checkpoint that rank 0 cannot use.
const UNUSABLE: u64 = u64::MAX;

/// Checkpoints of a space, as one rank knows them.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    store: Store,
    frames: HomeFrames,
    /// The last complete one, and the one before it.
    complete: [Entry; 2],
    /// Number of the last attempt.
    attempt: u64,
    /// Step of the checkpoint from which the space was restored.
    restored: Option<u64>,
    /// Value of the counter of refusals when all ranks looked last.
    refusals: u64,
}

impl Checkpoints {
    pub(crate) fn new(client: &Client, space: &str, rank: u16, frames: HomeFrames, patience: Duration) -> Self {
        let store = Store::new(client.clone(), space, rank, patience);
        Self { store, frames, complete: [Entry::default(); 2], attempt: 0, restored: None, refusals: 0 }
    }

    /// Returns the attempt of the last complete checkpoint of a space with so many ranks: 0 if there is none.
    pub(crate) fn find(&self, ranks: u16) -> u64 {
        match self.find_root(ranks) {
            Ok(root) => root.and_then(|root| root.entries().next()).map_or(0, |entry| entry.attempt()),
            Err(_) => UNUSABLE,
        }
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

    /// Returns true if rank 0 has found a checkpoint that it cannot use.
    pub(crate) fn is_unusable(attempt: u64) -> bool {
        attempt == UNUSABLE
    }

    /// Returns the step from which the space was restored.
    pub(crate) fn restored(&self) -> Option<u64> {
        self.restored
    }

    /// Writes the part of this rank in the next checkpoint. Returns its entry in the root.
    pub(crate) fn write_part(&mut self, step: u64) -> (Entry, Result<(), Reason>) {
        self.attempt += 1;
        let entry = Entry::new(self.attempt, step, self.free_slot());
        (entry, self.store.write_part(&entry, &self.frames))
    }

    /// Names a checkpoint that all ranks have written.
    pub(crate) fn write_root(&self, ranks: u16, entry: Entry) -> Result<(), Reason> {
        let (pages, page_bytes) = (self.frames.pages(), self.frames.page_bytes() as u32);
        self.store.write_root(&Root::new(ranks, pages, page_bytes, [entry, self.complete[0]]))
    }

    /// Records a checkpoint that is named.
    pub(crate) fn complete(&mut self, entry: Entry) {
        self.complete = [entry, self.complete[0]];
    }

    /// Records the checkpoint from which the space was restored, and the last attempt.
    pub(crate) fn restore(&mut self, entry: Entry, attempt: u64) {
        (self.restored, self.complete, self.attempt) = (Some(entry.step()), [entry, Entry::default()], attempt);
    }

    /// Opens the part of this rank in a checkpoint, if it is complete. Whatever the reason is: all ranks try the one before it.
    pub(crate) fn open_part(&self, entry: Entry) -> Option<Part> {
        self.store.open_part(&entry, &self.frames).unwrap_or(None)
    }

    /// Returns the refusals since all ranks looked last, from the value of their counter.
    pub(crate) fn new_refusals(&mut self, counter: u64) -> u64 {
        counter.wrapping_sub(std::mem::replace(&mut self.refusals, counter))
    }

    /// Releases the checkpoints of a space with so many ranks, if there are any.
    pub(crate) fn release(&self, ranks: u16) -> Result<(), SpaceError> {
        if self.attempt == 0 {
            return Ok(());
        }
        self.store.release_all(ranks).map_err(SpaceError::CheckpointUnreadable)
    }
}
