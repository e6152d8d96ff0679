//! The first copy that a mirror gets of a segment: in pieces, a few on their way at a time, while puts go on. What a put
//! changes behind the copying is sent once more; a put that would run too far ahead of that waits.

use super::state::{Replicas, Role, SyncState};
use crate::engine::action::{Action, MessageBody, RangeSet};
use crate::engine::engine::{Engine, Now};
use crate::limits::{MIRROR_DIRTY_MAX, MIRROR_PIECES_MAX};
use crate::model::segment::Header;
use crate::request::ranges::Range;
use crate::{Message, NodeId, OfferReply, SegmentId, Timestamp, Version};
use std::collections::VecDeque;

/// How far the copying is.
#[derive(Debug, Default)]
pub(crate) struct ResyncProgress {
    /// What was offered.
    stamp: (Version, Timestamp),
    /// Everything before this was sent.
    cursor: u64,
    /// What puts have changed of that since.
    dirty: VecDeque<(u64, u64)>,
    /// Pieces that the mirror has not yet said that it has.
    out: usize,
}

impl ResyncProgress {
    /// Whether puts have to wait for it.
    pub(crate) fn is_behind(&self) -> bool {
        self.dirty.len() > MIRROR_DIRTY_MAX / 2
    }

    fn note(&mut self, range: &Range) {
        let end = (range.offset + u64::from(range.bytes)).min(self.cursor);
        if range.offset < end {
            self.dirty.push_back((range.offset, end));
        }
    }

    /// The next piece, at most so long, of a segment of `size` bytes.
    fn next(&mut self, size: u64, piece: u32) -> Option<(u64, u32)> {
        if let Some((from, end)) = self.dirty.pop_front() {
            let bytes = (end - from).min(piece.into());
            if from + bytes < end {
                self.dirty.push_front((from + bytes, end));
            }
            return Some((from, bytes as u32));
        }
        let bytes = (size - self.cursor).min(piece.into());
        let from = self.cursor;
        self.cursor += bytes;
        (bytes > 0).then_some((from, bytes as u32))
    }

    /// It could not be sent.
    fn put_back(&mut self, from: u64, bytes: u32) {
        self.dirty.push_front((from, from + u64::from(bytes)));
    }
}

impl Engine {
    /// Asks a node to be the mirror.
    pub(crate) fn offer(&mut self, now: Now, id: SegmentId, node: NodeId) {
        let Self { mirrors, segments, .. } = self;
        mirrors.copying.retain(|&id| {
            let mirror = segments.get(id).ok().and_then(|segment| segment.mirror.as_deref());
            mirror
                .is_some_and(|mirror| matches!(mirror.role, Role::Home(SyncState::Offered(_) | SyncState::Copying(_))))
        });
        if mirrors.copying.len() >= Replicas::COPYING_MAX {
            return;
        }
        let Ok(segment) = segments.get_mut(id) else { return };
        let (version, timestamp, name) = (segment.version, segment.timestamp, segment.name);
        let (spec, permissions) = (segment.spec, segment.permissions);
        let Some(mirror) = segment.mirror.as_deref_mut() else { return };
        mirror.node = node;
        mirror.retry_us = now.steady_us + mirrors.answer_us();
        // Until the mirror has answered, whatever a put changes may have to be sent again.
        let copying = ResyncProgress { stamp: (version, timestamp), cursor: spec.bytes, ..ResyncProgress::default() };
        mirror.role = Role::Home(SyncState::Offered(copying));
        let epoch = mirror.epoch;
        self.mirrors.copying.insert(id);
        self.send(node, Message::Offer { segment: id, epoch, version, timestamp, spec, permissions, name });
    }

    /// What a mirror has of what was offered to it.
    pub(crate) fn having(&mut self, now: Now, node: NodeId, id: SegmentId, epoch: u32, have: OfferReply) {
        let Ok(segment) = self.segments.get_mut(id) else { return };
        let (stamp, answer_us) = ((segment.version, segment.timestamp), now.steady_us + self.mirrors.answer_us());
        let Some(mirror) = segment.mirror.as_deref_mut().filter(|mirror| mirror.node == node) else { return };
        if have == OfferReply::Fenced && epoch > mirror.epoch && matches!(mirror.role, Role::Home(_)) {
            // It has taken over. What that means for what is under way the cluster's word will say.
            mirror.fenced = true;
            return self.set_gate(now, id);
        }
        if epoch != mirror.epoch {
            return;
        }
        match (&mut mirror.role, have) {
            (Role::Home(SyncState::Offered(copying)), OfferReply::Whole) if copying.stamp == stamp => {
                self.join(now, id)
            }
            (Role::Home(SyncState::Offered(copying)), OfferReply::Whole) => {
                let copying = std::mem::take(copying);
                mirror.retry_us = answer_us;
                mirror.role = Role::Home(SyncState::Copying(copying));
                self.copy_on(now, id);
            }
            (Role::Home(SyncState::Offered(_)), OfferReply::Empty) => {
                mirror.retry_us = answer_us;
                mirror.role = Role::Home(SyncState::Copying(ResyncProgress::default()));
                self.copy_on(now, id);
            }
            (Role::Home(SyncState::Offered(_)), OfferReply::No(why)) => self.mirror_refused(now, id, why),
            // It has lost it.
            (
                Role::Home(SyncState::Copying(_) | SyncState::Joining(_) | SyncState::Pairing | SyncState::Paired),
                OfferReply::Empty | OfferReply::No(_),
            ) => {
                self.lose_mirror(now, id);
            }
            _ => {}
        }
    }

