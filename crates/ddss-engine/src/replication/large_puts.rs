//! Large puts of a replicated segment. The home sends the parts of a complete upload to the replica, which stores them
//! beside its copy and commits all of them as one version. The home commits and answers after the replica. It reserves
//! the memory for that before the first part goes out: it cannot fail once the replica has the value.
//!
//! Until its commit has ended, the replica acknowledges only parts. So a home that dies before that is followed by a
//! replica with the old value, or with the complete new one, of which no caller has heard.

use crate::action::{Action, CommitSource, RangeSet};
use crate::config::Now;
use crate::fault_injection::planted;
use crate::replication::handler::Replication;
use crate::requester::ReplyFields;
use crate::state::replication::{
    ForwardKind, ForwardedUpload, HomeWork, PendingForward, Replicas, Role, SegmentChange, SyncState, UndoMemory,
};
use ddss_core::{Failure, Message, NodeId, Outcome, SegmentId, Timestamp};

impl Replication<'_> {
    /// Sends a complete upload to the replica. The put is committed and answered when the replica has committed it.
    pub(crate) fn forward_large(&mut self, now: Now, id: SegmentId, change: SegmentChange) -> Result<(), Failure> {
        let SegmentChange { requester, parts, source, deadline_us, .. } = change;
        let (CommitSource::Pool(from), RangeSet::One { offset, bytes }) = (source, parts) else {
            return Err(Failure::Malformed);
        };
        let (version, timestamp) = self.segments.get(id)?.next_stamp(self.clock, now.wall_us);
        let undo = match planted!(self.segments, UnreservedUndo) {
            true => UndoMemory::Unreserved,
            false => UndoMemory::Awaited,
        };
        let what = ForwardKind::PutLarge(ForwardedUpload::new(offset, bytes, from, undo));
        let at = self.segments.get(id)?.at;
        let (place, served_get) = (None, None);
        let forward = PendingForward { what, requester, version, timestamp, word: 0, place, served_get, deadline_us };
        self.begin_forward(now, id, forward);
        if undo == UndoMemory::Awaited {
            self.output.push(Action::ReserveUndo { segment: id, at, bytes, timestamp });
        }
        self.continue_large_forward(now, id);
        Ok(())
    }

    /// Sends the parts of a large put whose commit here has its memory, or fails the put: nothing has happened.
    pub(crate) fn undo_reserved(&mut self, now: Now, id: SegmentId, timestamp: Timestamp, made: bool) {
        match self.forwarded_upload(id, timestamp) {
            Some(upload) if made => {
                upload.undo = UndoMemory::Reserved;
                self.continue_large_forward(now, id);
            }
            Some(_) => self.fail_large_forward(now, id, self.segments.node()),
            // The put has ended, or it is committed without a replica.
            None if made => self.output.push(Action::ReleaseUndo),
            None => {}
        }
    }

    /// Fails a large put for which a node has no memory. Neither node has a new version.
    fn fail_large_forward(&mut self, now: Now, id: SegmentId, node: NodeId) {
        let fields = ReplyFields { word: node.0.into(), ..ReplyFields::default() };
        self.end_forward(now, id, Outcome::Failed(Failure::NoSpace), fields);
        self.segments.update_lock_gate(now, self.replicas, id);
        self.replicas.add_work(now, id, HomeWork::Serve);
    }

    /// Sends as many parts of a large put as may be in flight.
    pub(crate) fn continue_large_forward(&mut self, now: Now, id: SegmentId) {
        if !self.is_accepted(now, id) {
            return;
        }
        let part_bytes = self.replicas.piece_bytes();
        while let Some(replication) = self.segments.replication_of(id) {
            let (segment, node, epoch) = (id, replication.node, replication.epoch);
            if matches!(replication.role, Role::Home(SyncState::Parting)) {
                return;
            }
            let Some(forward) = replication.forward.as_mut() else { return };
            let (version, timestamp) = (forward.version, forward.timestamp);
            let ForwardKind::PutLarge(upload) = &mut forward.what else { return };
            let Some((at, length)) = upload.begin_part(part_bytes) else { return };
            let (offset, total, from) = (upload.offset, upload.bytes, upload.from + u64::from(at));
            let sent = self.outgoing_bytes().send_pool_bytes(node, from, length, |staged, number| {
                Message::ForwardPart { segment, epoch, version, timestamp, offset, at, total, length, staged, number }
            });
            if !sent {
                if let Some(upload) = self.forwarded_upload(id, timestamp) {
                    upload.return_part(length);
                }
                return;
            }
        }
    }

    /// Decides about a large put that the replica has refused, once each part is answered: it begins again, or fails.
    /// The replica keeps its version, and so does this home. Returns true if parts may go out.
    fn is_accepted(&mut self, now: Now, id: SegmentId) -> bool {
        let Some(replication) = self.segments.replication_of(id) else { return false };
        let node = replication.node;
        let Some(forward) = replication.forward.as_mut() else { return false };
        let (deadline_us, is_answered) = (forward.deadline_us, forward.requester.is_none());
        let ForwardKind::PutLarge(upload) = &mut forward.what else { return false };
        let Some(refusal) = upload.refusal else { return true };
        if upload.in_flight > 0 {
            return false;
        }
        if refusal.is_final || is_answered || now.steady_us >= deadline_us {
            self.fail_large_forward(now, id, node);
            return false;
        }
        if now.steady_us < refusal.retry_us {
            return false;
        }
        (upload.sent, upload.refusal) = (0, None);
        true
    }

    /// Handles the refusal of a large put.
    pub(crate) fn part_refused(&mut self, now: Now, id: SegmentId, is_final: bool, timestamp: Timestamp) {
        if planted!(self.segments, AloneAfterRefusal) {
            return self.lose_replica(now, id);
        }
        if let Some(upload) = self.forwarded_upload(id, timestamp) {
            upload.refuse(is_final, now.steady_us + Replicas::RETRY_US);
            self.continue_large_forward(now, id);
        }
    }

    fn forwarded_upload(&mut self, id: SegmentId, timestamp: Timestamp) -> Option<&mut ForwardedUpload> {
        let forward = self.segments.replication_of(id)?.forward.as_mut()?;
        match &mut forward.what {
            ForwardKind::PutLarge(upload) if forward.timestamp == timestamp => Some(upload),
            _ => None,
        }
    }

    /// Handles the acknowledgement of a part; `false` if no large put waits for it.
    pub(crate) fn part_stored(&mut self, now: Now, id: SegmentId, timestamp: Timestamp) -> bool {
        let Some(upload) = self.forwarded_upload(id, timestamp) else { return false };
        upload.end_part();
        self.continue_large_forward(now, id);
        true
    }
}
