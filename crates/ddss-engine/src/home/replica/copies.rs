//! The replica's side: stores the copy, the puts in their order, and the tokens that a home sends. A home of an older
//! epoch is fenced off.

use crate::action::{Action, CommitSource, RangeSet};
use crate::config::Now;
use crate::fault_injection::planted;
use crate::home::handler::Home;
use crate::ids::BufferId;
use crate::requester::Requester;
use crate::state::replication::{ReplicatedSegment, Role, RowCommit};
use crate::state::segments::{Segment, check_range};
use ddss_core::limits::TRANSFER_BYTES_MAX;
use ddss_core::{
    Failure, Message, Name, NodeId, OfferReply, Permissions, Refusal, ReplicaAck, SegmentId, Spec, Storage, Timestamp,
    Version,
};

/// Segment that a home offers to replicate.
#[derive(Clone, Copy, Debug)]
struct ReplicaOffer {
    id: SegmentId,
    epoch: u32,
    stamp: (Version, Timestamp),
    spec: Spec,
    permissions: Permissions,
    name: Name,
}

/// Bytes that a home sends: where they belong, and the home's number of their place in the staging memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicaPiece {
    pub(crate) id: SegmentId,
    pub(crate) epoch: u32,
    pub(crate) number: u64,
}

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

