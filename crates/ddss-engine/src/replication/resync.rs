//! Resynchronisation: the first copy of a segment to its replica, in pieces with a few in flight, while puts continue.
//! Ranges that puts change behind the cursor are sent again. A put that would run too far ahead waits.

use crate::action::RangeSet;
use crate::config::Now;
use crate::fault_injection::planted;
use crate::replication::handler::Replication;
use crate::state::output::RangeList;
use crate::state::replication::{HomeWork, ResyncProgress, Role, RowCommit, SyncState};
use ddss_core::{Header, Message, NodeId, OfferReply, Range, SegmentId, TableLayout};

impl Replication<'_> {
    /// Asks a node to be the replica.
    pub(crate) fn offer(&mut self, now: Now, id: SegmentId, node: NodeId) {
        let Self { replicas, segments, .. } = self;
        let has_room = replicas.has_room_to_copy(|&id| {
            let replication = segments.get(id).ok().and_then(|segment| segment.replication.as_deref());
            replication.is_some_and(|replication| {
                matches!(replication.role, Role::Home(SyncState::Offered(_) | SyncState::Copying(_)))
            })
        });
        if !has_room {
            return;
        }
        let Ok(segment) = segments.get_mut(id) else { return };
        let (version, timestamp, name) = (segment.version(), segment.timestamp(), segment.name());
        let (spec, permissions) = (segment.spec, segment.permissions);
        let Some(replication) = segment.replication.as_deref_mut() else { return };
        replication.node = node;
        replication.retry_us = now.steady_us + replicas.answer_us();
        // Until the replica has answered, every change may have to be sent again.
        let copying = ResyncProgress::of_offer((version, timestamp), spec.replicated_bytes());
        replication.set_sync(SyncState::Offered(copying));
        let epoch = replication.epoch;
        self.replicas.begin_copy(id);
        self.output.send(node, Message::Offer { segment: id, epoch, version, timestamp, spec, permissions, name });
    }

    /// Handles the answer to an offer.
    pub(crate) fn offer_answered(&mut self, now: Now, node: NodeId, id: SegmentId, epoch: u32, reply: OfferReply) {
        let is_being_written = self.segments.is_being_written(id);
        let Ok(segment) = self.segments.get_mut(id) else { return };
        let (stamp, answer_us) = (segment.stamp(), now.steady_us + self.replicas.answer_us());
        let Some(replication) = segment.replication.as_deref_mut().filter(|replication| replication.node == node)
        else {
            return;
        };
        if reply == OfferReply::Fenced && epoch > replication.epoch && matches!(replication.role, Role::Home(_)) {
            // The other node has taken over. The cluster's decision will say what becomes of pending operations.
            replication.fenced = true;
            return self.segments.update_lock_gate(now, self.replicas, id);
        }
        if epoch != replication.epoch {
            return;
        }
        match (&mut replication.role, reply) {
            (Role::Home(SyncState::Offered(copying)), OfferReply::Whole)
                if copying.is_offer_of(stamp) && !is_being_written =>
            {
                self.join(now, id)
            }
            (Role::Home(SyncState::Offered(copying)), OfferReply::Whole) => {
                let copying = std::mem::take(copying);
                replication.retry_us = answer_us;
                replication.set_sync(SyncState::Copying(copying));
                self.continue_resync(now, id);
            }
            (Role::Home(SyncState::Offered(_)), OfferReply::Empty) => {
                replication.retry_us = answer_us;
                replication.set_sync(SyncState::Copying(ResyncProgress::default()));
                self.continue_resync(now, id);
            }
            (Role::Home(SyncState::Offered(_)), OfferReply::No(why)) => self.replica_refused(now, id, why),
            // The replica has lost its copy.
            (
                Role::Home(SyncState::Copying(_) | SyncState::Joining(_) | SyncState::Pairing | SyncState::Paired),
                OfferReply::Empty | OfferReply::No(_),
            ) => {
                if let OfferReply::No(why) = reply {
                    self.record_refusal(now, id, why);
                }
                self.lose_replica(now, id);
            }
            _ => {}
        }
    }

    /// Records a put that was committed during a resync. The record of a row is sent again with state word and timestamp.
    pub(crate) fn note_dirty(&mut self, now: Now, id: SegmentId, parts: &RangeSet, row: Option<RowCommit>) {
        let ranges = match (row, self.segments.get(id)) {
            (Some(_), _) if planted!(self.segments, RowNotResent) => return,
            (Some(commit), Ok(segment)) => {
                let offset = commit.place.header - segment.at - Header::DATA_OFFSET;
                let bytes = TableLayout::RECORD_HEADER_BYTES as u32 + segment.spec.row_bytes;
                RangeList::from_iter([Range { offset, bytes }])
            }
            _ => self.output.ranges_of(parts),
        };
        let Some(replication) = self.segments.replication_of(id) else { return };
        if let Role::Home(SyncState::Offered(copying) | SyncState::Copying(copying)) = &mut replication.role {
            ranges.iter().for_each(|range| copying.note_put(range));
            if matches!(replication.role, Role::Home(SyncState::Copying(_))) {
                self.continue_resync(now, id);
            }
        }
    }

    /// Sends as many pieces as may be in flight.
    pub(crate) fn continue_resync(&mut self, now: Now, id: SegmentId) {
        let (piece_bytes, answer_us) = (self.replicas.piece_bytes(), now.steady_us + self.replicas.answer_us());
        let is_being_written = self.segments.is_being_written(id);
        loop {
            let Ok(segment) = self.segments.get_mut(id) else { return };
            let (size, data) = (segment.spec.replicated_bytes(), segment.at + Header::DATA_OFFSET);
            let Some(replication) = segment.replication.as_deref_mut() else { return };
            let (node, epoch) = (replication.node, replication.epoch);
            let Role::Home(SyncState::Copying(copying)) = &mut replication.role else { return };
            if !copying.has_room() {
                break;
            }
            let Some((offset, bytes)) = copying.begin_piece(size, piece_bytes) else {
                if copying.is_acknowledged() && !is_being_written {
                    self.finish_resync(now, id);
                } else if is_being_written {
                    // The end of the large commit continues it.
                    replication.retry_us = answer_us;
                }
                break;
            };
            if !self.send_piece(node, id, epoch, data, (offset, bytes)) {
                if let Some(replication) = self.segments.replication_of(id)
                    && let Role::Home(SyncState::Copying(copying)) = &mut replication.role
                {
                    copying.return_piece(offset, bytes);
                }
                break;
            }
        }
        self.segments.update_lock_gate(now, self.replicas, id);
    }

    /// Sends one piece; `false` if there is no room in flight.
    fn send_piece(&mut self, node: NodeId, segment: SegmentId, epoch: u32, data: u64, piece: (u64, u32)) -> bool {
        let (offset, length) = piece;
        // The piece has the bytes of the moment when it goes out: later changes are sent again behind it.
        self.outgoing_bytes().send_pool_bytes(node, data + offset, length, |staged, number| Message::Piece {
            segment,
            epoch,
            offset,
            length,
            staged,
            number,
        })
    }

    /// Handles the acknowledgement of a piece.
    pub(crate) fn piece_stored(&mut self, now: Now, id: SegmentId) {
        let answer_us = now.steady_us + self.replicas.answer_us();
        if let Some(replication) = self.segments.replication_of(id)
            && let Role::Home(SyncState::Copying(copying)) = &mut replication.role
        {
            copying.end_piece();
            replication.retry_us = answer_us;
            self.continue_resync(now, id);
            self.replicas.add_work(now, id, HomeWork::Serve);
        }
    }

    fn finish_resync(&mut self, now: Now, id: SegmentId) {
        let Ok(segment) = self.segments.get(id) else { return };
        let (version, timestamp) = segment.stamp();
        let Some(replication) = segment.replication.as_deref() else { return };
        let (node, epoch) = (replication.node, replication.epoch);
        self.output.send(node, Message::Whole { segment: id, epoch, version, timestamp });
        self.join(now, id);
    }
}
