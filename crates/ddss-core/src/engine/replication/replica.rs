//! What a mirror does with what a home sends to it: a copy, puts in their order, tokens. A home of an older epoch is told
//! so and gets nothing done.

use super::state::{ReplicatedSegment, Role, RoleAssignment};
use crate::engine::action::{Action, CommitSource, RangeSet};
use crate::engine::engine::{Engine, Now};
use crate::engine::fault_injection::planted;
use crate::engine::state::buffer_pool::BufferId;
use crate::engine::state::lock_queue::Requester;
use crate::limits::TRANSFER_BYTES_MAX;
use crate::model::segment::{Name, Permissions};
use crate::model::spec::{Spec, Storage};
use crate::{Failure, Message, NodeId, OfferReply, Refusal, ReplicaAck, SegmentId, Timestamp, Version};

/// What a home offers.
#[derive(Clone, Copy, Debug)]
struct ReplicaOffer {
    id: SegmentId,
    epoch: u32,
    stamp: (Version, Timestamp),
    spec: Spec,
    permissions: Permissions,
    name: Name,
}

/// What a home sends for a copy.
#[derive(Clone, Copy, Debug)]
struct ReplicaPiece {
    id: SegmentId,
    epoch: u32,
    number: u64,
}

impl Engine {
    /// A message between a home and its mirror.
    pub(crate) fn mirror_message(&mut self, now: Now, node: NodeId, message: &Message, tail: &[u8]) {
        match *message {
            Message::Offer { segment: id, epoch, version, timestamp, spec, permissions, name } => {
                let stamp = (version, timestamp);
                if self.mirrors.agreed && spec.copies > 1 {
                    self.offered(now, node, &ReplicaOffer { id, epoch, stamp, spec, permissions, name });
                }
            }
            Message::Having { segment, epoch, have } => self.having(now, node, segment, epoch, have),
            Message::Piece { segment: id, epoch, offset, length, staged, number } => {
                let parts = RangeSet::One { offset, bytes: length };
                self.piece(node, ReplicaPiece { id, epoch, number }, parts, staged, tail);
            }
            Message::Whole { segment, epoch, version, timestamp } => {
                self.whole(node, segment, epoch, (version, timestamp));
            }
            Message::Forward { segment: id, epoch, version, timestamp, offset, length, staged, number, ranges } => {
                let sent = ReplicaPiece { id, epoch, number };
                let table = if ranges == 0 { &[] } else { tail };
                let Ok(parts) = self.parts_of((offset, length), ranges, table) else {
                    return self.act(Action::Cut { node });
                };
                let bytes = if ranges == 0 { tail } else { &[] };
                self.forwarded(now, node, sent, (version, timestamp), parts, (staged, bytes));
            }
            Message::Mirrored { segment, epoch, stored, timestamp, number, .. } => {
                if number != Message::NOT_STAGED {
                    self.taken(node, number);
                }
                self.stored(now, node, segment, epoch, (stored, timestamp));
            }
            _ => {}
        }
    }

    fn say(&mut self, node: NodeId, segment: SegmentId, epoch: u32, have: OfferReply) {
        self.send(node, Message::Having { segment, epoch, have });
    }

    /// The newest epoch of a segment that this node knows of.
    fn epoch_of(&mut self, id: SegmentId) -> u32 {
        let decided = self.mirrors.duties.get(&id).map_or(0, |duty| duty.epoch);
        self.mirror_of(id).map_or(0, |mirror| mirror.epoch).max(decided)
    }

    fn offered(&mut self, now: Now, node: NodeId, offered: &ReplicaOffer) {
        let ReplicaOffer { id, epoch, stamp, spec, permissions, name } = *offered;
        let newest = self.epoch_of(id);
        if epoch < newest {
            return self.say(node, id, newest, OfferReply::Fenced);
        }
        if !self.can_be_home(node, id, epoch) {
            return self.say(node, id, epoch, OfferReply::No(Refusal::NotReady));
        }
        let Ok(segment) = self.segments.get(id) else { return self.make_copy_of(now, node, offered) };
        let is_same = Spec { placement: spec.placement, ..segment.spec } == spec && segment.name == name;
        let same_readers = segment.permissions.audience() == permissions.audience();
        if !segment.is_copy() {
            // It has yet to hear what it is.
            return self.say(node, id, epoch, OfferReply::No(Refusal::NotReady));
        }
        if !is_same || !same_readers {
            self.drop_copy(now, id);
            return self.say(node, id, epoch, OfferReply::No(Refusal::NotReady));
        }
        let is_stale = planted!(self, StaleCopy);
        // The copy is there.
        let _ = self.segments.set_permissions(id, permissions);
        let Ok(segment) = self.segments.get_mut(id) else { return };
        let at = segment.at;
        let is_whole = (segment.version, segment.timestamp) == stamp || is_stale && segment.timestamp.0 != 0;
        if let Some(mirror) = segment.mirror.as_deref_mut() {
            (mirror.epoch, mirror.node) = (epoch, node);
        }
        if let Ok(record) = self.segments.record(id) {
            self.act(Action::Rewrite { record });
        }
        if !is_whole {
            self.stamp(id, at, (Version(0), Timestamp(0)));
        }
        self.say(node, id, epoch, if is_whole { OfferReply::Whole } else { OfferReply::Empty });
    }

