//! Large puts at their home: parts are copied aside as they arrive, and one commit makes them a version.
//!
//! The commit of a large value takes milliseconds, so the daemon does it in slices ([`Action::CommitLarge`]). Until it
//! ends, every operation on the segment waits in the lock queue. The version advances at the end: a commit for which
//! the daemon finds no memory has had no effect.

use crate::action::{Action, CommitSource, RangeSet};
use crate::config::Now;
use crate::home::handler::Home;
use crate::requester::{ReplyFields, Requester};
use crate::state::lock_queue::{PendingOp, Waiter};
use crate::state::memory::areas::no_room;
use crate::state::memory::uploads::{LargeCommit, UploadOwner};
use crate::state::segments::check_range;
use ddss_core::{Access, ClientId, Failure, Outcome, Part, Principal, PutConditions, SegmentId, UploadId};

/// Requester of an operation on an upload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uploader {
    pub(crate) requester: Requester,
    pub(crate) principal: Principal,
    pub(crate) client: ClientId,
    pub(crate) deadline_us: u64,
}

impl Home<'_> {
    fn owner_of(&self, uploader: &Uploader) -> UploadOwner {
        let node = match uploader.requester {
            Requester::Client(..) => self.segments.node(),
            Requester::Peer(node, _) => node,
        };
        UploadOwner { node, client: uploader.client }
    }

    /// Stores a part of a large put and answers with the number of the upload. On error the caller still owns a buffer
    /// of the source.
    pub(crate) fn store_part(
        &mut self,
        now: Now,
        uploader: &Uploader,
        id: SegmentId,
        part: Part,
        (source, length): (CommitSource, u32),
    ) -> Result<(), Failure> {
        part.check(length)?;
        let owner = self.owner_of(uploader);
        let upload = if part.upload == UploadId(0) {
            self.begin_upload(now, uploader, owner, id, part.total)?
        } else {
            part.upload
        };
        let to = self.uploads.append(now.steady_us, upload, (owner, id), (part.at, length))?;
        self.output.push(Action::CopyAside { source, bytes: length, to });
        let fields = ReplyFields { word: upload.0.into(), ..ReplyFields::default() };
        self.output.answer(uploader.requester, Outcome::Done, fields);
        Ok(())
    }

    fn begin_upload(
        &mut self,
        now: Now,
        uploader: &Uploader,
        owner: UploadOwner,
        id: SegmentId,
        total: u32,
    ) -> Result<UploadId, Failure> {
        self.segments.update_lock_gate(now, self.replicas, id);
        let segment = self.segments.get(id)?;
        if segment.is_replica() {
            return Err(Failure::NodeDown);
        }
        let allowed = segment.permissions.allow(uploader.principal, Access::Write);
        allowed.map_err(|failure| self.segments.mask_denial_in_doubt(id, failure))?;
        check_range(segment.spec.bytes, 0, total)?;
        if segment.has_history() || segment.spec.layout().is_some() {
            // The history gets each version in one copy.
            return Err(Failure::TooLarge);
        }
        self.upload_memory().begin(now, owner, id, total)
    }

    /// Commits a complete upload like a put of its bytes.
    pub(crate) fn commit_upload(
        &mut self,
        now: Now,
        uploader: &Uploader,
        id: SegmentId,
        (offset, upload): (u64, UploadId),
        conditions: PutConditions,
    ) -> Result<(), Failure> {
        let owner = self.owner_of(uploader);
        let (at, bytes) = self.uploads.commit(upload, owner, id)?;
        let (parts, source) = (RangeSet::One { offset, bytes }, CommitSource::Pool(at));
        let Uploader { requester, principal, deadline_us, .. } = *uploader;
        let op = PendingOp::Put { parts, source, conditions };
        self.operate(|operations| operations.submit_op(now, id, &Waiter { requester, principal, op, deadline_us }))
    }

    /// Ends a large commit: its bytes are in the segment, or there was no memory to undo it after a crash, and nothing
    /// has happened.
    pub(crate) fn large_committed(&mut self, now: Now, id: SegmentId, made: bool) {
        let Some(commit) = self.operations().commits().end_large(id, made) else { return };
        let Ok(segment) = self.segments.get(id) else { return };
        let (storage, is_replicated) = (segment.spec.storage, segment.replication.is_some());
        let LargeCommit { requester, version, timestamp, .. } = commit;
        if is_replicated {
            return self.replicated_large_committed(now, id, &commit, made);
        }
        if made {
            self.operations().watches().answer_change(requester, id, None, ReplyFields { version, timestamp, word: 0 });
        } else if let Some(requester) = requester {
            self.output.answer(requester, Outcome::Failed(no_room(storage)), ReplyFields::default());
        }
        self.operations().serve_lock_queue(now, id);
    }

    /// Ends a large commit of a segment that has or is a replica.
    pub(crate) fn replicated_large_committed(&mut self, now: Now, id: SegmentId, commit: &LargeCommit, made: bool) {
        let LargeCommit { requester, offset, bytes, version, timestamp, .. } = *commit;
        let Ok(segment) = self.segments.get(id) else { return };
        let storage = segment.spec.storage;
        let Some(replication) = segment.replication.as_deref() else { return };
        let is_home = replication.is_home();
        let outcome = match made {
            _ if !is_home || commit.is_drop_deferred => Outcome::Indeterminate(Failure::NodeDown),
            true => Outcome::Done,
            false => Outcome::Failed(no_room(storage)),
        };
        let fields = if made { ReplyFields { version, timestamp, word: 0 } } else { ReplyFields::default() };
        if let Some(requester) = requester {
            self.output.answer(requester, outcome, fields);
        }
        if !is_home {
            return self.replica_committed(now, id, commit, made);
        }
        if commit.is_drop_deferred {
            return self.lifecycle().drop_replica(now, id);
        }
        if made {
            self.replication().note_dirty(now, id, &RangeSet::One { offset, bytes }, None);
            self.operations().watches().answer_change(None, id, None, fields);
        }
        // A copy that was complete but for this value waited for it.
        self.replication().continue_resync(now, id);
        self.operations().serve_lock_queue(now, id);
    }

    /// Ends a large put that this replica has committed, or has no room for.
    pub(crate) fn replica_committed(&mut self, now: Now, id: SegmentId, commit: &LargeCommit, made: bool) {
        self.replica_store().acknowledge_commit(id, commit, made);
        if commit.is_drop_deferred && self.segments.replication_of(id).is_some() {
            self.lifecycle().drop_replica(now, id);
        }
    }
}
