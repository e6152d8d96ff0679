//! What is told about segments, and who may use them: lists, facts, permissions.

use super::home_ops::ReplyFields;
use crate::engine::action::{Action, MessageBody};
use crate::engine::engine::{Engine, LocalCaller, Now};
use crate::engine::state::buffer_pool::BufferId;
use crate::engine::state::lock_queue::{LockOwner, Requester};
use crate::engine::state::pending::{StepId, WaitState};
use crate::engine::state::segments::Segment;
use crate::model::record::Record;
use crate::model::segment::{Access, Permissions, Principal};
use crate::request::listing::{ListPage, ListQuery, Listing, LockHolder, ReplicationInfo};
use crate::request::operation::{ArenaRange, LockToken, PermissionUpdate};
use crate::{ChannelId, Completion, Failure, Message, NodeId, Outcome, RequestId, SegmentId, SegmentInfo};
use arrayvec::ArrayVec;

type Bytes = ArrayVec<u8, { Listing::PAGE_BYTES }>;

fn listing(now: Now, node: NodeId, segment: &Segment, is_up: impl Fn(NodeId) -> bool) -> Listing {
    let many = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    let holder = segment.guard.first_holder().map(|holder| {
        let (node, client) = match holder.owner {
            LockOwner::Client(client) => (node, Some(many(client.index as usize))),
            LockOwner::Peer(node) => (node, None),
        };
        let left = holder.until_us.saturating_sub(now.steady_us);
        LockHolder { node, client, lease_left_us: u32::try_from(left).unwrap_or(u32::MAX) }
    });
    let mirror = segment.mirror.as_deref();
    Listing {
        name: segment.name,
        facts: segment.facts(segment.id),
        version: segment.version,
        timestamp: segment.timestamp,
        holders: many(segment.guard.holders()),
        locked: segment.guard.held_alone(),
        waiting: many(segment.guard.waiting()),
        readers: many(segment.seen_by.len()),
        home: node,
        mirror: mirror.map_or(NodeId::NOBODY, |mirror| mirror.node),
        mirroring: mirror.map_or(ReplicationInfo::None, |mirror| mirror.mirroring()),
        degraded: mirror.and_then(|mirror| mirror.degraded(is_up(mirror.node))),
        holder,
    }
}

/// Who may neither read nor write a segment nor release it does not hear of it.
fn may_hear(permissions: &Permissions, who: Principal) -> Result<(), Failure> {
    let may = |wish| permissions.allow(who, wish);
    may(Access::Read).or_else(|_| may(Access::Write)).or_else(|_| may(Access::Release))
}

/// How a move ended.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it is looked at where it is made, and goes nowhere")]
pub(crate) enum MoveOutcome {
    /// What is written down of it now, where it was, who holds its lock alone, and the peers that have to forget that place.
    There { asker: Requester, record: Record, from: u64, holder: LockToken, readers: Vec<NodeId> },
    /// What was begun there has to be cleared.
    Not { asker: Requester, to: u64, bytes: u64, failure: Failure },
}

impl Engine {
    fn listing(&self, now: Now, segment: &Segment) -> Listing {
        listing(now, self.node, segment, |node| self.mirrors.can_serve(&self.peers, node))
    }

    /// The next page of this node's segments, and whether there are more.
    fn page(&self, now: Now, who: Principal, query: &ListQuery) -> (Bytes, bool) {
        let mut page = Bytes::new();
        let (prefix, after) = (query.prefix.as_str(), query.after.as_str());
        // The prefix itself may be a name, so the first look is at what comes right before it.
        let exact = self.segments.exact(prefix).filter(|_| after < prefix);
        let from = if after < prefix { prefix } else { after };
        let behind = self.segments.after(from).take_while(|(_, segment)| segment.name.as_str().starts_with(prefix));
        for (_, segment) in exact.into_iter().chain(behind) {
            if may_hear(&segment.permissions, who).is_ok() && !self.listing(now, segment).add_to(&mut page) {
                return (page, true);
            }
        }
        (page, false)
    }

