//! Memory of uploads. An upload gets its bytes of the pool when it begins. It returns them when its put has ended, when its owner
//! is gone, or when no part arrives for too long.

use crate::config::Now;
use crate::requester::LockOwner;
use crate::state::memory::uploads::{Upload, UploadOwner, Uploads};
use crate::state::segments::Segments;
use ddss_core::{Failure, NodeId, ReplicaAck, SegmentId, Storage, UploadId};

/// Borrows the table of uploads, and the pool that holds their bytes.
pub(crate) struct UploadMemory<'a> {
    pub(crate) segments: &'a mut Segments,
    pub(crate) uploads: &'a mut Uploads,
}

impl UploadMemory<'_> {
    /// Begins the upload of a client.
    pub(crate) fn begin(
        &mut self,
        now: Now,
        owner: UploadOwner,
        id: SegmentId,
        total: u32,
    ) -> Result<UploadId, Failure> {
        self.uploads.admit(owner, total)?;
        let at = self.segments.allocate_blocks(total.into()).ok_or(Failure::NoSpace)?;
        Ok(self.uploads.begin(now.steady_us, owner, id, (at, total)))
    }

    /// Begins the upload of a large put that a home sends to its replica here. The refusal reports whether the room may come
    /// without the home's help.
    pub(crate) fn begin_of_home(
        &mut self,
        now: Now,
        home: NodeId,
        id: SegmentId,
        total: u32,
    ) -> Result<UploadId, ReplicaAck> {
        let place = if self.uploads.has_room(total) { self.segments.allocate_blocks(total.into()) } else { None };
        let free = self.segments.free_bytes(Storage::Memory);
        let may_come = self.uploads.may_leave_room(total, free);
        let place = place.ok_or(if may_come { ReplicaAck::Busy } else { ReplicaAck::NoRoom })?;
        Ok(self.uploads.begin(now.steady_us, UploadOwner::of_home(home), id, (place, total)))
    }

    /// Drops one upload of an owner, or with a number of zero all.
    pub(crate) fn drop_upload(&mut self, owner: UploadOwner, which: UploadId) {
        let is_named = |id: UploadId| which == UploadId(0) || id == which;
        self.drop_all(|id, upload| upload.owner == owner && is_named(id));
    }

    /// Drops an upload, whoever owns it.
    pub(crate) fn drop_one(&mut self, which: UploadId) {
        self.drop_all(|id, _| id == which);
    }

    /// Drops the parts of a large put that will not be completed.
    pub(crate) fn drop_incoming(&mut self, id: SegmentId) {
        let Some((_, upload)) = self.segments.replication_of(id).and_then(|replication| replication.incoming.take())
        else {
            return;
        };
        self.drop_one(upload);
    }

    /// Drops the uploads of a client of this node or of a peer, which is gone.
    pub(crate) fn drop_of(&mut self, here: NodeId, owner: LockOwner) {
        self.drop_all(|_, upload| match owner {
            LockOwner::Client(client) => upload.owner == UploadOwner { node: here, client },
            LockOwner::Peer(node) => upload.owner.node == node,
        });
    }

    fn drop_all(&mut self, matches: impl Fn(UploadId, &Upload) -> bool) {
        while let Some(upload) = self.uploads.take_first(&matches) {
            self.segments.free_blocks(upload.at, upload.bytes.into());
        }
    }

    /// Drops the uploads without a new part for too long.
    pub(crate) fn expire(&mut self, now: Now) {
        while let Some(upload) = self.uploads.take_expired(now.steady_us) {
            self.segments.free_blocks(upload.at, upload.bytes.into());
        }
    }

    /// Frees the bytes of an upload whose put has ended.
    pub(crate) fn free_at(&mut self, at: u64) {
        if let Some(bytes) = self.uploads.remove_at(at) {
            self.segments.free_blocks(at, bytes.into());
        }
    }
}

#[cfg(test)]
mod tests;
