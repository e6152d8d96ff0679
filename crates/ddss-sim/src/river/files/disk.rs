//! A disk with a rate and a seek time.

use super::plan::DiskPlan;
use ddss_river_core::PartId;

/// A disk.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    plan: DiskPlan,
    /// The chunk behind the last one that was read.
    next: Option<(PartId, u32)>,
}

impl Disk {
    pub(crate) const fn new(plan: DiskPlan) -> Self {
        Self { plan, next: None }
    }

    /// Reads a chunk. Returns the time: a seek is needed unless the chunk follows the last one.
    pub(crate) fn read_us(&mut self, part: PartId, chunk: u32) -> u64 {
        let has_seek = self.next.replace((part, chunk + 1)) != Some((part, chunk));
        self.plan.chunk_us + if has_seek { self.plan.seek_us } else { 0 }
    }
}