    /// A list for a client: of the first node that can be reached from that one on.
    pub(crate) fn list_from(
        &mut self,
        now: Now,
        caller: &LocalCaller,
        from: NodeId,
        text: ArenaRange,
        query: &ListQuery,
    ) -> Result<(), Failure> {
        let up = self.peers.iter().filter(|&(_, up)| up).map(|(node, _)| node);
        let next = up.chain([self.node]).filter(|&node| node >= from).min();
        match next {
            None => self.tell_page(caller.lane, caller.request, ListPage::default()),
            Some(node) if node == self.node => {
                let (bytes, more) = self.page(now, caller.who, query);
                self.give_page(caller.lane, caller.request, text, &bytes, (node, more));
            }
            Some(node) => {
                let step = self.begin(caller, WaitState::Page { node, into: text, list: true })?.to_bits();
                let kept = self.kept.insert(&query.encode());
                let message = Message::List { step, who: caller.who };
                self.act(Action::Send { node, message, tail: MessageBody::Kept(kept) });
                self.give_up(kept);
            }
        }
        Ok(())
    }

    /// A peer asks for a page.
    pub(crate) fn list_here(&mut self, now: Now, node: NodeId, step: u64, who: Principal, query: &ListQuery) {
        let (page, more) = self.page(now, who, query);
        self.send_page(node, step, &page, more);
    }

    /// All facts of one segment, for a client.
    pub(crate) fn stat(
        &mut self,
        now: Now,
        caller: &LocalCaller,
        segment: SegmentId,
        into: ArenaRange,
    ) -> Result<(), Failure> {
        if self.is_home(segment) {
            let page = self.page_of_one(now, segment, caller.who)?;
            self.give_page(caller.lane, caller.request, into, &page, (self.node, false));
            return Ok(());
        }
        let node = self.reachable_home(segment)?;
        let step = self.begin(caller, WaitState::Page { node, into, list: false })?.to_bits();
        self.send(node, Message::Stat { step, who: caller.who, segment });
        Ok(())
    }

    /// The same for a peer.
    pub(crate) fn stat_here(
        &mut self,
        now: Now,
        node: NodeId,
        step: u64,
        who: Principal,
        id: SegmentId,
    ) -> Result<(), Failure> {
        let page = self.page_of_one(now, id, who)?;
        self.send_page(node, step, &page, false);
        Ok(())
    }

    fn page_of_one(&mut self, now: Now, id: SegmentId, who: Principal) -> Result<Bytes, Failure> {
        self.set_gate(now, id);
        let segment = self.segments.get(id)?;
        if segment.is_copy() {
            return Err(Failure::NodeDown);
        }
        may_hear(&segment.permissions, who).map_err(|failure| self.doubted(id, failure))?;
        let mut page = Bytes::new();
        assert!(self.listing(now, segment).add_to(&mut page), "a page holds at least one");
        Ok(page)
    }

    fn send_page(&mut self, node: NodeId, step: u64, page: &[u8], more: bool) {
        let kept = self.kept.insert(page);
        self.act(Action::Send { node, message: Message::Listed { step, more }, tail: MessageBody::Kept(kept) });
        self.give_up(kept);
    }

    /// A peer sent a page.
    pub(crate) fn listed(&mut self, node: NodeId, step: StepId, more: bool, page: &[u8]) {
        let Some(pending) = self.operations.get_mut(step).filter(|pending| pending.is_on(node)).copied() else {
            self.counters.stale += 1;
            return;
        };
        let WaitState::Page { into, .. } = pending.wait else { return self.act(Action::Cut { node }) };
        self.over(step);
        self.give_page(pending.lane, pending.request, into, page, (node, more));
    }

    fn give_page(&mut self, lane: ChannelId, request: RequestId, into: ArenaRange, page: &[u8], of: (NodeId, bool)) {
        let bytes = page.len() as u16;
        let kept: BufferId = self.kept.insert(page);
        let into = ArenaRange { bytes: bytes.into(), ..into };
        self.act(Action::WriteOut { kept, client: lane.client, into });
        self.give_up(kept);
        self.tell_page(lane, request, ListPage { node: of.0, bytes, more: of.1 });
    }

    /// Tells a client about a page; a node that went away in between had nothing more.
    pub(crate) fn tell_page(&mut self, lane: ChannelId, request: RequestId, page: ListPage) {
        let done = Completion::bare(request, Outcome::Done);
        self.reply(lane, Completion { data: page.encode(), ..done }, None);
    }