    /// Whether a node can be the home of a segment in an epoch, for all that this one has heard. In the first epoch it is
    /// the node that the id names; in later ones it may be that the named node comes back without its memory.
    fn can_be_home(&self, node: NodeId, id: SegmentId, epoch: u32) -> bool {
        match self.mirrors.duties.get(&id) {
            Some(duty) if duty.epoch == epoch => duty.home == node,
            _ => epoch > 1 || id.home() == node,
        }
    }

    /// Makes room for a copy. That it is there is said by [`copy_formatted`](Self::copy_formatted).
    fn make_copy_of(&mut self, now: Now, node: NodeId, offered: &ReplicaOffer) {
        let ReplicaOffer { id, epoch, spec, permissions, name, .. } = *offered;
        let nobody = Requester::Peer(node, 0);
        self.drop_copy_named(now, &name);
        let made = if spec.storage == Storage::File && !self.segments.keeps_files() {
            Err(Refusal::NoFiles)
        } else if self.segments.forming(id).is_some() || self.has_name(&name) {
            Err(Refusal::NotReady)
        } else if self.is_over_quota(permissions.owner, &spec) {
            // It counts for its owner here as well.
            Err(Refusal::OverQuota)
        } else {
            let made = self.segments.allocate(name, spec, permissions, Timestamp(0), nobody, Some(id));
            made.map_err(|failure| match failure {
                Failure::AlreadyExists | Failure::WrongPlane => Refusal::NotReady,
                _ => Refusal::NoRoom,
            })
        };
        let record = match made {
            Ok(record) => record,
            Err(why) => return self.say(node, id, epoch, OfferReply::No(why)),
        };
        if let Some(segment) = self.segments.forming(id) {
            let mirror = ReplicatedSegment { role: Role::Copy, epoch, node, ..ReplicatedSegment::default() };
            segment.mirror = Some(Box::new(mirror));
        }
        self.format(record, Timestamp(0));
    }

    /// The memory of a copy is there, or cannot be had.
    pub(crate) fn copy_formatted(&mut self, now: Now, id: SegmentId, made: bool) {
        let Some(mirror) = self.mirror_of(id) else { return };
        let (node, epoch) = (mirror.node, mirror.epoch);
        if !made {
            self.drop_copy(now, id);
        }
        self.say(node, id, epoch, if made { OfferReply::Empty } else { OfferReply::No(Refusal::NoRoom) });
    }

    /// Drops a copy since another node is the mirror. Its home hears of it: it may have asked this node after that decision.
    pub(crate) fn give_copy_up(&mut self, now: Now, id: SegmentId) {
        let Some(mirror) = self.mirror_of(id) else { return };
        let (home, epoch) = (mirror.node, mirror.epoch);
        self.drop_copy(now, id);
        self.say(home, id, epoch, OfferReply::No(Refusal::NotReady));
    }

    /// Drops a copy of that name that may not take over: the cluster gives a name to one segment at a time, so what it was
    /// a copy of is gone.
    pub(crate) fn drop_copy_named(&mut self, now: Now, name: &Name) {
        let Some(id) = self.segments.named(name) else { return };
        if self.is_spare(id) {
            self.drop_copy(now, id);
        }
    }

    /// Whether a segment here keeps others from its name: not a copy that may not take over.
    pub(crate) fn has_name(&self, name: &Name) -> bool {
        self.segments.named(name).is_some_and(|id| !self.is_spare(id))
    }

    /// A home has released a segment: a copy that was never in sync is in no decision of the cluster, and goes with this.
    pub(crate) fn drop_copy_of(&mut self, now: Now, home: NodeId, id: SegmentId) {
        if self.mirror_of(id).is_some_and(|mirror| mirror.node == home) && self.is_spare(id) {
            self.drop_copy(now, id);
        }
    }

    /// Whether this node has a copy of a segment that may not take over.
    fn is_spare(&self, id: SegmentId) -> bool {
        let may_take_over = |duty: &RoleAssignment| duty.paired && duty.mirror == self.node;
        self.segments.get(id).is_ok_and(|segment| segment.is_copy())
            && !self.mirrors.duties.get(&id).is_some_and(may_take_over)
    }

    /// Nobody needs this copy.
    pub(crate) fn drop_copy(&mut self, now: Now, id: SegmentId) {
        self.turn_all_away(id, Failure::NodeDown);
        // A copy is there: nothing can be wrong with taking it away.
        let _ = self.take_away(now, id);
    }

