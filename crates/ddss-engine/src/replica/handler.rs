//! Handler of what other homes send to their replicas here.

use crate::commits::handler::Commits;
use crate::config::Counters;
use crate::state::memory::uploads::Uploads;
use crate::state::output::Output;
use crate::state::replication::Replicas;
use crate::state::segments::Segments;
use crate::uploads::memory::UploadMemory;
use ddss_core::HybridClock;

/// Borrows the segments, among them the replicas, and what a commit needs.
pub(crate) struct ReplicaStore<'a> {
    pub(crate) segments: &'a mut Segments,
    pub(crate) replicas: &'a mut Replicas,
    /// Large puts whose parts arrive.
    pub(crate) uploads: &'a mut Uploads,
    pub(crate) clock: &'a mut HybridClock,
    pub(crate) counters: &'a mut Counters,
    pub(crate) output: &'a mut Output,
}

impl ReplicaStore<'_> {
    pub(super) fn commits(&mut self) -> Commits<'_> {
        let ReplicaStore { segments, uploads, clock, counters, output, .. } = self;
        Commits { segments, uploads, clock, counters, output }
    }

    pub(super) fn upload_memory(&mut self) -> UploadMemory<'_> {
        UploadMemory { segments: self.segments, uploads: self.uploads }
    }
}