    /// New permissions of a segment at home here, if who asks may give them. Where other people may read it than
    /// before, it moves to their memory: whoever has the old one mapped sees it no more.
    pub(crate) fn permit_here(
        &mut self,
        now: Now,
        who: Principal,
        id: SegmentId,
        permit: PermissionUpdate,
        asker: Requester,
    ) -> Result<(), Failure> {
        let segment = self.segments.get(id)?;
        if segment.guard.moving {
            return Err(Failure::Busy);
        }
        let (spec, given_to) = (segment.spec, segment.permissions.changed(who, permit)?.owner);
        if given_to.uid != segment.permissions.owner.uid && self.refuse_over_quota(asker, given_to, &spec) {
            return Ok(());
        }
        let segment = self.segments.get(id)?;
        if segment.mirror.is_some() && self.permit_later(now, who, id, permit, asker)? {
            return Ok(());
        }
        let segment = self.segments.get(id)?;
        let old = segment.permissions;
        let new = old.changed(who, permit)?;
        if new.audience() == old.audience() {
            self.segments.set_permissions(id, new)?;
            let record = self.segments.record(id)?;
            self.act(Action::Rewrite { record });
            self.permitted(id, asker);
            return Ok(());
        }
        let (record, from, bytes) = self.segments.begin_move(id, new, asker)?;
        self.act(Action::Move { record, from, bytes });
        Ok(())
    }

    /// A segment is in its new place, or could not be brought there.
    pub fn moved(&mut self, now: Now, at: SegmentId, made: bool) {
        let Some(id) = self.segments.at_slot(at) else { return };
        let deadline_us = now.steady_us + Self::FORGET_US;
        match self.segments.end_move(id, made, deadline_us) {
            None => return,
            Some(MoveOutcome::Not { asker, to, bytes, failure }) => {
                self.act(Action::Clear { at: to, bytes });
                self.answer(asker, Outcome::Failed(failure), ReplyFields::default());
            }
            Some(MoveOutcome::There { asker, record, from, holder, readers }) => {
                // A lock may have been given back meanwhile. Until the record says so the segment is where it was.
                self.act(Action::Mark { at: record.at, holder });
                self.act(Action::Rewrite { record });
                for line in record.spec.header_lines() {
                    self.act(Action::Erase { at: from + line });
                }
                for node in readers {
                    self.send(node, Message::Forget { segment: id });
                }
                self.reclaim();
                self.permitted(id, asker);
            }
        }
        self.serve_line(now, id);
    }

    /// Every node that has noted the old permissions is told, and the one who gave new ones.
    fn permitted(&mut self, id: SegmentId, asker: Requester) {
        let Ok(segment) = self.segments.get(id) else { return };
        let told = ReplyFields { version: segment.version, timestamp: segment.timestamp, word: 0 };
        let (facts, readers) = (segment.facts(id), segment.seen_by.clone());
        for node in readers {
            self.send(node, Message::Changed { facts });
        }
        self.answer(asker, Outcome::Done, told);
    }

    /// The same, asked by a client.
    pub(crate) fn permit(
        &mut self,
        now: Now,
        caller: &LocalCaller,
        segment: SegmentId,
        permit: PermissionUpdate,
    ) -> Result<(), Failure> {
        if self.is_home(segment) {
            return self.permit_here(now, caller.who, segment, permit, Requester::Client(caller.lane, caller.request));
        }
        let node = self.reachable_home(segment)?;
        let step = self.begin(caller, WaitState::Answer { segment, harmless: false })?.to_bits();
        self.send(node, Message::Permit { step, who: caller.who, segment, permit });
        Ok(())
    }

    /// A home changed the permissions of one of its segments.
    pub(crate) fn facts_changed(&mut self, node: NodeId, facts: SegmentInfo) {
        if self.home_of(facts.segment) != node {
            if facts.copies > 1 {
                // Of one that was its home.
                return;
            }
            return self.act(Action::Cut { node });
        }
        if let Some(remote) = self.peers.reachable(node).and_then(|peer| peer.remotes.get_mut(&facts.segment)) {
            remote.facts.permissions = facts.permissions;
        }
    }
}