    fn stamp(&mut self, id: SegmentId, at: u64, stamp: (Version, Timestamp)) {
        let (version, timestamp) = stamp;
        if let Ok(segment) = self.segments.get_mut(id) {
            (segment.version, segment.timestamp, segment.oldest) = (version, timestamp, version);
        }
        self.act(Action::Stamp { at, version, timestamp });
    }

    /// Where the copy is that a home sends something for; if this node has none, or another home, it says so.
    fn copy_for(&mut self, node: NodeId, sent: &ReplicaPiece) -> Option<u64> {
        let newest = self.epoch_of(sent.id);
        let segment = self.segments.get(sent.id).ok().filter(|segment| segment.is_copy());
        let at = segment.map(|segment| segment.at);
        let mirror = segment.and_then(|segment| segment.mirror.as_deref());
        if at.is_some() && mirror.is_some_and(|mirror| (mirror.node, mirror.epoch) == (node, sent.epoch)) {
            return at;
        }
        if sent.number != Message::NOT_STAGED {
            self.send(node, Message::Taken { number: sent.number });
        }
        if newest > sent.epoch {
            self.say(node, sent.id, newest, OfferReply::Fenced);
        } else {
            self.say(node, sent.id, sent.epoch, OfferReply::Empty);
        }
        None
    }

    /// Bytes that came behind a message or in staging memory. They are kept until they are used.
    fn source_of(&mut self, node: NodeId, staged: u64, tail: &[u8]) -> CommitSource {
        if staged == Message::NOT_STAGED {
            let kept: BufferId = self.kept.insert(tail);
            return CommitSource::Kept(kept);
        }
        CommitSource::Staged { node, at: staged }
    }

    fn has_it(&mut self, node: NodeId, sent: &ReplicaPiece, stored: ReplicaAck, stamp: (Version, Timestamp)) {
        let (ReplicaPiece { id: segment, epoch, number }, (version, timestamp)) = (*sent, stamp);
        self.send(node, Message::Mirrored { segment, epoch, stored, version, timestamp, number });
    }

    fn piece(&mut self, node: NodeId, sent: ReplicaPiece, parts: RangeSet, staged: u64, tail: &[u8]) {
        let Some(at) = self.copy_for(node, &sent) else { return };
        let RangeSet::One { offset, bytes } = parts else { return };
        let Ok(segment) = self.segments.get(sent.id) else { return };
        if segment.check_range(offset, bytes).is_err() || bytes as usize > TRANSFER_BYTES_MAX {
            return self.act(Action::Cut { node });
        }
        if segment.timestamp.0 != 0 {
            // From here on, until all is there, it is of no version.
            self.stamp(sent.id, at, (Version(0), Timestamp(0)));
        }
        let source = self.source_of(node, staged, tail);
        self.act(Action::Fill { at: at + crate::Header::DATA_OFFSET, source, parts });
        self.has_it(node, &sent, ReplicaAck::Piece, (Version(0), Timestamp(0)));
    }

    fn whole(&mut self, node: NodeId, id: SegmentId, epoch: u32, stamp: (Version, Timestamp)) {
        let sent = ReplicaPiece { id, epoch, number: Message::NOT_STAGED };
        let Some(at) = self.copy_for(node, &sent) else { return };
        self.stamp(id, at, stamp);
        if let Ok(segment) = self.segments.get_mut(id)
            && let Some(to) = segment.line_of(segment.version)
        {
            segment.keep_stamp();
            let header = segment.header(id);
            self.act(Action::Keep { at, to, header });
        }
    }

    fn forwarded(
        &mut self,
        now: Now,
        node: NodeId,
        sent: ReplicaPiece,
        stamp: (Version, Timestamp),
        parts: RangeSet,
        (staged, tail): (u64, &[u8]),
    ) {
        let (version, timestamp) = stamp;
        self.clock.hear(timestamp, now.wall_us);
        if self.copy_for(node, &sent).is_none() {
            return self.give_up_table(&parts);
        }
        let ranges = self.ranges_of(&parts);
        let Ok(segment) = self.segments.get_mut(sent.id) else { return };
        if ranges.iter().any(|range| segment.check_range(range.offset, range.bytes).is_err()) {
            return self.act(Action::Cut { node });
        }
        let (is_next, is_token) =
            (version.0 == segment.version.0 + 1, version == segment.version && parts.bytes() == 0);
        if segment.timestamp.0 == 0 || !is_next && !is_token {
            self.give_up_table(&parts);
            if sent.number != Message::NOT_STAGED {
                self.send(node, Message::Taken { number: sent.number });
            }
            return self.say(node, sent.id, sent.epoch, OfferReply::Empty);
        }
        if let Some(mirror) = segment.mirror.as_deref_mut() {
            mirror.floor = mirror.floor.max(timestamp);
        }
        if is_next {
            let source = self.source_of(node, staged, tail);
            // The copy is here: the range was checked.
            let _ = self.apply(sent.id, parts, source, stamp);
        }
        self.give_up_table(&parts);
        self.has_it(node, &sent, ReplicaAck::Put, stamp);
    }
}
