//! A put of a segment with a mirror: executed here, sent to the mirror, and committed and answered when the mirror has
//! it. One at a time for each segment; gets go on, and see what was there before.
//!
//! The bytes are put aside first: a client or a peer could change them between the two copies. The grant of a lock goes
//! the same road without bytes, so that a home that takes over gives newer tokens only.

use super::state::{ProposalKind, Refused, Replicas, Role, SyncState};
use crate::engine::action::{Action, CommitSource, MessageBody, RangeSet};
use crate::engine::engine::{Engine, Now};
use crate::engine::fault_injection::planted;
use crate::engine::home::home_ops::ReplyFields;
use crate::engine::remote::served_get::ServedGetId;
use crate::engine::state::lock_queue::{LockOwner, Requester};
use crate::limits::MIRROR_PERMITS_MAX;
use crate::model::segment::Principal;
use crate::request::operation::{LockRequest, LockToken, PermissionUpdate};
use crate::{Failure, Message, NodeId, Outcome, Refusal, ReplicaAck, SegmentId, Timestamp, Version};

/// What waits for the mirror.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingForward {
    what: ForwardKind,
    /// Who hears of its end, unless that is told already.
    asker: Option<Requester>,
    version: Version,
    timestamp: Timestamp,
    /// What the answer says besides.
    word: u64,
    /// Where its bytes are, and how many.
    place: Option<(u64, u64)>,
    /// The place is the fabric's as well.
    hand: Option<ServedGetId>,
    deadline_us: u64,
}

#[derive(Clone, Copy, Debug)]
enum ForwardKind {
    Put(RangeSet),
    Grant(LockRequest),
    /// It was committed already: a planted bug.
    Done,
}

/// A change that is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentChange {
    pub(crate) asker: Requester,
    pub(crate) parts: RangeSet,
    pub(crate) source: CommitSource,
    /// What the answer says besides the version.
    pub(crate) word: u64,
    pub(crate) deadline_us: u64,
}

impl Engine {
    /// Changes a segment that may have a mirror. An error says that nothing was done.
    pub(crate) fn change(&mut self, now: Now, id: SegmentId, change: SegmentChange) -> Result<(), Failure> {
        let SegmentChange { asker, parts, source, word, .. } = change;
        let mirror = self.segments.get(id)?.mirror.as_deref();
        if mirror.is_some_and(|mirror| mirror.needs_word()) {
            return self.forward_put(now, id, change);
        }
        let is_mirrored = mirror.is_some();
        let (version, timestamp) = self.commit(now, id, parts, source)?;
        if is_mirrored {
            self.note_dirty(now, id, &parts);
        }
        self.give_up_table(&parts);
        self.answer(asker, Outcome::Done, ReplyFields { version, timestamp, word });
        self.show_version(id, version, timestamp);
        Ok(())
    }

