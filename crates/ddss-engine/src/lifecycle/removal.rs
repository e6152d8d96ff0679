//! Release of segments, and the end of replicas here.

use crate::action::{Action, PeerAction};
use crate::config::Now;
use crate::lifecycle::handler::Lifecycle;
use crate::state::replication::Role;
use ddss_core::{Access, Failure, Message, Name, NodeId, OfferReply, Principal, Refusal, SegmentId};

impl Lifecycle<'_> {
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
        self.locks().fail_all(id, Failure::NotFound);
        for node in self.segments.release(id, now.steady_us + Self::FORGET_US)?.into_iter().chain(replica) {
            self.output.send(node, Message::Forget { segment: id });
        }
        self.reclaim();
        Ok(())
    }

    pub(crate) fn reclaim(&mut self) {
        while let Some((at, bytes)) = self.segments.reclaim() {
            self.output.push(Action::Peer(PeerAction::RevokeWindow { at }));
            self.output.push(Action::ZeroFill { at, bytes });
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

    /// Drops a replica since another node has that role. The home is told: it may have asked this node after the
    /// decision.
    pub(crate) fn give_up_replica(&mut self, now: Now, id: SegmentId) {
        let Some(replication) = self.segments.replication_of(id) else { return };
        let (home, epoch) = (replication.node, replication.epoch);
        self.drop_replica(now, id);
        self.replica_store().send_offer_reply(home, id, epoch, OfferReply::No(Refusal::NotReady));
    }

    /// Drops a spare replica of that name. The cluster gives a name to one segment at a time, so its home segment is
    /// gone.
    pub(crate) fn drop_spare_replica_named(&mut self, now: Now, name: &Name) {
        let Some(id) = self.segments.named(name) else { return };
        if self.segments.is_spare(id, self.replicas) {
            self.drop_replica(now, id);
        }
    }

    /// Drops a replica whose home released the segment. A replica that was never in sync is in no decision of the
    /// cluster, and goes with this message.
    pub(crate) fn drop_replica_of(&mut self, now: Now, home: NodeId, id: SegmentId) {
        if self.segments.replication_of(id).is_some_and(|replication| replication.node == home)
            && self.segments.is_spare(id, self.replicas)
        {
            self.drop_replica(now, id);
        }
    }

    /// Drops a replica; while the daemon writes a large value into it, at the end of that.
    pub(crate) fn drop_replica(&mut self, now: Now, id: SegmentId) {
        self.locks().fail_all(id, Failure::NodeDown);
        if self.segments.get_mut(id).is_ok_and(|segment| segment.defer_drop()) {
            return;
        }
        // The replica exists: its removal cannot fail.
        let _ = self.take_away(now, id);
    }

    /// Returns true if a segment is dropped at the end of its large commit.
    pub(crate) fn is_drop_deferred(&self, id: SegmentId) -> bool {
        self.segments.get(id).is_ok_and(|segment| segment.is_drop_deferred())
    }
}
