//! Writing a checkpoint, and going on from one.

use crate::checkpoint::{Part, Reason, Root};
use crate::error::SpaceError;
use crate::space::Space;
use crate::transport::OWN_INDICES;

/// Counter and semaphore with which the ranks agree.
const AGREEMENT: u32 = OWN_INDICES;
/// Count of rank 0 for a root that it cannot use.
const UNUSABLE: u64 = u64::MAX;
/// Count of a rank for a damaged part.
const DAMAGED: u64 = 1;
/// Count of a rank for a part that it cannot read for now.
const UNREADABLE: u64 = 1 << 32;
/// Pages that are restored between two flushes: their twins take memory.
const PAGES_EACH: usize = 4096;
/// Flushes behind which a page that is not written any more has no twin.
const FLUSHES: usize = 3;

impl Space {
    /// Writes a checkpoint of all pages: a barrier, at which all ranks call it with the same step of the program. The next
    /// [`join`](Self::join) of this name goes on from the last complete one, until all ranks [`leave`](Self::leave).
    ///
    /// ```no_run
    /// # use ddss_dsm::{Homes, Launch, Space};
    /// # fn compute(_: &mut Space, _: u64) -> Result<(), ddss_dsm::SpaceError> { Ok(()) }
    /// let launch = Launch::from_environment()?;
    /// let client = ddss::Client::connect()?;
    /// let mut space = Space::join(&client, &launch.space, launch.options(64 << 20))?;
    /// for step in space.restored().unwrap_or(0)..1000 {
    ///     compute(&mut space, step)?;
    ///     if (step + 1) % 100 == 0 {
    ///         space.checkpoint(step + 1)?;
    ///     }
    /// }
    /// space.leave()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Pages are in it; counters, semaphores and locks are not. It lies in segments of the daemons: in two copies if
    /// there are two nodes.
    ///
    /// # Errors
    /// A part could not be written, such as for lack of memory: [`CheckpointFailed`](SpaceError::CheckpointFailed) at its rank,
    /// [`CheckpointRefused`](SpaceError::CheckpointRefused) at the others. The checkpoint before it stays, and the space goes on. Else
    /// the space has ended.
    pub fn checkpoint(&mut self, step: u64) -> Result<(), SpaceError> {
        self.place()?;
        self.meet()?;
        let (entry, written) = self.checkpoints.write_part(step);
        self.end_part(step, written)?;
        let named = if self.rank() == 0 { self.write_root(entry) } else { Ok(()) };
        self.end_part(step, named)?;
        self.checkpoints.complete(entry);
        Ok(())
    }

    /// Returns the step of the checkpoint from which this space goes on: `None` if it began with zeros.
    #[must_use]
    pub fn restored(&self) -> Option<u64> {
        self.checkpoints.restored()
    }

    /// Returns the sum of what all ranks count.
    fn agree(&mut self, ours: u64) -> Result<u64, SpaceError> {
        self.add_own(AGREEMENT, ours)?;
        self.meet()?;
        let counter = self.add_own(AGREEMENT, 0)?;
        // No rank adds the next one before all have looked.
        self.meet()?;
        Ok(self.checkpoints.new_count(counter))
    }

    /// Returns what rank 0 counts. The others may wait for it as long as in [`meet`](Self::meet), and it costs no barrier.
    fn spread(&mut self, ours: u64) -> Result<u64, SpaceError> {
        if self.rank() == 0 {
            self.add_own(AGREEMENT, ours)?;
            (1..self.ranks()).try_for_each(|_| self.post_own(AGREEMENT))?;
        } else {
            self.wait_own(AGREEMENT)?;
        }
        let counter = self.add_own(AGREEMENT, 0)?;
        Ok(self.checkpoints.new_count(counter))
    }

    /// Ends a part of writing a checkpoint, at all ranks in the same way.
    fn end_part(&mut self, step: u64, ours: Result<(), Reason>) -> Result<(), SpaceError> {
        let ranks = self.agree(u64::from(ours.is_err()))?;
        ours.map_err(|reason| SpaceError::CheckpointFailed { step, reason })?;
        if ranks > 0 { Err(SpaceError::CheckpointRefused { step, ranks }) } else { Ok(()) }
    }

    /// Reads the last complete checkpoint, or the one before it if a part is damaged. Fails at all ranks, or at none.
    pub(crate) fn restore(&mut self) -> Result<(), SpaceError> {
        let life = self.life()?;
        self.checkpoints.begin(life);
        // What rank 0 finds counts: mostly nothing, and so no other rank looks.
        let mut root = if self.rank() == 0 { self.checkpoints.find_root(self.ranks()) } else { Ok(None) };
        let last = root.as_ref().map_or(UNUSABLE, |root| root.as_ref().map_or(0, Root::last_attempt));
        let last = self.spread(last)?;
        if last == 0 {
            return Ok(());
        }
        if self.rank() > 0 {
            root = self.checkpoints.find_root(self.ranks());
        }
        // No rank adds to the counter before all have read it.
        self.meet()?;
        let unreadable = self.agree(u64::from(root.is_err()))?;
        // All say why.
        let root = root?.filter(|root| root.last_attempt() == last && unreadable == 0);
        let root = root.ok_or_else(|| unreadable_elsewhere(unreadable))?;
        for entry in root.entries() {
            let part = self.checkpoints.open_part(entry);
            let ours = part.as_ref().map_or(UNREADABLE, |part| if part.is_some() { 0 } else { DAMAGED });
            let all = self.agree(ours)?;
            let part = part.map_err(SpaceError::CheckpointUnreadable)?;
            if all >= UNREADABLE {
                // It may be whole: no rank goes back to an older one.
                return Err(unreadable_elsewhere(all / UNREADABLE));
            }
            let Some(part) = part.filter(|_| all == 0) else { continue };
            let filled = self.fill(&part);
            let unreadable = self.agree(u64::from(filled.is_err()))?;
            filled.map_err(SpaceError::CheckpointUnreadable)?;
            if unreadable > 0 {
                return Err(unreadable_elsewhere(unreadable));
            }
            self.checkpoints.restore(entry);
            return Ok(());
        }
        Err(SpaceError::CheckpointDamaged)
    }

    /// Writes the pages of a part: this rank becomes their home again.
    fn fill(&mut self, part: &Part) -> Result<(), Reason> {
        let (all, end) = (self.whole(), self.checkpoints.deadline());
        for first in (0..part.pages.len()).step_by(PAGES_EACH) {
            let pages = &part.pages[first..part.pages.len().min(first + PAGES_EACH)];
            let mut done = 0;
            for run in pages.chunk_by(|page, next| page + 1 == *next) {
                let start = run[0] as usize;
                let mut view = all.write(self, start..start + run.len())?;
                part.read(first + done, view.as_flattened_mut(), end)?;
                done += run.len();
            }
            for _ in 0..FLUSHES {
                self.place()?;
            }
        }
        Ok(())
    }
}

/// Returns the error of a rank that could read its own part. Without a rank that says why, the root has changed in between.
fn unreadable_elsewhere(ranks: u64) -> SpaceError {
    SpaceError::CheckpointUnreadable(format!("{ranks} of the other ranks say why; start again later").into())
}