    fn forward_put(&mut self, now: Now, id: SegmentId, change: SegmentChange) -> Result<(), Failure> {
        let SegmentChange { asker, parts, source, word, deadline_us } = change;
        let segment = self.segments.get(id)?;
        let version = Version(segment.version.0 + 1);
        let Some(mirror) = segment.mirror.as_deref() else { return Err(Failure::NodeDown) };
        let (node, goes_out) = (mirror.node, !matches!(mirror.role, Role::Home(SyncState::Parting)));
        let bytes = parts.bytes();
        let (offset, ranges) = match parts {
            RangeSet::One { offset, .. } => (offset, 0),
            RangeSet::Many { .. } if bytes == 0 => (0, 0),
            RangeSet::Many { .. } => (0, self.ranges_of(&parts).len() as u8),
        };
        let is_staged = goes_out && (ranges > 0 || bytes as usize > Message::PUT_BYTES_MAX);
        let ticket = if is_staged {
            let peer = self.peers.reachable(node).ok_or(Failure::NodeDown)?;
            Some(peer.staging.take(bytes).ok_or(Failure::Busy)?)
        } else {
            None
        };
        let at = if bytes > 0 { self.segments.take_blocks(bytes.into()) } else { Some(0) };
        let hand = at.filter(|_| is_staged).and_then(|at| self.hands.insert(at, bytes.into(), 2));
        let (Some(at), true) = (at, hand.is_some() == is_staged) else {
            if let Some(at) = at.filter(|_| bytes > 0) {
                self.segments.give_blocks(at, bytes.into());
            }
            if let Some(ticket) = ticket {
                self.taken(node, ticket.number());
            }
            return Err(Failure::Busy);
        };
        let timestamp = self.clock.next(now.wall_us);
        self.act(Action::Aside { source, bytes, to: at });
        let place = (bytes > 0).then_some((at, bytes.into()));
        let what = ForwardKind::Put(parts);
        let forward = PendingForward { what, asker: Some(asker), version, timestamp, word, place, hand, deadline_us };
        let (staged, number) = ticket.map_or((Message::NOT_STAGED, Message::NOT_STAGED), |t| (t.at, t.number()));
        let epoch = self.begin_forward(now, id, forward);
        let segment = id;
        let message =
            Message::Forward { segment, epoch, version, timestamp, offset, length: bytes, staged, number, ranges };
        if let Some(hand) = hand {
            let table = if let RangeSet::Many { table, .. } = parts { Some(table) } else { None };
            self.act(Action::Hand { node, hand, at: staged, from: at, bytes, message, table });
        } else if goes_out {
            self.act(Action::Send { node, message, tail: MessageBody::Pool(at, RangeSet::One { offset: 0, bytes }) });
        }
        if planted!(self, EarlyAcknowledgement) {
            self.acknowledge_early(now, id);
        }
        Ok(())
    }

    /// Notes what waits for the mirror; in which epoch.
    fn begin_forward(&mut self, now: Now, id: SegmentId, forward: PendingForward) -> u32 {
        let Some(mirror) = self.mirror_of(id) else { return 0 };
        mirror.forward = Some(forward);
        let epoch = mirror.epoch;
        self.set_gate(now, id);
        self.segments.note_busy(id);
        epoch
    }

    /// Commits and answers before the mirror has it: a planted bug.
    fn acknowledge_early(&mut self, now: Now, id: SegmentId) {
        let Some(forward) = self.mirror_of(id).and_then(|mirror| mirror.forward) else { return };
        self.finish_forward(now, id, forward);
        if let Some(mirror) = self.mirror_of(id) {
            mirror.forward = Some(PendingForward { what: ForwardKind::Done, asker: None, ..forward });
        }
    }

    /// The token of a lock that is granted when the mirror has heard of it; `false` if it need not.
    pub(crate) fn forward_grant(
        &mut self,
        now: Now,
        id: SegmentId,
        asker: Requester,
        wish: LockRequest,
        token: LockToken,
    ) -> bool {
        let Ok(segment) = self.segments.get(id) else { return false };
        let Some(mirror) = segment.mirror.as_deref().filter(|mirror| mirror.needs_word()) else { return false };
        let (version, node, timestamp) = (segment.version, mirror.node, Timestamp(token.0));
        let goes_out = !matches!(mirror.role, Role::Home(SyncState::Parting));
        let deadline_us = now.steady_us.saturating_add(wish.lease_us.into());
        let (what, asker) = (ForwardKind::Grant(wish), Some(asker));
        let forward = PendingForward { what, asker, version, timestamp, word: 0, place: None, hand: None, deadline_us };
        let epoch = self.begin_forward(now, id, forward);
        if goes_out {
            self.tell_floor(node, id, epoch, version, timestamp);
        }
        true
    }

    fn tell_floor(&mut self, node: NodeId, segment: SegmentId, epoch: u32, version: Version, timestamp: Timestamp) {
        let (staged, number) = (Message::NOT_STAGED, Message::NOT_STAGED);
        let (offset, length, ranges) = (0, 0, 0);
        self.send(
            node,
            Message::Forward { segment, epoch, version, timestamp, offset, length, staged, number, ranges },
        );
    }

    /// The mirror is whole: when it has heard of all tokens that were ever given, the cluster is told.
    pub(crate) fn join(&mut self, now: Now, id: SegmentId) {
        let floor = self.clock.last();
        let Ok(segment) = self.segments.get_mut(id) else { return };
        let version = segment.version;
        let Some(mirror) = segment.mirror.as_deref_mut() else { return };
        mirror.role = Role::Home(SyncState::Joining(floor));
        let (node, epoch) = (mirror.node, mirror.epoch);
        self.tell_floor(node, id, epoch, version, floor);
        self.set_gate(now, id);
    }

