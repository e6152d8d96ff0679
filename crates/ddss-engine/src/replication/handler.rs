//! Handler of the replica of a segment at home here. It sends and copies, and follows the state of the replica. It executes no
//! operation: work of the home that follows is added to [`Replicas`], and the home does it after the step.

use crate::outgoing_bytes::OutgoingBytes;
use crate::state::memory::uploads::Uploads;
use crate::state::output::Output;
use crate::state::peers::Peers;
use crate::state::replication::Replicas;
use crate::state::segments::Segments;
use crate::uploads::memory::UploadMemory;
use ddss_core::HybridClock;

/// Borrows the state of replicas, and the bytes on their way to them.
pub(crate) struct Replication<'a> {
    pub(crate) segments: &'a mut Segments,
    pub(crate) replicas: &'a mut Replicas,
    pub(crate) peers: &'a mut Peers,
    pub(crate) uploads: &'a mut Uploads,
    pub(crate) clock: &'a mut HybridClock,
    pub(crate) output: &'a mut Output,
}

impl Replication<'_> {
    /// Returns the handler of bytes for other nodes.
    pub(crate) fn outgoing_bytes(&mut self) -> OutgoingBytes<'_> {
        let Self { peers, segments, output, .. } = self;
        OutgoingBytes { peers, segments, output }
    }

    /// Returns the handler of the memory of uploads.
    pub(crate) fn upload_memory(&mut self) -> UploadMemory<'_> {
        UploadMemory { segments: self.segments, uploads: self.uploads }
    }
}

#[cfg(test)]
mod tests;
