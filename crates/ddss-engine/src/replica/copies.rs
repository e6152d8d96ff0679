//! Copies: the first one, and the puts and tokens that follow in their order. A home of an older epoch is fenced off.

use crate::action::{Action, PeerAction, RangeSet};
use crate::config::Now;
use crate::fault_injection::planted;
use crate::replica::handler::{ReplicaPiece, ReplicaStore};
use crate::state::replication::RowCommit;
use crate::state::segments::check_range;
use ddss_core::limits::TRANSFER_BYTES_MAX;
use ddss_core::{Failure, Message, NodeId, OfferReply, ReplicaAck, SegmentId, Timestamp, Version};

impl ReplicaStore<'_> {
    pub(super) fn store_piece(&mut self, node: NodeId, sent: ReplicaPiece, parts: RangeSet, staged: u64, tail: &[u8]) {
        let Some(at) = self.replica_for(node, &sent) else { return };
        let RangeSet::One { offset, bytes } = parts else { return };
        let Ok(segment) = self.segments.get(sent.id) else { return };
        let is_inside = check_range(segment.spec.replicated_bytes(), offset, bytes).is_ok();
        if !is_inside || bytes as usize > TRANSFER_BYTES_MAX {
            return self.output.push(Action::Peer(PeerAction::Disconnect { node }));
        }
        if segment.is_whole() {
            // Until all pieces are there, the replica has no valid version.
            self.stamp(sent.id, at, (Version(0), Timestamp(0)));
        }
        let source = self.output.source_of(node, staged, tail);
        self.output.push(Action::Fill { at: at + ddss_core::Header::DATA_OFFSET, source, parts });
        self.acknowledge(node, &sent, ReplicaAck::Piece, (Version(0), Timestamp(0)));
    }

    pub(super) fn complete_copy(&mut self, node: NodeId, id: SegmentId, epoch: u32, stamp: (Version, Timestamp)) {
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

    pub(super) fn store_forwarded(
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
            return self.output.push(Action::Peer(PeerAction::Disconnect { node }));
        };
        let ranges = self.output.ranges_of(&parts);
        let Ok(segment) = self.segments.get_mut(sent.id) else { return };
        if ranges.iter().any(|range| segment.check_range(range.offset, range.bytes).is_err()) {
            self.output.free_table(&parts);
            return self.output.push(Action::Peer(PeerAction::Disconnect { node }));
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
            let source = self.output.source_of(node, staged, tail);
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
