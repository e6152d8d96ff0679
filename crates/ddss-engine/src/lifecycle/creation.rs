//! Creation of segments and replicas here: their memory is made by the daemon, and their requester answered when it exists.

use crate::action::{Action, ControlAction, PeerAction};
use crate::config::Now;
use crate::lifecycle::handler::Lifecycle;
use crate::replica::offers::ReplicaOffer;
use crate::requester::{ReplyFields, Requester};
use crate::state::replication::{ReplicatedSegment, Role};
use ddss_core::{
    Access, Failure, Header, Message, Name, NodeId, OfferReply, Outcome, Permissions, Principal, Record, Refusal,
    SegmentId, Spec, Storage, Timestamp, Version,
};

impl Lifecycle<'_> {
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
        self.replication().begin_as_home(now, id);
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

    /// Gives a name back whose segment could not be created.
    pub(crate) fn return_name(&mut self, name: Name) {
        let Some(directory) = &mut self.directory else { return };
        let claim = directory.begin_return(name);
        self.output.push(Action::Control(ControlAction::ReleaseName { claim, name }));
    }

    /// Creates a replica. [`replica_formatted`](Self::replica_formatted) reports its completion.
    pub(crate) fn create_replica(&mut self, now: Now, node: NodeId, offer: &ReplicaOffer) {
        let ReplicaOffer { id, epoch, spec, permissions, name, .. } = *offer;
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
            Err(why) => return self.replica_store().send_offer_reply(node, id, epoch, OfferReply::No(why)),
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
        self.replica_store().send_offer_reply(
            node,
            id,
            epoch,
            if made { OfferReply::Empty } else { OfferReply::No(Refusal::NoRoom) },
        );
    }

    /// Gives a peer a window over a segment, if the user on whose behalf it asks may access the segment.
    pub(crate) fn describe_segment(
        &mut self,
        node: NodeId,
        step: u64,
        principal: Principal,
        id: SegmentId,
    ) -> Result<(), Failure> {
        let permissions = self.segments.get(id)?.permissions;
        let allowed =
            permissions.allow(principal, Access::Read).or_else(|_| permissions.allow(principal, Access::Write));
        allowed.map_err(|failure| self.segments.mask_denial_in_doubt(id, failure))?;
        self.send_description(node, step, id)
    }

    pub(crate) fn send_description(&mut self, node: NodeId, step: u64, id: SegmentId) -> Result<(), Failure> {
        let segment = self.segments.get_mut(id)?;
        if segment.is_replica() {
            return Err(Failure::NodeDown);
        }
        segment.add_window_holder(node);
        let (at, bytes, is_replicated) = (segment.at, segment.pool_bytes(), segment.replication.is_some());
        let message = Message::Found { step, info: segment.info(id), window: Default::default() };
        if is_replicated {
            // A window could outlive this node's time as the home, so there is none.
            self.output.send(node, message);
        } else {
            self.output.push(Action::Peer(PeerAction::GrantWindow { node, message, at, bytes }));
        }
        Ok(())
    }
}
