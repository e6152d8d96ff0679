//! Puts of a replicated segment: prepared here, sent to the replica, committed and answered when the replica has them.
//! One at a time for each segment; gets continue, and see the state before it.
//!
//! The bytes are copied aside first, since a client or peer could change them between the two copies. A lock grant is
//! forwarded without bytes, so that a home that takes over gives only newer tokens.

use crate::action::{Action, CommitSource, MessageBody, PeerAction, RangeSet};
use crate::config::Now;
use crate::fault_injection::planted;
use crate::replication::forward_content::ForwardContent;
use crate::replication::handler::Replication;
use crate::requester::{ReplyFields, Requester};
use crate::state::replication::{
    ForwardKind, ForwardedUpload, HomeWork, PendingForward, Replicas, Role, SegmentChange, SyncState, UndoMemory,
};
use ddss_core::limits::DEFERRED_UPDATES_MAX;
use ddss_core::{
    Failure, Limit, LockRequest, LockToken, Message, Outcome, PermissionUpdate, Principal, SegmentId, Timestamp,
    Version,
};

impl Replication<'_> {
    pub(crate) fn forward_put(&mut self, now: Now, id: SegmentId, change: SegmentChange) -> Result<(), Failure> {
        let SegmentChange { requester, parts, source, row, word, deadline_us } = change;
        let segment = self.segments.get(id)?;
        let version = Version(segment.version().0 + 1);
        let Some(replication) = segment.replication.as_deref() else { return Err(Failure::NodeDown) };
        assert!(!matches!(replication.role, Role::Home(SyncState::Parting)), "puts wait until the cluster has decided");
        let node = replication.node;
        let bytes = parts.bytes();
        let (offset, ranges) = match parts {
            RangeSet::One { offset, .. } => (offset, 0),
            RangeSet::Many { .. } if bytes == 0 => {
                (row.map_or(0, |commit| commit.row * u64::from(segment.spec.row_bytes)), 0)
            }
            RangeSet::Many { .. } => (0, self.output.ranges_of(&parts).len() as u8),
        };
        let is_staged = ranges > 0 || bytes as usize > Message::PUT_BYTES_MAX;
        let ticket = if is_staged {
            let peer = self.peers.reachable(node).ok_or(Failure::NodeDown)?;
            Some(peer.staging.take(bytes).ok_or(Failure::Busy(Limit::Staging))?)
        } else {
            None
        };
        let at = if bytes > 0 { self.segments.allocate_blocks(bytes.into()) } else { Some(0) };
        let served_get = at.filter(|_| is_staged).and_then(|at| self.peers.get_buffers.insert(at, bytes.into(), 2));
        let (Some(at), true) = (at, served_get.is_some() == is_staged) else {
            if let Some(at) = at.filter(|_| bytes > 0) {
                self.segments.free_blocks(at, bytes.into());
            }
            if let Some(ticket) = ticket {
                self.outgoing_bytes().free_place(node, ticket.number());
            }
            return Err(Failure::Busy(Limit::Pool));
        };
        let timestamp = self.clock.next(now.wall_us);
        self.output.push(Action::CopyAside { source, bytes, to: at });
        if let CommitSource::Pool(upload) = source {
            self.upload_memory().free_at(upload);
        }
        let place = (bytes > 0).then_some((at, bytes.into()));
        let what = ForwardKind::Put(parts, row);
        let forward = PendingForward { what, requester, version, timestamp, word, place, served_get, deadline_us };
        let (staged, number) = ticket.map_or((Message::NOT_STAGED, Message::NOT_STAGED), |t| (t.at, t.number()));
        let epoch = self.begin_forward(now, id, forward);
        let row_version = row.map_or(Version(0), |row| row.version);
        let content = ForwardContent { row_version, offset, length: bytes, staged, number, ranges };
        let message = content.message(id, epoch, (version, timestamp));
        if let Some(served_get) = served_get {
            let table = if let RangeSet::Many { table, .. } = parts { Some(table) } else { None };
            self.output.push(Action::Peer(PeerAction::SendStaged {
                node,
                served_get,
                at: staged,
                from: at,
                bytes,
                message,
                table,
            }));
        } else {
            let tail = MessageBody::Pool(at, RangeSet::One { offset: 0, bytes });
            self.output.push(Action::Peer(PeerAction::Send { node, message, tail }));
        }
        if planted!(self.segments, EarlyAcknowledgement) {
            // It is committed and answered before the replica has it: an injected bug.
            if let Some(replication) = self.segments.replication_of(id) {
                replication.forward = Some(PendingForward { what: ForwardKind::Done, requester: None, ..forward });
            }
            self.replicas.add_work(now, id, HomeWork::Finish(forward));
        }
        Ok(())
    }

    /// Records the operation that waits for the replica; returns the epoch.
    pub(crate) fn begin_forward(&mut self, now: Now, id: SegmentId, forward: PendingForward) -> u32 {
        let Some(replication) = self.segments.replication_of(id) else { return 0 };
        let epoch = replication.begin_forward(forward);
        self.segments.update_lock_gate(now, self.replicas, id);
        self.segments.mark_busy(id);
        epoch
    }

    /// Forwards the token of a grant to the replica; `false` if that is not needed.
    pub(crate) fn forward_grant(
        &mut self,
        now: Now,
        id: SegmentId,
        requester: Requester,
        lock_request: LockRequest,
        token: LockToken,
    ) -> bool {
        let Ok(segment) = self.segments.get(id) else { return false };
        let Some(replication) =
            segment.replication.as_deref().filter(|replication| replication.needs_acknowledgement())
        else {
            return false;
        };
        let (version, node, timestamp) = (segment.version(), replication.node, Timestamp(token.0));
        let goes_out = !matches!(replication.role, Role::Home(SyncState::Parting));
        let deadline_us = now.steady_us.saturating_add(lock_request.lease_us.into());
        let (what, requester) = (ForwardKind::Grant(lock_request), Some(requester));
        let forward =
            PendingForward { what, requester, version, timestamp, word: 0, place: None, served_get: None, deadline_us };
        let epoch = self.begin_forward(now, id, forward);
        if goes_out {
            self.send_floor(node, id, epoch, version, timestamp);
        }
        true
    }

    /// Frees the bytes of an operation that has ended.
    pub(crate) fn free_place(&mut self, forward: &PendingForward) {
        match (forward.served_get, forward.place) {
            (Some(served_get), _) => self.outgoing_bytes().sent(served_get),
            (None, Some((at, bytes))) => self.segments.free_blocks(at, bytes),
            (None, None) => {}
        }
    }

    /// Abandons the operation that waited for the replica.
    pub(crate) fn end_forward(&mut self, now: Now, id: SegmentId, outcome: Outcome, fields: ReplyFields) {
        let Some(forward) = self.segments.replication_of(id).and_then(|replication| replication.forward.take()) else {
            return;
        };
        self.free_place(&forward);
        match forward.what {
            ForwardKind::Put(parts, _) => self.output.free_table(&parts),
            ForwardKind::PutLarge(upload) => self.abandon_forwarded(now, upload),
            ForwardKind::Grant(_) | ForwardKind::Done => {}
        }
        if let Some(requester) = forward.requester {
            self.output.answer(requester, outcome, fields);
        }
    }

    /// Answers a requester that waited too long for the replica: outcome unknown.
    pub(crate) fn expire_forward(&mut self, now: Now, id: SegmentId) {
        let Some(replication) = self.segments.replication_of(id) else { return };
        let Some(forward) = replication.forward.as_mut().filter(|forward| forward.deadline_us <= now.steady_us) else {
            return;
        };
        let failure = match forward.what {
            ForwardKind::Grant(_) => Outcome::Failed(Failure::TimedOut),
            // The replica keeps its version: the put fails.
            ForwardKind::PutLarge(upload) if upload.refusal.is_some() && upload.in_flight == 0 => return,
            _ => Outcome::Indeterminate(Failure::TimedOut),
        };
        if let Some(requester) = forward.requester.take() {
            self.output.answer(requester, failure, ReplyFields::default());
        }
    }

    /// Defers a change of permissions until the home is alone, so that no replica takes over with the old ones; `true`
    /// if deferred.
    pub(crate) fn defer_update(
        &mut self,
        now: Now,
        id: SegmentId,
        update: (Principal, PermissionUpdate, Requester),
    ) -> Result<bool, Failure> {
        let Some(replication) = self.segments.replication_of(id) else { return Ok(false) };
        match replication.role {
            Role::Unconfirmed | Role::Replica => Err(Failure::NodeDown),
            Role::Home(_) if replication.fenced => Err(Failure::NodeDown),
            Role::Home(SyncState::Alone) => {
                replication.retry_us = now.steady_us + Replicas::RETRY_US;
                Ok(false)
            }
            _ if replication.deferred_updates.len() == DEFERRED_UPDATES_MAX => Err(Failure::Busy(Limit::Updates)),
            _ => {
                replication.deferred_updates.push(update);
                self.lose_replica(now, id);
                Ok(true)
            }
        }
    }

    /// Answers everything that waits for the replica of a segment that is being released.
    pub(crate) fn end_replication(&mut self, now: Now, id: SegmentId) {
        self.end_forward(now, id, Outcome::Failed(Failure::NotFound), ReplyFields::default());
        self.upload_memory().drop_incoming(id);
        let deferred_updates = self
            .segments
            .replication_of(id)
            .map(|replication| std::mem::take(&mut replication.deferred_updates))
            .unwrap_or_default();
        for (_, _, requester) in deferred_updates {
            self.output.answer(requester, Outcome::Failed(Failure::NotFound), ReplyFields::default());
        }
        self.replicas.forget(id);
    }

    /// Frees the upload of a put that was abandoned. Parts that are still in flight read it for some time.
    pub(crate) fn abandon_forwarded(&mut self, now: Now, upload: ForwardedUpload) {
        if upload.undo == UndoMemory::Reserved {
            self.output.push(Action::ReleaseUndo);
        }
        if upload.in_flight == 0 {
            self.upload_memory().free_at(upload.from);
        } else {
            self.uploads.abandon(now.steady_us, upload.from);
        }
    }
}