    /// The mirror has something.
    pub(crate) fn stored(&mut self, now: Now, node: NodeId, id: SegmentId, epoch: u32, what: (ReplicaAck, Timestamp)) {
        let Some(mirror) = self.mirror_of(id) else { return };
        if mirror.node != node || mirror.epoch != epoch {
            return;
        }
        let (stored, timestamp) = what;
        if stored == ReplicaAck::Piece {
            return self.piece_stored(now, id);
        }
        match mirror.role {
            Role::Home(SyncState::Joining(floor)) if floor == timestamp => {
                mirror.role = Role::Home(SyncState::Pairing);
                mirror.turn += 1;
                self.mirrors.restless.insert(id);
                self.decide(now, id, ProposalKind::Pair(node));
                self.set_gate(now, id);
            }
            Role::Home(_) => {
                if let Some(forward) = mirror.forward.take_if(|forward| forward.timestamp == timestamp) {
                    self.finish_forward(now, id, forward);
                }
            }
            _ => {}
        }
    }

    /// What waited for the mirror happens.
    fn finish_forward(&mut self, now: Now, id: SegmentId, forward: PendingForward) {
        let PendingForward { what, asker, version, timestamp, word, .. } = forward;
        match what {
            ForwardKind::Put(parts) => {
                let source = CommitSource::Pool(forward.place.map_or(0, |(at, _)| at));
                if self.apply(id, parts, source, (version, timestamp)).is_ok() {
                    self.counters.commits += 1;
                }
                self.give_up_table(&parts);
                if let Some(asker) = asker {
                    self.answer(asker, Outcome::Done, ReplyFields { version, timestamp, word });
                }
                self.show_version(id, version, timestamp);
            }
            ForwardKind::Grant(wish) => {
                if let Some(asker) = asker.filter(|&asker| self.is_there(asker)) {
                    let granted = self.grant_now(now, id, asker, wish, LockToken(timestamp.0));
                    if let Err(failure) = granted {
                        self.answer(asker, Outcome::Failed(failure), ReplyFields::default());
                    }
                }
            }
            ForwardKind::Done => {}
        }
        if !matches!(what, ForwardKind::Put(_)) || !planted!(self, EarlyAcknowledgement) {
            self.free_place(&forward);
        }
        self.set_gate(now, id);
        self.serve_line(now, id);
    }

    fn is_there(&mut self, asker: Requester) -> bool {
        match asker.owner() {
            LockOwner::Client(client) => self.is_attached(client),
            LockOwner::Peer(node) => self.peers.reachable(node).is_some(),
        }
    }

    fn free_place(&mut self, forward: &PendingForward) {
        match (forward.hand, forward.place) {
            (Some(hand), _) => self.handed(hand),
            (None, Some((at, bytes))) => self.segments.give_blocks(at, bytes),
            (None, None) => {}
        }
    }

    /// What waited for the mirror does not happen here.
    pub(crate) fn end_forward(&mut self, id: SegmentId, outcome: Outcome) {
        let Some(forward) = self.mirror_of(id).and_then(|mirror| mirror.forward.take()) else { return };
        self.free_place(&forward);
        if let ForwardKind::Put(parts) = forward.what {
            self.give_up_table(&parts);
        }
        if let Some(asker) = forward.asker {
            self.answer(asker, outcome, ReplyFields::default());
        }
    }

    /// Whoever waits for the mirror for too long is told that nobody knows.
    pub(crate) fn expire_forward(&mut self, now: Now, id: SegmentId) {
        let Some(mirror) = self.mirror_of(id) else { return };
        let Some(forward) = mirror.forward.as_mut().filter(|forward| forward.deadline_us <= now.steady_us) else {
            return;
        };
        let failure = match forward.what {
            ForwardKind::Grant(_) => Outcome::Failed(Failure::TimedOut),
            _ => Outcome::Indeterminate(Failure::TimedOut),
        };
        if let Some(asker) = forward.asker.take() {
            self.answer(asker, failure, ReplyFields::default());
        }
    }

