//! Uploads: the parts of large puts, until one commit makes them a version.

use crate::requester::Requester;
use ddss_core::limits::{BLOCK_BYTES, TRANSFER_BYTES_MAX, UPLOAD_IDLE_US, UPLOADS_PER_CLIENT_MAX};
use ddss_core::{ClientId, Failure, Limit, NodeId, SegmentId, Timestamp, UploadId, Version};
use std::collections::BTreeMap;

/// Owner of an upload: a client, and the node that it is attached to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UploadOwner {
    pub(crate) node: NodeId,
    pub(crate) client: ClientId,
}

impl UploadOwner {
    /// No client has this id.
    const NO_CLIENT: ClientId = ClientId { index: u32::MAX, generation: u32::MAX };

    /// Returns the owner of the large puts that a home sends to its replica here.
    pub(crate) fn of_home(node: NodeId) -> Self {
        Self { node, client: Self::NO_CLIENT }
    }

    fn is_home(self) -> bool {
        self.client == Self::NO_CLIENT
    }
}

/// One large put whose parts arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Upload {
    pub(crate) owner: UploadOwner,
    pub(crate) segment: SegmentId,
    /// Pool offset of the bytes.
    pub(crate) at: u64,
    /// Bytes of the whole value.
    pub(crate) bytes: u32,
    /// Bytes that have arrived, from the first one on.
    pub(crate) stored: u32,
    /// True from the commit request on: the operation frees the bytes.
    is_committing: bool,
    expires_us: u64,
}

/// A large commit that the daemon executes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LargeCommit {
    /// `None` at a replica, and after the deadline of the put.
    pub(crate) requester: Option<Requester>,
    /// Offset of the first byte in the segment, and the length.
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    /// Pool offset of the new bytes.
    pub(crate) from: u64,
    pub(crate) version: Version,
    pub(crate) timestamp: Timestamp,
    /// At a replica: the home that waits for it, and the epoch of that home.
    pub(crate) acknowledges: Option<(NodeId, u32)>,
    /// The replica is dropped at the end.
    pub(crate) is_drop_deferred: bool,
    /// The memory of the undo log is reserved.
    pub(crate) has_undo: bool,
}

/// All uploads of this node, with bounds over their memory.
#[derive(Debug)]
pub(crate) struct Uploads {
    by_id: BTreeMap<UploadId, Upload>,
    last: UploadId,
    bytes: u64,
    bytes_max: u64,
    /// Bytes of the largest value that is committed at once.
    pub(crate) at_once_max: u32,
}

impl Uploads {
    /// Creates the table of a node. The uploads of all clients take at most half of its pool, and so do those of homes:
    /// clients here cannot keep large puts from replicas.
    ///
    /// `first` differs in each daemon: a peer that has not noticed a restart names no upload of the new daemon.
    pub(crate) fn new(pool_bytes: u64, first: u32) -> Self {
        Self {
            by_id: BTreeMap::new(),
            last: UploadId(first),
            bytes: 0,
            bytes_max: pool_bytes / 2,
            at_once_max: TRANSFER_BYTES_MAX as u32,
        }
    }

    /// Checks that a client may begin an upload of `bytes` bytes: a client gets at most half of the memory of all.
    pub(crate) fn admit(&self, owner: UploadOwner, bytes: u32) -> Result<(), Failure> {
        let bytes = u64::from(bytes);
        let own = self.by_id.values().filter(|upload| upload.owner == owner);
        let (count, own_bytes) = own.fold((0, 0), |(count, sum), upload| (count + 1, sum + u64::from(upload.bytes)));
        let has_room = self.bytes_of(false) + bytes <= self.bytes_max && own_bytes + bytes <= self.bytes_max / 2;
        match has_room {
            false => Err(Failure::UploadsFull),
            true if count >= UPLOADS_PER_CLIENT_MAX => Err(Failure::Busy(Limit::Uploads)),
            true => Ok(()),
        }
    }

    /// Returns true if the uploads of homes have room for `bytes` bytes more.
    pub(crate) fn has_room(&self, bytes: u32) -> bool {
        self.bytes_of(true) + u64::from(bytes) <= self.bytes_max
    }

    /// Returns true if the uploads of homes may have room for `bytes` bytes once these uploads end, with so many free
    /// bytes in the pool now.
    pub(crate) fn may_leave_room(&self, bytes: u32, free: u64) -> bool {
        let held: u64 = self.by_id.values().map(|upload| in_blocks(upload.bytes)).sum();
        held > 0 && u64::from(bytes) <= self.bytes_max && in_blocks(bytes) <= free + held
    }

    /// Returns the bytes of the uploads of homes, or of clients.
    fn bytes_of(&self, homes: bool) -> u64 {
        let uploads = self.by_id.values().filter(|upload| upload.owner.is_home() == homes);
        uploads.map(|upload| u64::from(upload.bytes)).sum()
    }