impl Home<'_> {
    /// Handles a message between a home and its replica.
    pub(crate) fn replica_message(&mut self, now: Now, node: NodeId, message: &Message, tail: &[u8]) {
        match *message {
            Message::Offer { segment: id, epoch, version, timestamp, spec, permissions, name } => {
                let stamp = (version, timestamp);
                if self.replicas.has_cluster() && spec.copies > 1 {
                    self.handle_offer(now, node, &ReplicaOffer { id, epoch, stamp, spec, permissions, name });
                }
            }
            Message::OfferAnswer { segment, epoch, reply } => {
                self.replicate(now, |replication| replication.offer_answered(now, node, segment, epoch, reply));
            }
            Message::Piece { segment: id, epoch, offset, length, staged, number } => {
                let parts = RangeSet::One { offset, bytes: length };
                self.store_piece(node, ReplicaPiece { id, epoch, number }, parts, staged, tail);
            }
            Message::Whole { segment, epoch, version, timestamp } => {
                self.complete_copy(node, segment, epoch, (version, timestamp));
            }
            Message::Forward {
                segment: id,
                epoch,
                version,
                row_version,
                timestamp,
                offset,
                length,
                staged,
                number,
                ranges,
            } => {
                let sent = ReplicaPiece { id, epoch, number };
                let table = if ranges == 0 { &[] } else { tail };
                let Ok(parts) = self.output.ranges_of_message((offset, length), ranges, table) else {
                    return self.output.push(Action::Disconnect { node });
                };
                let bytes = if ranges == 0 { tail } else { &[] };
                self.store_forwarded(now, node, sent, (version, timestamp), (parts, row_version), (staged, bytes));
            }
            Message::ForwardPart {
                segment: id,
                epoch,
                version,
                timestamp,
                offset,
                at,
                total,
                length,
                staged,
                number,
            } => {
                let part = ForwardedPart { stamp: (version, timestamp), offset, at, total, length };
                self.handle_forwarded_part(now, node, ReplicaPiece { id, epoch, number }, part, (staged, tail));
            }
            Message::Replicated { segment, epoch, ack, timestamp, number, .. } => {
                if number != Message::NOT_STAGED {
                    self.outgoing_bytes().free_place(node, number);
                }
                let what = (ack, timestamp);
                self.replicate(now, |replication| replication.replica_acknowledged(now, node, segment, epoch, what));
            }
            _ => {}
        }
    }

    pub(crate) fn send_offer_reply(&mut self, node: NodeId, segment: SegmentId, epoch: u32, reply: OfferReply) {
        self.output.send(node, Message::OfferAnswer { segment, epoch, reply });
    }

    /// Returns the newest epoch of a segment that this node knows.
    fn epoch_of(&mut self, id: SegmentId) -> u32 {
        let decided = self.replicas.assignment(id).map_or(0, |assignment| assignment.epoch);
        self.segments.replication_of(id).map_or(0, |replication| replication.epoch).max(decided)
    }

    fn handle_offer(&mut self, now: Now, node: NodeId, handle_offer: &ReplicaOffer) {
        let ReplicaOffer { id, epoch, stamp, spec, permissions, name } = *handle_offer;
        let newest = self.epoch_of(id);
        let decided = self.replicas.assignment(id).map_or(0, |assignment| assignment.epoch);
        let is_open = self.replicas.is_unconfirmed(id) && decided <= epoch;
        if epoch < newest && !is_open {
            return self.send_offer_reply(node, id, newest, OfferReply::Fenced);
        }
        if is_open || !self.can_be_home(node, id, epoch) {
            return self.send_offer_reply(node, id, epoch, OfferReply::No(Refusal::NotReady));
        }
        let Ok(segment) = self.segments.get(id) else { return self.create_replica(now, node, handle_offer) };
        let is_same = Spec { placement: spec.placement, ..segment.spec } == spec && segment.name() == name;
        let same_readers = segment.permissions.audience() == permissions.audience();
        if !segment.is_replica() || segment.has_large_commit() {
            // This node has yet to learn its role, or its version is about to change.
            return self.send_offer_reply(node, id, epoch, OfferReply::No(Refusal::NotReady));
        }
        if !is_same || !same_readers {
            self.drop_replica(now, id);
            return self.send_offer_reply(node, id, epoch, OfferReply::No(Refusal::NotReady));
        }
        self.replication().drop_incoming(id);
        let is_stale = planted!(self.segments, StaleCopy);
        // The replica exists: this cannot fail.
        let _ = self.segments.set_permissions(id, permissions);
        let Ok(segment) = self.segments.get_mut(id) else { return };
        let at = segment.at;
        let is_whole = segment.stamp() == stamp || is_stale && segment.is_whole();
        if let Some(replication) = segment.replication.as_deref_mut() {
            (replication.epoch, replication.node) = (epoch, node);
        }
        self.output.rewrite_record(self.segments, id);
        if !is_whole {
            self.stamp(id, at, (Version(0), Timestamp(0)));
        }
        self.send_offer_reply(node, id, epoch, if is_whole { OfferReply::Whole } else { OfferReply::Empty });
    }

    /// Returns true if a node can be the home of a segment in an epoch, as far as this node knows. In the first epoch
    /// it is the node that the id names. Later that node may return without its memory.
    fn can_be_home(&self, node: NodeId, id: SegmentId, epoch: u32) -> bool {
        match self.replicas.assignment(id) {
            Some(assignment) if assignment.epoch == epoch => assignment.home == node,
            _ => epoch > 1 || id.home() == node,
        }
    }

    /// Creates a replica. [`replica_formatted`](Self::replica_formatted) reports its completion.
    fn create_replica(&mut self, now: Now, node: NodeId, handle_offer: &ReplicaOffer) {
        let ReplicaOffer { id, epoch, spec, permissions, name, .. } = *handle_offer;
        let nobody = Requester::Peer(node, 0);
        self.drop_spare_replica_named(now, &name);
        let made = if spec.storage == Storage::File && !self.segments.allows_files() {
            Err(Refusal::NoFiles)
        } else if self.segments.forming(id).is_some() || self.segments.has_name(&name, self.replicas) {
            Err(Refusal::NotReady)
        } else if self.is_over_quota(permissions.owner, &spec) {
            // A replica counts for its owner's quota here too.
            Err(Refusal::OverQuota)
        } else {
            let made = self.segments.allocate(name, spec, permissions, Timestamp(0), nobody, Some(id));
            made.map_err(|failure| match failure {
                Failure::AlreadyExists | Failure::WrongShard => Refusal::NotReady,
                _ => Refusal::NoRoom,
            })
        };
        let record = match made {
            Ok(record) => record,
            Err(why) => return self.send_offer_reply(node, id, epoch, OfferReply::No(why)),
        };
        if let Some(segment) = self.segments.forming(id) {
            let replication = ReplicatedSegment { role: Role::Replica, epoch, node, ..ReplicatedSegment::default() };
            segment.replication = Some(Box::new(replication));
        }
        self.format(record, Timestamp(0));
    }

    /// Completes the creation of a replica.
    pub(crate) fn replica_formatted(&mut self, now: Now, id: SegmentId, made: bool) {
        let Some(replication) = self.segments.replication_of(id) else { return };
        let (node, epoch) = (replication.node, replication.epoch);
        if !made {
            self.drop_replica(now, id);
        }
        self.send_offer_reply(node, id, epoch, if made { OfferReply::Empty } else { OfferReply::No(Refusal::NoRoom) });
    }

    /// Drops a replica since another node has that role. The home is told: it may have asked this node after the
    /// decision.
    pub(crate) fn give_up_replica(&mut self, now: Now, id: SegmentId) {
        let Some(replication) = self.segments.replication_of(id) else { return };
        let (home, epoch) = (replication.node, replication.epoch);
        self.drop_replica(now, id);
        self.send_offer_reply(home, id, epoch, OfferReply::No(Refusal::NotReady));
    }

    /// Drops a spare replica of that name. The cluster gives a name to one segment at a time, so its home segment is
    /// gone.
    pub(crate) fn drop_spare_replica_named(&mut self, now: Now, name: &Name) {
        let Some(id) = self.segments.named(name) else { return };
        if self.segments.is_spare(id, self.replicas) {
            self.drop_replica(now, id);
        }
    }

    /// Drops a replica whose home released the segment. A replica that was never in sync is in no decision of the
    /// cluster, and goes with this message.
    pub(crate) fn drop_replica_of(&mut self, now: Now, home: NodeId, id: SegmentId) {
        if self.segments.replication_of(id).is_some_and(|replication| replication.node == home)
            && self.segments.is_spare(id, self.replicas)
        {
            self.drop_replica(now, id);
        }
    }

    /// Drops a replica; while the daemon writes a large value into it, at the end of that.
    pub(crate) fn drop_replica(&mut self, now: Now, id: SegmentId) {
        self.fail_all_waiters(id, Failure::NodeDown);
        if self.segments.get_mut(id).is_ok_and(|segment| segment.defer_drop()) {
            return;
        }
        // The replica exists: its removal cannot fail.
        let _ = self.take_away(now, id);
    }

    fn stamp(&mut self, id: SegmentId, at: u64, stamp: (Version, Timestamp)) {
        let (version, timestamp) = stamp;
        if let Ok(segment) = self.segments.get_mut(id) {
            segment.start_over(stamp);
        }
        self.output.push(Action::WriteVersion { at, version, timestamp });
    }

    /// Returns the pool offset of the replica that a home writes to; tells the home if there is none or it has another
    /// home.
    pub(crate) fn replica_for(&mut self, node: NodeId, sent: &ReplicaPiece) -> Option<u64> {
        let newest = self.epoch_of(sent.id);
        let is_open = |segment: &&Segment| segment.is_replica() && !segment.has_large_commit();
        let segment = self.segments.get(sent.id).ok().filter(is_open);
        let at = segment.map(|segment| segment.at);
        let replication = segment.and_then(|segment| segment.replication.as_deref());
        if at.is_some()
            && replication.is_some_and(|replication| (replication.node, replication.epoch) == (node, sent.epoch))
        {
            return at;
        }
        if newest > sent.epoch {
            let current = ReplicaPiece { epoch: newest, ..*sent };
            self.refuse_piece(node, &current, OfferReply::Fenced);
        } else {
            self.refuse_piece(node, sent, OfferReply::Empty);
        }
        None
    }

    /// Refuses bytes that a home has sent, and frees their place in the staging memory.
    pub(crate) fn refuse_piece(&mut self, node: NodeId, sent: &ReplicaPiece, reply: OfferReply) {
        if sent.number != Message::NOT_STAGED {
            self.output.send(node, Message::Taken { number: sent.number });
        }
        self.send_offer_reply(node, sent.id, sent.epoch, reply);
    }

    /// Returns the source of bytes from a message or from staging memory. Message bytes stay in a buffer until used.
    pub(crate) fn source_of(&mut self, node: NodeId, staged: u64, tail: &[u8]) -> CommitSource {
        if staged == Message::NOT_STAGED {
            let buffer: BufferId = self.output.store(tail);
            return CommitSource::Buffer(buffer);
        }
        CommitSource::Staged { node, at: staged }
    }

    pub(crate) fn acknowledge(
        &mut self,
        node: NodeId,
        sent: &ReplicaPiece,
        ack: ReplicaAck,
        stamp: (Version, Timestamp),
    ) {
        let (ReplicaPiece { id: segment, epoch, number }, (version, timestamp)) = (*sent, stamp);
        self.output.send(node, Message::Replicated { segment, epoch, ack, version, timestamp, number });
    }

    fn store_piece(&mut self, node: NodeId, sent: ReplicaPiece, parts: RangeSet, staged: u64, tail: &[u8]) {
        let Some(at) = self.replica_for(node, &sent) else { return };
        let RangeSet::One { offset, bytes } = parts else { return };
        let Ok(segment) = self.segments.get(sent.id) else { return };
        let is_inside = check_range(segment.spec.replicated_bytes(), offset, bytes).is_ok();
        if !is_inside || bytes as usize > TRANSFER_BYTES_MAX {
            return self.output.push(Action::Disconnect { node });
        }
        if segment.is_whole() {
            // Until all pieces are there, the replica has no valid version.
            self.stamp(sent.id, at, (Version(0), Timestamp(0)));
        }
        let source = self.source_of(node, staged, tail);
        self.output.push(Action::Fill { at: at + ddss_core::Header::DATA_OFFSET, source, parts });
        self.acknowledge(node, &sent, ReplicaAck::Piece, (Version(0), Timestamp(0)));
    }

    fn complete_copy(&mut self, node: NodeId, id: SegmentId, epoch: u32, stamp: (Version, Timestamp)) {
        let sent = ReplicaPiece { id, epoch, number: Message::NOT_STAGED };
        let Some(at) = self.replica_for(node, &sent) else { return };
        self.stamp(id, at, stamp);
        if let Ok(segment) = self.segments.get_mut(id)
            && let Some(to) = segment.history_offset(segment.version())
        {
            segment.record_timestamp();
            let header = segment.header(id);
            self.output.push(Action::SaveVersion { at, to, header });
        }
    }

    fn store_forwarded(
        &mut self,
        now: Now,
        node: NodeId,
        sent: ReplicaPiece,
        stamp: (Version, Timestamp),
        (parts, row_version): (RangeSet, Version),
        (staged, tail): (u64, &[u8]),
    ) {
        let (version, timestamp) = stamp;
        self.clock.hear(timestamp, now.wall_us);
        if self.replica_for(node, &sent).is_none() {
            return self.output.free_table(&parts);
        }
        let Ok(row) = self.row_of_forwarded(sent.id, &parts, row_version) else {
            self.output.free_table(&parts);
            return self.output.push(Action::Disconnect { node });
        };
        let ranges = self.output.ranges_of(&parts);
        let Ok(segment) = self.segments.get_mut(sent.id) else { return };
        if ranges.iter().any(|range| segment.check_range(range.offset, range.bytes).is_err()) {
            self.output.free_table(&parts);
            return self.output.push(Action::Disconnect { node });
        }
        let is_put = row.is_some() || segment.spec.layout().is_none();
        let is_next = is_put && segment.is_followed_by(stamp);
        let is_token = version == segment.version() && parts.bytes() == 0 && row.is_none();
        if !segment.is_whole() || !is_next && !is_token {
            self.output.free_table(&parts);
            return self.refuse_piece(node, &sent, OfferReply::Empty);
        }
        if let Some(replication) = segment.replication.as_deref_mut() {
            replication.floor = replication.floor.max(timestamp);
        }
        if is_next {
            let source = self.source_of(node, staged, tail);
            // The replica exists and the range was checked.
            let _ = self.commits().apply(sent.id, (parts, row), source, stamp);
        }
        self.output.free_table(&parts);
        self.acknowledge(node, &sent, ReplicaAck::Put, stamp);
    }

    /// Returns the row that a forwarded put of a table changes; `None` for a plain segment, or a token. The home decides
    /// the version of a row as it decides the row's bytes: a wrong version harms the readers of that row only.
    fn row_of_forwarded(
        &self,
        id: SegmentId,
        parts: &RangeSet,
        version: Version,
    ) -> Result<Option<RowCommit>, Failure> {
        let segment = self.segments.get(id)?;
        match segment.spec.layout() {
            Some(layout) if version.0 > 0 => {
                let of_table = planted!(self.segments, RowVersionOfTable);
                let version = if of_table { Version(segment.version().0 + 1) } else { version };
                let row = self.output.row_of(layout, segment.spec.bytes, parts)?;
                Ok(Some(RowCommit { row, place: layout.record(row).of_segment(segment.at), version }))
            }
            Some(_) if parts.bytes() > 0 => Err(Failure::Malformed),
            None if version.0 > 0 => Err(Failure::Malformed),
            _ => Ok(None),
        }
    }
}
