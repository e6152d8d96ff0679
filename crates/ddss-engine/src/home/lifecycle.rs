//! Lifecycle of segments at their home: checks of quotas, creation and release.

use crate::action::Action;
use crate::config::Now;
use crate::home::handler::Home;
use crate::requester::{ReplyFields, Requester};
use crate::state::replication::Role;
use ddss_core::{
    Access, Failure, Header, Message, Name, Outcome, Permissions, Principal, Record, SegmentId, Spec, Storage,
    Timestamp, Version,
};

impl Home<'_> {
    /// Creates a segment at home here. The requester is answered from [`formatted`](Self::formatted), or at once if its
    /// owner is over quota.
    pub(crate) fn allocate_at_home(
        &mut self,
        now: Now,
        requester: Requester,
        principal: Principal,
        name: Name,
        spec: Spec,
    ) -> Result<(), Failure> {
        if spec.copies > 1 && !self.replicas.has_cluster() {
            // Without a cluster no authority could say which node is the home.
            return Err(Failure::NoCluster);
        }
        if spec.storage == Storage::File && !self.segments.allows_files() {
            return Err(Failure::Unsupported);
        }
        self.drop_spare_replica_named(now, &name);
        if self.segments.named(&name).is_some_and(|id| self.is_drop_deferred(id)) {
            return Err(Failure::InProgress);
        }
        if self.refuse_new(requester, principal, &name, &spec) {
            return Ok(());
        }
        let timestamp = self.clock.next(now.wall_us);
        let permissions = Permissions { owner: principal, mode: spec.mode };
        let record = self.segments.allocate(name, spec, permissions, timestamp, requester, None)?;
        self.format(record, timestamp);
        Ok(())
    }

    /// Emits the action that makes a segment's memory.
    pub(crate) fn format(&mut self, record: Record, timestamp: Timestamp) {
        let header = Header {
            state: Header::committed(Version(0)),
            timestamp: timestamp.0,
            segment: record.known_as.to_bits(),
            bytes: record.spec.bytes,
            locked: 0,
        };
        self.output.push(Action::Format { record, header, bytes: record.spec.pool_bytes() });
    }

    /// Completes the creation of a segment: its memory is there, or cannot be had.
    pub(crate) fn formatted(&mut self, now: Now, at: SegmentId, made: bool) {
        let Some((id, requester)) = self.segments.formed(at) else { return };
        if self.segments.get(id).is_ok_and(|segment| segment.is_replica()) {
            return self.replica_formatted(now, id, made);
        }
        if !made {
            // The segment was not visible yet.
            // The pool had room, so it is the file system that has none.
            let (name, failure) = match self.segments.get(id) {
                Ok(segment) if segment.spec.storage == Storage::File => (Some(segment.name()), Failure::NoFileSpace),
                Ok(segment) => (Some(segment.name()), Failure::NoSharedMemory),
                Err(_) => (None, Failure::NoSharedMemory),
            };
            if let Ok(released) = self.segments.release(id, now.steady_us) {
                debug_assert!(released.is_empty());
            }
            self.reclaim();
            if let Some(name) = name {
                self.return_name(name);
            }
            return self.output.answer(requester, Outcome::Failed(failure), ReplyFields::default());
        }
        if let Ok(segment) = self.segments.get(id)
            && let Some(to) = segment.history_offset(segment.version())
        {
            let (at, header) = (segment.at, segment.header(id));
            self.output.push(Action::SaveVersion { at, to, header });
        }
        self.replicate(now, |replication| replication.begin_as_home(now, id));
        self.watches().announce_names();
        match requester {
            Requester::Client(channel, request) => {
                if let Ok(segment) = self.segments.get(id) {
                    let info = segment.info(id);
                    self.output.finish_opened(channel, request, &self.segments.opened(&info));
                }
            }
            // The creator learns of it, whatever its mode says about reading.
            Requester::Peer(node, step) => {
                if let Err(failure) = self.send_description(node, step, id) {
                    self.output.answer(requester, Outcome::Failed(failure), ReplyFields::default());
                }
            }
        }
    }

    /// Releases a segment: its name and id at once, its memory when no peer reads it any more.
    pub(crate) fn release_at_home(&mut self, now: Now, principal: Principal, id: SegmentId) -> Result<(), Failure> {
        let segment = self.segments.get_mut(id)?;
        segment.permissions.allow(principal, Access::Release)?;
        self.segments.check_home(now, self.replicas, id)?;
        self.take_away(now, id)?;
        self.watches().announce_names();
        Ok(())
    }

    /// Removes a segment or a replica.
    pub(crate) fn take_away(&mut self, now: Now, id: SegmentId) -> Result<(), Failure> {
        if self.segments.get(id)?.lock_queue.is_memory_busy() {
            // Its bytes are being moved or written: their place could be given to another segment meanwhile.
            return Err(Failure::InProgress);
        }
        self.replication().end_replication(now, id);
        let slot = self.segments.slot_of(id)?;
        let segment = self.segments.get(id)?;
        let (at, history) = (segment.at, segment.history_offsets());
        let replication =
            segment.replication.as_deref().filter(|replication| matches!(replication.role, Role::Home(_)));
        let replica =
            replication.map(|replication| replication.node).filter(|node| !segment.window_holders().contains(node));
        let replica = replica.filter(|&node| self.peers.is_up(node));
        self.output.push(Action::DeleteRecord { segment: slot });
        for at in std::iter::once(at).chain(history) {
            self.output.push(Action::EraseHeader { at });
        }
        self.fail_all_waiters(id, Failure::NotFound);
        for node in self.segments.release(id, now.steady_us + Self::FORGET_US)?.into_iter().chain(replica) {
            self.output.send(node, Message::Forget { segment: id });
        }
        self.reclaim();
        Ok(())
    }

    /// Fails every waiter and watcher of a segment.
    pub(crate) fn fail_all_waiters(&mut self, id: SegmentId, failure: Failure) {
        self.fail_sweeps(id, failure);
        self.locks().fail_all(id, failure);
    }

    pub(crate) fn reclaim(&mut self) {
        while let Some((at, bytes)) = self.segments.reclaim() {
            self.output.push(Action::RevokeWindow { at });
            self.output.push(Action::ZeroFill { at, bytes });
        }
    }

    /// Answers a request for a segment that would exceed the limit of this node or the quota of its owner; `false` if it
    /// fits. A name that exists is not refused here: its own error says more.
    pub(crate) fn refuse_new(&mut self, requester: Requester, principal: Principal, name: &Name, spec: &Spec) -> bool {
        let home = self.directory.as_ref().and_then(|directory| directory.home_of(name));
        let exists = self.segments.is_taken(name) || home.is_some_and(|home| home != self.segments.node());
        let Err(failure) = self.segments.check_count() else {
            return self.refuse_over_quota(requester, principal, spec);
        };
        if !exists {
            let fields = ReplyFields { version: Version(self.segments.maximum() as u64), ..ReplyFields::default() };
            self.output.answer(requester, Outcome::Failed(failure), fields);
        }
        !exists
    }

    /// Answers a request for a segment that would exceed its owner's quota; `false` if it fits. The word of the answer
    /// is the usage, its version the limit.
    pub(crate) fn refuse_over_quota(&mut self, requester: Requester, principal: Principal, spec: &Spec) -> bool {
        let Some((failure, used, allowed)) = self.segments.accounts.exceeded_by(principal.uid, spec) else {
            return false;
        };
        self.output.counters.over_quota += 1;
        let fields = ReplyFields { version: Version(allowed), word: used, ..ReplyFields::default() };
        self.output.answer(requester, Outcome::Failed(failure), fields);
        true
    }

    /// Returns true if a replica here would exceed its owner's quota.
    pub(crate) fn is_over_quota(&mut self, owner: Principal, spec: &Spec) -> bool {
        let is_over = self.segments.accounts.exceeded_by(owner.uid, spec).is_some();
        self.output.counters.over_quota += u64::from(is_over);
        is_over
    }
}