    /// Adds an upload without parts, whose bytes will be at that place.
    pub(crate) fn begin(
        &mut self,
        now_us: u64,
        owner: UploadOwner,
        segment: SegmentId,
        (at, bytes): (u64, u32),
    ) -> UploadId {
        loop {
            self.last = UploadId(self.last.0.wrapping_add(1));
            if self.last.0 != 0 && !self.by_id.contains_key(&self.last) {
                break;
            }
        }
        let expires_us = now_us.saturating_add(UPLOAD_IDLE_US);
        let upload = Upload { owner, segment, at, bytes, stored: 0, is_committing: false, expires_us };
        self.by_id.insert(self.last, upload);
        self.bytes += u64::from(bytes);
        assert!(self.bytes <= 2 * self.bytes_max, "uploads are bounded");
        self.last
    }

    /// Records the next part; returns the pool offset for its bytes.
    pub(crate) fn append(
        &mut self,
        now_us: u64,
        id: UploadId,
        (owner, segment): (UploadOwner, SegmentId),
        (at, length): (u32, u32),
    ) -> Result<u64, Failure> {
        let upload = self.open_upload(id, owner, segment)?;
        let is_next = at == upload.stored && length <= upload.bytes - upload.stored;
        if !is_next {
            return Err(Failure::Malformed);
        }
        upload.stored += length;
        upload.expires_us = now_us.saturating_add(UPLOAD_IDLE_US);
        Ok(upload.at + u64::from(at))
    }

    /// Hands a complete upload to its commit; returns place and length.
    pub(crate) fn commit(
        &mut self,
        id: UploadId,
        owner: UploadOwner,
        segment: SegmentId,
    ) -> Result<(u64, u32), Failure> {
        let upload = self.open_upload(id, owner, segment)?;
        if upload.stored != upload.bytes {
            return Err(Failure::Malformed);
        }
        upload.is_committing = true;
        Ok((upload.at, upload.bytes))
    }

    fn open_upload(&mut self, id: UploadId, owner: UploadOwner, segment: SegmentId) -> Result<&mut Upload, Failure> {
        let upload = self.by_id.get_mut(&id).filter(|upload| upload.owner == owner && upload.segment == segment);
        upload.filter(|upload| !upload.is_committing).ok_or(Failure::UploadGone)
    }

    /// Leaves the upload at that place without an owner, to be dropped after some time.
    pub(crate) fn abandon(&mut self, now_us: u64, at: u64) {
        if let Some(upload) = self.by_id.values_mut().find(|upload| upload.at == at) {
            upload.owner = UploadOwner::of_home(NodeId::NONE);
            (upload.is_committing, upload.expires_us) = (false, now_us.saturating_add(UPLOAD_IDLE_US));
        }
    }

    /// Removes the upload whose bytes are at that place; returns its length.
    pub(crate) fn remove_at(&mut self, at: u64) -> Option<u32> {
        let id = self.by_id.iter().find_map(|(&id, upload)| (upload.at == at).then_some(id))?;
        self.remove(id).map(|upload| upload.bytes)
    }

    fn remove(&mut self, id: UploadId) -> Option<Upload> {
        let upload = self.by_id.remove(&id)?;
        self.bytes -= u64::from(upload.bytes);
        Some(upload)
    }

    /// Removes the first upload that matches and is not being committed.
    pub(crate) fn take_first(&mut self, matches: impl Fn(UploadId, &Upload) -> bool) -> Option<Upload> {
        let mut all = self.by_id.iter();
        let id = all.find_map(|(&id, upload)| (!upload.is_committing && matches(id, upload)).then_some(id))?;
        self.remove(id)
    }

    /// Removes the first upload that has waited too long for its next part.
    pub(crate) fn take_expired(&mut self, now_us: u64) -> Option<Upload> {
        if self.by_id.is_empty() {
            return None;
        }
        self.take_first(|_, upload| upload.expires_us <= now_us)
    }

    /// Returns the number of uploads, and their bytes.
    pub(crate) fn usage(&self) -> (usize, u64) {
        (self.by_id.len(), self.bytes)
    }
}