    /// A put was committed while its segment is being copied.
    pub(crate) fn note_dirty(&mut self, now: Now, id: SegmentId, parts: &RangeSet) {
        let ranges = self.ranges_of(parts);
        let Some(mirror) = self.mirror_of(id) else { return };
        if let Role::Home(SyncState::Offered(copying) | SyncState::Copying(copying)) = &mut mirror.role {
            ranges.iter().for_each(|range| copying.note(range));
            if matches!(mirror.role, Role::Home(SyncState::Copying(_))) {
                self.copy_on(now, id);
            }
        }
    }

    /// Sends what may be sent now.
    pub(crate) fn copy_on(&mut self, now: Now, id: SegmentId) {
        let piece_bytes = self.mirrors.piece_bytes;
        loop {
            let Ok(segment) = self.segments.get_mut(id) else { return };
            let (size, data) = (segment.spec.bytes, segment.at + Header::DATA_OFFSET);
            let Some(mirror) = segment.mirror.as_deref_mut() else { return };
            let (node, epoch) = (mirror.node, mirror.epoch);
            let Role::Home(SyncState::Copying(copying)) = &mut mirror.role else { return };
            if copying.out >= MIRROR_PIECES_MAX {
                break;
            }
            let Some((offset, bytes)) = copying.next(size, piece_bytes) else {
                if copying.out == 0 {
                    self.copied_all(now, id);
                }
                break;
            };
            copying.out += 1;
            if !self.send_piece(node, id, epoch, data, (offset, bytes)) {
                if let Some(mirror) = self.mirror_of(id)
                    && let Role::Home(SyncState::Copying(copying)) = &mut mirror.role
                {
                    copying.out -= 1;
                    copying.put_back(offset, bytes);
                }
                break;
            }
        }
        self.set_gate(now, id);
    }

    /// Sends one piece; `false` if there is no room on the road.
    fn send_piece(&mut self, node: NodeId, segment: SegmentId, epoch: u32, data: u64, piece: (u64, u32)) -> bool {
        let (offset, length) = piece;
        if length as usize <= Message::PUT_BYTES_MAX {
            let (staged, number) = (Message::NOT_STAGED, Message::NOT_STAGED);
            let message = Message::Piece { segment, epoch, offset, length, staged, number };
            let tail = MessageBody::Pool(data, RangeSet::One { offset, bytes: length });
            self.act(Action::Send { node, message, tail });
            return true;
        }
        let Some(ticket) = self.peers.reachable(node).and_then(|peer| peer.staging.take(length)) else { return false };
        // The bytes are those that the segment has when they go out: what a put has changed by then follows behind.
        let Some(hand) = self.hands.insert(data + offset, 0, 1) else {
            self.taken(node, ticket.number());
            return false;
        };
        let (staged, number) = (ticket.at, ticket.number());
        let message = Message::Piece { segment, epoch, offset, length, staged, number };
        self.act(Action::Hand { node, hand, at: staged, from: data + offset, bytes: length, message, table: None });
        true
    }

    /// The mirror has a piece.
    pub(crate) fn piece_stored(&mut self, now: Now, id: SegmentId) {
        let answer_us = now.steady_us + self.mirrors.answer_us();
        if let Some(mirror) = self.mirror_of(id)
            && let Role::Home(SyncState::Copying(copying)) = &mut mirror.role
        {
            copying.out = copying.out.saturating_sub(1);
            mirror.retry_us = answer_us;
            self.copy_on(now, id);
            self.serve_line(now, id);
        }
    }

    fn copied_all(&mut self, now: Now, id: SegmentId) {
        let Ok(segment) = self.segments.get(id) else { return };
        let (version, timestamp) = (segment.version, segment.timestamp);
        let Some(mirror) = segment.mirror.as_deref() else { return };
        let (node, epoch) = (mirror.node, mirror.epoch);
        self.send(node, Message::Whole { segment: id, epoch, version, timestamp });
        self.join(now, id);
    }
}
