//! Writing a checkpoint, and going on from one.

use crate::checkpoint::{Checkpoints, Part, Reason};
use crate::error::SpaceError;
use crate::space::Space;
use crate::transport::OWN_INDICES;

/// Counter of ranks that could not do their part.
const REFUSALS: u32 = OWN_INDICES;
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
        let named = if self.rank() == 0 { self.checkpoints.write_root(self.ranks(), entry) } else { Ok(()) };
        self.end_part(step, named)?;
        self.checkpoints.complete(entry);
        Ok(())
    }

    /// Returns the step of the checkpoint from which this space goes on: `None` if it began with zeros.
    #[must_use]
    pub fn restored(&self) -> Option<u64> {
        self.checkpoints.restored()
    }

    /// Returns how many ranks could not do their part.
    fn agree(&mut self, could: bool) -> Result<u64, SpaceError> {
        self.add_own(REFUSALS, u64::from(!could))?;
        self.meet()?;
        let refusals = self.add_own(REFUSALS, 0)?;
        // No rank adds the next one before all have looked.
        self.meet()?;
        Ok(self.checkpoints.new_refusals(refusals))
    }

    /// Ends a part of writing a checkpoint, at all ranks in the same way.
    fn end_part(&mut self, step: u64, ours: Result<(), Reason>) -> Result<(), SpaceError> {
        let ranks = self.agree(ours.is_ok())?;
        ours.map_err(|reason| SpaceError::CheckpointFailed { step, reason })?;
        if ranks > 0 { Err(SpaceError::CheckpointRefused { step, ranks }) } else { Ok(()) }
    }

    /// Reads the last complete checkpoint: that of the attempt which rank 0 has named, or the one before it.
    pub(crate) fn restore(&mut self, attempt: u64) -> Result<(), SpaceError> {
        if attempt == 0 {
            return Ok(());
        }
        let root = self.checkpoints.find_root(self.ranks());
        if Checkpoints::is_unusable(attempt) {
            // All say why, and none takes another one's end for the reason.
            self.meet()?;
            return Err(root.err().unwrap_or(SpaceError::CheckpointDamaged));
        }
        let root = root.and_then(|root| root.ok_or(SpaceError::CheckpointDamaged));
        if self.agree(root.is_ok())? > 0 {
            return Err(root.err().unwrap_or(SpaceError::CheckpointDamaged));
        }
        for entry in root?.entries() {
            let part = self.checkpoints.open_part(entry);
            if self.agree(part.is_some())? > 0 {
                continue;
            }
            let filled = part.map_or(Ok(()), |part| self.fill(&part));
            let refusals = self.agree(filled.is_ok())?;
            filled.map_err(SpaceError::CheckpointUnreadable)?;
            if refusals > 0 {
                return Err(SpaceError::CheckpointDamaged);
            }
            self.checkpoints.restore(entry, attempt);
            return Ok(());
        }
        Err(SpaceError::CheckpointDamaged)
    }

    /// Writes the pages of a part: this rank becomes their home again.
    fn fill(&mut self, part: &Part) -> Result<(), Reason> {
        let all = self.whole();
        for first in (0..part.pages.len()).step_by(PAGES_EACH) {
            let pages = &part.pages[first..part.pages.len().min(first + PAGES_EACH)];
            let mut done = 0;
            for run in pages.chunk_by(|page, next| page + 1 == *next) {
                let start = run[0] as usize;
                let mut view = all.write(self, start..start + run.len())?;
                part.read(first + done, view.as_flattened_mut())?;
                done += run.len();
            }
            for _ in 0..FLUSHES {
                self.place()?;
            }
        }
        Ok(())
    }
}
