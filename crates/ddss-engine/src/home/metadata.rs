//! Segment metadata and permissions: lists, segment info, permission changes and the moves that they cause.

use crate::action::Action;
use crate::config::Now;
use crate::home::handler::Home;
use crate::lifecycle::handler::Lifecycle;
use crate::requester::{LockOwner, ReplyFields, Requester};
use crate::state::segments::{MoveOutcome, Segment};
use arrayvec::ArrayVec;
use ddss_core::{
    Access, Failure, ListQuery, Listing, LockHolder, Message, NodeId, Outcome, PermissionUpdate, Permissions,
    Principal, ReplicationInfo, SegmentId,
};

type PageBytes = ArrayVec<u8, { Listing::PAGE_BYTES }>;

fn listing(now: Now, node: NodeId, segment: &Segment, is_up: impl Fn(NodeId) -> bool) -> Listing {
    let many = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    let holder = segment.lock_queue.first_holder().map(|holder| {
        let (node, client) = match holder.owner {
            LockOwner::Client(client) => (node, Some(many(client.index as usize))),
            LockOwner::Peer(node) => (node, None),
        };
        let left = holder.until_us.saturating_sub(now.steady_us);
        LockHolder { node, client, lease_left_us: u32::try_from(left).unwrap_or(u32::MAX) }
    });
    let replication = segment.replication.as_deref();
    Listing {
        name: segment.name(),
        info: segment.info(segment.id),
        version: segment.version(),
        timestamp: segment.timestamp(),
        holders: many(segment.lock_queue.holders()),
        locked: segment.lock_queue.is_exclusive(),
        waiting: many(segment.lock_queue.waiting()),
        readers: many(segment.window_holders().len()),
        home: node,
        replica: replication.map_or(NodeId::NONE, |replication| replication.node),
        replication: replication.map_or(ReplicationInfo::None, |replication| replication.replication_info()),
        degraded: replication.and_then(|replication| replication.degraded(is_up(replication.node))),
        holder,
    }
}

/// Hides a segment from a user with no permission to read, write or release it.
fn may_hear(permissions: &Permissions, principal: Principal) -> Result<(), Failure> {
    let may = |access| permissions.allow(principal, access);
    may(Access::Read).or_else(|_| may(Access::Write)).or_else(|_| may(Access::Release))
}

impl Home<'_> {
    fn listing(&self, now: Now, segment: &Segment) -> Listing {
        listing(now, self.segments.node(), segment, |node| self.replicas.can_serve(self.peers, node))
    }

    /// Returns the next page of this node's segments, and whether there are more.
    pub(crate) fn page(&self, now: Now, principal: Principal, query: &ListQuery) -> (PageBytes, bool) {
        let mut page = PageBytes::new();
        let (prefix, after) = (query.prefix.as_str(), query.after.as_str());
        // The prefix itself may be a name, so it is looked up first.
        let exact = self.segments.exact(prefix).filter(|_| after < prefix);
        let from = if after < prefix { prefix } else { after };
        let behind = self.segments.after(from).take_while(|(_, segment)| segment.text().starts_with(prefix));
        for (_, segment) in exact.into_iter().chain(behind) {
            if may_hear(&segment.permissions, principal).is_ok() && !self.listing(now, segment).add_to(&mut page) {
                return (page, true);
            }
        }
        (page, false)
    }

    pub(crate) fn page_of_one(&mut self, now: Now, id: SegmentId, principal: Principal) -> Result<PageBytes, Failure> {
        self.segments.update_lock_gate(now, self.replicas, id);
        let segment = self.segments.get(id)?;
        if segment.is_replica() {
            return Err(Failure::NodeDown);
        }
        may_hear(&segment.permissions, principal).map_err(|failure| self.segments.mask_denial_in_doubt(id, failure))?;
        let mut page = PageBytes::new();
        assert!(self.listing(now, segment).add_to(&mut page), "a page holds at least one");
        Ok(page)
    }

    pub(crate) fn send_page(&mut self, node: NodeId, step: u64, page: &[u8], more: bool) {
        self.output.send_with(node, Message::Listed { step, more }, page);
    }

    /// Changes the permissions of a segment at home here, if `principal` may. If the set of readers changes, the segment
    /// moves to their memory area, so that processes with the old area mapped no longer see it.
    pub(crate) fn update_permissions_at_home(
        &mut self,
        now: Now,
        principal: Principal,
        id: SegmentId,
        update: PermissionUpdate,
        requester: Requester,
    ) -> Result<(), Failure> {
        let segment = self.segments.get(id)?;
        if segment.lock_queue.is_memory_busy() {
            return Err(Failure::InProgress);
        }
        let (spec, given_to) = (segment.spec, segment.permissions.changed(principal, update)?.owner);
        if given_to.uid != segment.permissions.owner.uid
            && self.lifecycle().refuse_over_quota(requester, given_to, &spec)
        {
            return Ok(());
        }
        let segment = self.segments.get(id)?;
        if segment.replication.is_some() && self.replication().defer_update(now, id, (principal, update, requester))? {
            return Ok(());
        }
        let segment = self.segments.get(id)?;
        let old = segment.permissions;
        let new = old.changed(principal, update)?;
        if new.audience() == old.audience() {
            self.segments.set_permissions(id, new)?;
            self.output.rewrite_record(self.segments, id);
            self.announce_permissions(id, requester);
            return Ok(());
        }
        let (record, from, bytes) = self.segments.begin_move(id, new, requester)?;
        self.output.push(Action::Move { record, from, bytes });
        Ok(())
    }

    /// Completes a move.
    pub(crate) fn moved(&mut self, now: Now, at: SegmentId, made: bool) {
        let Some(id) = self.segments.at_slot(at) else { return };
        let deadline_us = now.steady_us + Lifecycle::FORGET_US;
        match self.segments.end_move(id, made, deadline_us) {
            None => return,
            Some(MoveOutcome::Not { requester, to, bytes, failure }) => {
                self.output.push(Action::ZeroFill { at: to, bytes });
                self.output.answer(requester, Outcome::Failed(failure), ReplyFields::default());
            }
            Some(MoveOutcome::There { requester, record, from, holder, readers }) => {
                // A lock may have been released meanwhile. Until the record changes, the segment is in the old place.
                self.output.push(Action::SetLockHolder { at: record.at, holder });
                self.output.push(Action::RewriteRecord { record });
                for line in record.spec.header_lines() {
                    self.output.push(Action::EraseHeader { at: from + line });
                }
                for node in readers {
                    self.output.send(node, Message::Forget { segment: id });
                }
                self.lifecycle().reclaim();
                self.announce_permissions(id, requester);
            }
        }
        self.operations().serve_lock_queue(now, id);
    }

    /// Announces new permissions to every node that knows the old ones, and answers the requester.
    fn announce_permissions(&mut self, id: SegmentId, requester: Requester) {
        let Ok(segment) = self.segments.get(id) else { return };
        let fields = ReplyFields::of(segment.stamp(), 0);
        let (info, readers) = (segment.info(id), segment.window_holders().to_vec());
        for node in readers {
            self.output.send(node, Message::Changed { info });
        }
        self.operations().watches().announce_names();
        self.output.answer(requester, Outcome::Done, fields);
    }
}