    /// Every mirror on that node is out of reach.
    pub(crate) fn mirrors_lost(&mut self, now: Now, node: NodeId) {
        if !self.mirrors.agreed {
            return;
        }
        for id in self.segments.mirrored() {
            let mirror = self.mirror_of(id);
            if mirror.is_some_and(|mirror| mirror.node == node && matches!(mirror.role, Role::Home(_))) {
                self.lose_mirror(now, id);
            }
        }
    }

    /// The mirror does not have everything any more, or may not have: the cluster has to know before this home goes on
    /// without it.
    pub(crate) fn lose_mirror(&mut self, now: Now, id: SegmentId) {
        let forgets = planted!(self, UnpartedMirror);
        let Some(mirror) = self.mirror_of(id) else { return };
        match mirror.role {
            Role::Home(SyncState::Pairing | SyncState::Paired) if !forgets => {
                mirror.lost_us = now.steady_us;
                mirror.role = Role::Home(SyncState::Parting);
                mirror.turn += 1;
                self.mirrors.restless.insert(id);
                self.decide(now, id, ProposalKind::Part);
                self.set_gate(now, id);
            }
            Role::Home(SyncState::Alone | SyncState::Parting) => {}
            Role::Home(_) => self.unpaired(now, id),
            Role::Unsure | Role::Copy => {}
        }
    }

    /// The cluster knows that the mirror may not take over.
    pub(crate) fn parted(&mut self, now: Now, id: SegmentId) {
        self.unpaired(now, id);
    }

    /// The node that was asked cannot be the mirror now: others are asked before it is asked again.
    pub(crate) fn mirror_refused(&mut self, now: Now, id: SegmentId, why: Refusal) {
        let until_us = now.steady_us + self.mirrors.pause_us(why);
        let Some(mirror) = self.mirror_of(id) else { return };
        mirror.refusals.insert(mirror.node, Refused { why, until_us });
        self.unpaired(now, id);
    }

    /// The home is alone. What waited for the mirror happens.
    pub(crate) fn unpaired(&mut self, now: Now, id: SegmentId) {
        let Some(mirror) = self.mirror_of(id) else { return };
        mirror.role = Role::Home(SyncState::Alone);
        mirror.retry_us = now.steady_us;
        let forward = mirror.forward.take();
        let permits = std::mem::take(&mut mirror.permits);
        self.mirrors.restless.insert(id);
        if let Some(forward) = forward {
            self.finish_forward(now, id, forward);
        }
        for (who, permit, asker) in permits {
            if let Err(failure) = self.permit_here(now, who, id, permit, asker) {
                self.answer(asker, Outcome::Failed(failure), ReplyFields::default());
            }
        }
        self.set_gate(now, id);
        self.serve_line(now, id);
    }

    /// Permissions change while the home is alone, so that no mirror takes over with the old ones; `true` if that is later.
    pub(crate) fn permit_later(
        &mut self,
        now: Now,
        who: Principal,
        id: SegmentId,
        permit: PermissionUpdate,
        asker: Requester,
    ) -> Result<bool, Failure> {
        let Some(mirror) = self.mirror_of(id) else { return Ok(false) };
        match mirror.role {
            Role::Unsure | Role::Copy => Err(Failure::NodeDown),
            Role::Home(_) if mirror.fenced => Err(Failure::NodeDown),
            Role::Home(SyncState::Alone) => {
                mirror.retry_us = now.steady_us + Replicas::RETRY_US;
                Ok(false)
            }
            _ if mirror.permits.len() == MIRROR_PERMITS_MAX => Err(Failure::Busy),
            _ => {
                mirror.permits.push((who, permit, asker));
                self.lose_mirror(now, id);
                Ok(true)
            }
        }
    }

    /// A segment goes: whoever waits for its mirror is told.
    pub(crate) fn end_mirror(&mut self, id: SegmentId) {
        self.end_forward(id, Outcome::Failed(Failure::NotFound));
        let permits = self.mirror_of(id).map(|mirror| std::mem::take(&mut mirror.permits)).unwrap_or_default();
        for (_, _, asker) in permits {
            self.answer(asker, Outcome::Failed(Failure::NotFound), ReplyFields::default());
        }
        self.mirrors.restless.remove(&id);
        self.mirrors.copying.remove(&id);
        self.mirrors.unsure.retain(|&unsure| unsure != id);
    }
}
