//! Large puts at a replica: it stores the parts beside its copy, and commits all of them as one version.

use crate::action::{Action, PeerAction};
use crate::config::Now;
use crate::fault_injection::planted;
use crate::replica::handler::{ReplicaPiece, ReplicaStore};
use crate::state::memory::uploads::{LargeCommit, UploadOwner};
use ddss_core::{Message, NodeId, OfferReply, Part, ReplicaAck, SegmentId, Timestamp, UploadId, Version};

/// A part of a large put that a home sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardedPart {
    pub(crate) stamp: (Version, Timestamp),
    /// Offset of the value in the segment.
    pub(crate) offset: u64,
    /// Place of the part in the value.
    pub(crate) at: u32,
    /// Bytes of the value.
    pub(crate) total: u32,
    /// Bytes of the part.
    pub(crate) length: u32,
}

impl ReplicaStore<'_> {
    /// Handles a part of a large put. After the last one this replica commits the value.
    pub(crate) fn handle_forwarded_part(
        &mut self,
        now: Now,
        node: NodeId,
        sent: ReplicaPiece,
        part: ForwardedPart,
        (staged, tail): (u64, &[u8]),
    ) {
        let ForwardedPart { stamp, offset, at, total, length } = part;
        self.clock.hear(stamp.1, now.wall_us);
        if self.replica_for(node, &sent).is_none() {
            return;
        }
        let Ok(segment) = self.segments.get(sent.id) else { return };
        let is_inside = Part { upload: UploadId(1), at, total }.check(length).is_ok();
        if !is_inside
            || segment.check_range(offset, total).is_err()
            || segment.has_history()
            || segment.spec.layout().is_some()
        {
            return self.output.push(Action::Peer(PeerAction::Disconnect { node }));
        }
        if !segment.is_whole() || !segment.is_followed_by(stamp) {
            self.upload_memory().drop_incoming(sent.id);
            return self.refuse_piece(node, &sent, OfferReply::Empty);
        }
        match self.place_of_part(now, node, sent.id, &part) {
            Ok((upload, to)) => {
                let source = self.output.source_of(node, staged, tail);
                self.output.push(Action::CopyAside { source, bytes: length, to });
                self.acknowledge(node, &sent, ReplicaAck::Piece, stamp);
                if at + length == total {
                    self.commit_parts(node, &sent, upload, &part);
                }
            }
            Err(refusal) => {
                self.upload_memory().drop_incoming(sent.id);
                self.acknowledge(node, &sent, refusal, stamp);
            }
        }
    }

    /// Returns the upload of a part, and the pool offset for its bytes. The first part begins the upload; the home learns
    /// from its refusal whether the room may come by itself.
    fn place_of_part(
        &mut self,
        now: Now,
        node: NodeId,
        id: SegmentId,
        part: &ForwardedPart,
    ) -> Result<(UploadId, u64), ReplicaAck> {
        let owner = UploadOwner::of_home(node);
        let ForwardedPart { stamp: (_, timestamp), at, total, length, .. } = *part;
        if at == 0 {
            self.upload_memory().drop_incoming(id);
            let upload = self.upload_memory().begin_of_home(now, node, id, total)?;
            if let Some(replication) = self.segments.replication_of(id) {
                replication.incoming = Some((timestamp, upload));
            }
        }
        let incoming = self.segments.replication_of(id).and_then(|replication| replication.incoming);
        let (_, upload) = incoming.filter(|&(known, _)| known == timestamp).ok_or(ReplicaAck::Busy)?;
        let to = self.uploads.append(now.steady_us, upload, (owner, id), (at, length));
        to.map(|to| (upload, to)).map_err(|_| ReplicaAck::Busy)
    }

    /// Commits a large put whose parts are all here, and acknowledges it at the end.
    fn commit_parts(&mut self, node: NodeId, sent: &ReplicaPiece, upload: UploadId, part: &ForwardedPart) {
        let (id, (version, timestamp)) = (sent.id, part.stamp);
        if let Some(replication) = self.segments.replication_of(id) {
            replication.incoming = None;
            replication.floor = replication.floor.max(timestamp);
        }
        let Ok((from, bytes)) = self.uploads.commit(upload, UploadOwner::of_home(node), id) else { return };
        if planted!(self.segments, UncommittedParts) {
            self.upload_memory().free_at(from);
            return self.acknowledge(node, sent, ReplicaAck::Put, part.stamp);
        }
        let commit = LargeCommit {
            requester: None,
            offset: part.offset,
            bytes,
            from,
            version,
            timestamp,
            acknowledges: Some((node, sent.epoch)),
            is_drop_deferred: false,
            has_undo: false,
        };
        // The replica exists: this cannot fail.
        let _ = self.commits().start_large(id, commit);
    }

    /// Acknowledges a large put that this replica has committed, or reports that it has no room for it.
    pub(crate) fn acknowledge_commit(&mut self, id: SegmentId, commit: &LargeCommit, made: bool) {
        let Some(replication) = self.segments.replication_of(id) else { return };
        let home = (replication.node, replication.epoch);
        let Some((node, epoch)) = commit.acknowledges.filter(|&acknowledged| acknowledged == home) else { return };
        let ack = if made { ReplicaAck::Put } else { ReplicaAck::NoRoom };
        let sent = ReplicaPiece { id, epoch, number: Message::NOT_STAGED };
        self.acknowledge(node, &sent, ack, (commit.version, commit.timestamp));
    }
}