/// Returns the bytes that a value takes in the pool.
fn in_blocks(bytes: u32) -> u64 {
    u64::from(bytes).next_multiple_of(BLOCK_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: SegmentId = SegmentId::from_bits(7);

    fn owner(index: u32) -> UploadOwner {
        UploadOwner { node: NodeId(1), client: ClientId { index, generation: 1 } }
    }

    #[test]
    fn parts_follow_each_other_and_only_their_owner_commits_them() {
        // If this broke, a put would commit bytes that never arrived, or those of another client.
        let mut uploads = Uploads::new(4000, 0);
        uploads.admit(owner(1), 1000).unwrap();
        let id = uploads.begin(0, owner(1), SEGMENT, (4096, 1000));
        let own = (owner(1), SEGMENT);
        assert_eq!(uploads.append(0, id, own, (0, 600)), Ok(4096));
        assert_eq!(uploads.append(0, id, own, (0, 400)), Err(Failure::Malformed));
        assert_eq!(uploads.append(0, id, own, (600, 401)), Err(Failure::Malformed));
        assert_eq!(uploads.append(0, id, (owner(2), SEGMENT), (600, 400)), Err(Failure::UploadGone));
        assert_eq!(uploads.commit(id, owner(1), SEGMENT), Err(Failure::Malformed));
        assert_eq!(uploads.append(0, id, own, (600, 400)), Ok(4096 + 600));
        assert_eq!(uploads.commit(id, owner(2), SEGMENT), Err(Failure::UploadGone));
        assert_eq!(uploads.commit(id, owner(1), SEGMENT), Ok((4096, 1000)));
        assert_eq!(uploads.commit(id, owner(1), SEGMENT), Err(Failure::UploadGone), "it is committed once");
        assert!(uploads.take_first(|_, _| true).is_none(), "the commit still reads its bytes");
        assert_eq!((uploads.remove_at(4096), uploads.usage()), (Some(1000), (0, 0)));
    }

    #[test]
    fn parts_for_an_earlier_daemon_join_no_upload() {
        // If this broke, a home that restarts unnoticed would mix two values of one client.
        let (mut earlier, mut later) = (Uploads::new(4000, u32::MAX - 1), Uploads::new(4000, 7_000_000));
        let own = (owner(1), SEGMENT);
        for _ in 0..3 {
            let id = earlier.begin(0, own.0, SEGMENT, (4096, 100));
            later.begin(0, own.0, SEGMENT, (4096, 100));
            assert_eq!(later.append(0, id, own, (0, 100)), Err(Failure::UploadGone), "{id:?}");
        }
    }

    #[test]
    fn memory_of_uploads_is_bounded_for_a_client_and_for_the_node() {
        // If this broke, one client's large puts would fill the memory of the node.
        let mut uploads = Uploads::new(4000, 0);
        assert_eq!(uploads.admit(owner(1), 1001), Err(Failure::UploadsFull), "a quarter for one client");
        for client in 1..=2 {
            uploads.admit(owner(client), 1000).unwrap();
            uploads.begin(5, owner(client), SEGMENT, (u64::from(client) * 4096, 1000));
        }
        assert_eq!(uploads.admit(owner(3), 1), Err(Failure::UploadsFull), "a half for all");
        assert!(uploads.take_expired(4 + UPLOAD_IDLE_US).is_none());
        assert!(uploads.take_expired(5 + UPLOAD_IDLE_US).is_some() && uploads.admit(owner(3), 1).is_ok());
        for part in 0..UPLOADS_PER_CLIENT_MAX as u64 {
            uploads.admit(owner(4), 1).unwrap();
            uploads.begin(5, owner(4), SEGMENT, (1 << 20 | part << 12, 1));
        }
        assert_eq!(uploads.admit(owner(4), 1), Err(Failure::Busy(Limit::Uploads)));
    }

    #[test]
    fn uploads_of_clients_leave_room_for_those_of_homes() {
        // If this broke, one user's large puts here would fail those of others whose replicas are on this node.
        let mut uploads = Uploads::new(4000, 0);
        for client in 1..=2 {
            uploads.begin(0, owner(client), SEGMENT, (u64::from(client) * 4096, 1000));
        }
        assert_eq!(uploads.admit(owner(3), 1), Err(Failure::UploadsFull));
        assert!(uploads.has_room(2000) && !uploads.has_room(2001));
        uploads.begin(0, UploadOwner::of_home(NodeId(2)), SEGMENT, (1 << 20, 2000));
        assert!(!uploads.has_room(1));
        assert!(uploads.take_first(|_, upload| upload.owner == owner(1)).is_some());
        assert_eq!(uploads.admit(owner(3), 1000), Ok(()), "those of homes leave room for those of clients");
    }

    #[test]
    fn abandoned_upload_is_kept_for_a_while_and_belongs_to_nobody() {
        // If this broke, the memory of a put on its way to a replica would be given to another, or never be free again.
        let mut uploads = Uploads::new(4000, 0);
        assert!(uploads.has_room(2000) && !uploads.has_room(2001));
        let id = uploads.begin(0, owner(1), SEGMENT, (4096, 1000));
        assert_eq!(uploads.append(0, id, (owner(1), SEGMENT), (0, 1000)), Ok(4096));
        uploads.commit(id, owner(1), SEGMENT).unwrap();
        uploads.abandon(7, 4096);
        assert_eq!(uploads.commit(id, owner(1), SEGMENT), Err(Failure::UploadGone));
        assert!(uploads.take_first(|_, upload| upload.owner == owner(1)).is_none());
        assert!(uploads.take_expired(6 + UPLOAD_IDLE_US).is_none() && !uploads.has_room(1001));
        assert!(uploads.take_expired(7 + UPLOAD_IDLE_US).is_some() && uploads.has_room(2000));
    }
}
