//! Requests for segments whose home is another node, apart from gets (`remote_get.rs`).
//!
//! A put is the bytes written into the staging memory that the home keeps for us, and behind them the message that
//! says "commit": one round trip, and the home's own thread makes it whole. Small puts travel inside that message.

use super::remote_locks::RemoteLock;
use crate::engine::action::{Action, MessageBody, RangeSet};
use crate::engine::engine::{Engine, LocalCaller, Now};
use crate::engine::home::home_ops::ReplyFields;
use crate::engine::state::lock_queue::Requester;
use crate::engine::state::peers::{Peer, RemoteSegment};
use crate::engine::state::pending::{AskedPeers, Continuation, NameLookup, Pending, PendingReads, StepId, WaitState};
use crate::engine::state::segments::check_range;
use crate::limits::{HISTORY_MAX, OPERATIONS_MAX, SEGMENT_BYTES_MAX};
use crate::model::segment::{Access, Header, Name};
use crate::model::spec::Placement;
use crate::peer::message::{RemoteWindow, SegmentInfo};
use crate::request::listing::ListPage;
use crate::request::operation::{LockToken, Operation, Payload, PutConditions};
use crate::{Failure, Message, NodeId, Outcome, SegmentId};

impl Pending {
    /// Whether only a message from `node` can end it.
    pub(crate) fn is_on(&self, node: NodeId) -> bool {
        match &self.wait {
            // Whether it is this one's turn to answer, its lookup says.
            WaitState::Lookup => true,
            WaitState::Allocate { home } | WaitState::Release { home } | WaitState::Page { node: home, .. } => {
                *home == node
            }
            WaitState::Fetch(_) => false,
            _ => self.on == node,
        }
    }
}

impl Engine {
    /// Finds a name: here, else with every peer that can be reached.
    pub(crate) fn look_up(
        &mut self,
        caller: LocalCaller,
        name: Name,
        then: Continuation,
        now: Now,
    ) -> Result<(), Failure> {
        self.segments.admits(&name)?;
        if let Some(id) = self.segments.by_name(&name) {
            let segment = self.segments.get(id)?;
            if matches!(then, Continuation::Allocate(_)) {
                return Err(Failure::AlreadyExists);
            }
            segment.permissions.allow(caller.who, Access::Read)?;
            let facts = segment.facts(id);
            self.finish_opened(caller.lane, caller.request, &facts);
            return Ok(());
        }
        if matches!(then, Continuation::Allocate(_)) && self.has_name(&name) {
            return Err(Failure::AlreadyExists);
        }
        if self.directory.is_some() {
            return self.look_up_shared(now, caller, name, then);
        }
        let peers: Vec<_> = self.peers.iter().collect();
        let (mut asked, mut silent) = (AskedPeers::default(), 0);
        for &(node, up) in &peers {
            if up { asked.add(node) } else { silent += 1 }
        }
        let step = self.begin(&caller, WaitState::Lookup)?;
        self.lookups.insert(step, NameLookup { name, then, asked, silent, confirmed: false });
        for (node, _) in peers.into_iter().filter(|&(node, _)| asked.contains(node)) {
            self.send(node, Message::Lookup { step: step.to_bits(), who: caller.who, name });
        }
        if asked.is_empty() {
            self.nobody_has(now, step);
        }
        Ok(())
    }

    /// No peer that could be asked has the name.
    fn nobody_has(&mut self, now: Now, step: StepId) {
        if self.confirm_first(step) {
            return;
        }
        let Some(NameLookup { name, then, silent, .. }) = self.lookups.remove(&step) else { return };
        let Some(pending) = self.operations.remove(step) else { return };
        let outcome = match then {
            Continuation::Open if silent > 0 => Err(Failure::NodeDown),
            Continuation::Open => Err(Failure::NotFound),
            Continuation::Allocate(spec) if spec.placement == Placement::Node(self.node) => {
                self.allocate_here(now, Requester::Client(pending.lane, pending.request), pending.who, name, spec)
            }
            Continuation::Allocate(spec) => self.allocate_far(&pending, name, spec),
        };
        if let Err(failure) = outcome {
            self.finish(&pending, Outcome::Failed(failure));
        }
    }

    pub(crate) fn allocate_far(&mut self, pending: &Pending, name: Name, spec: crate::Spec) -> Result<(), Failure> {
        // A node that nobody here has heard of answers as little as one that is down.
        let Placement::Node(home) = spec.placement else { return Err(Failure::Malformed) };
        let home = self.reachable_home(SegmentId::new(home, 0, 0)).map_err(|_| Failure::NodeDown)?;
        let step = self.begin(&pending.caller(), WaitState::Allocate { home })?;
        self.send(home, Message::Allocate { step: step.to_bits(), who: pending.who, spec, name });
        Ok(())
    }

    pub(crate) fn release_far(&mut self, caller: LocalCaller, segment: SegmentId) -> Result<(), Failure> {
        let home = self.reachable_home(segment)?;
        let step = self.begin(&caller, WaitState::Release { home })?;
        self.send(home, Message::Release { step: step.to_bits(), who: caller.who, segment });
        Ok(())
    }

    /// Puts bytes into a remote segment. With an error the table of the ranges is still the caller's.
    pub(crate) fn put_far(
        &mut self,
        caller: LocalCaller,
        segment: SegmentId,
        parts: RangeSet,
        from: Payload,
        terms: PutConditions,
    ) -> Result<(), Failure> {
        let home = self.reachable_home(segment)?;
        if let Some(facts) = self.noted(segment) {
            // Another may have become the home of one with a mirror, and nobody told this node of new permissions.
            if facts.copies == 1 {
                facts.permissions.allow(caller.who, Access::Write)?;
            }
            for range in &self.ranges_of(&parts) {
                check_range(facts.bytes, range.offset, range.bytes)?;
            }
            let minds = terms.token.is_none() && facts.model.put_minds(terms.asks);
            self.check_own_lock(&caller, segment, minds)?;
        }
        let (client, length) = (caller.lane.client, from.length());
        let (offset, ranges, table) = match parts {
            RangeSet::One { offset, .. } => (offset, 0, None),
            RangeSet::Many { table, .. } => (0, self.ranges_of(&parts).len() as u8, Some(table)),
        };
        let (who, timeout_us) = (caller.who, caller.timeout_us);
        let put = |step: StepId, staged| {
            let step = step.to_bits();
            Message::Put { step, who, segment, offset, length, staged, ranges, terms, timeout_us }
        };
        match from {
            Payload::Arena(range) if length as usize > Message::PUT_BYTES_MAX || table.is_some() => {
                let peer = self.peers.reachable(home).ok_or(Failure::NodeDown)?;
                let ticket = peer.staging.take(length).ok_or(Failure::Busy)?;
                let begun = self.begin(&caller, WaitState::Put { segment, ticket: Some(ticket) });
                let step = begun.inspect_err(|_| self.give_staging(home, Some(ticket)))?;
                let message = put(step, ticket.at);
                self.act(Action::Stage { node: home, step, at: ticket.at, client, from: range, message, table });
                if let Some(table) = table {
                    self.give_up(table);
                }
            }
            _ => {
                let step = self.begin(&caller, WaitState::Put { segment, ticket: None })?;
                let message = put(step, Message::NOT_STAGED);
                self.act(Action::Send { node: home, message, tail: MessageBody::Client(client, from) });
            }
        }
        Ok(())
    }

    /// A call that would wait for a lock of its own client is refused here: the home knows clients of its own node
    /// only.
    fn check_own_lock(&self, caller: &LocalCaller, segment: SegmentId, minds: bool) -> Result<(), Failure> {
        if minds && self.holds_far(caller.lane.client, segment) { Err(Failure::OwnLock) } else { Ok(()) }
    }

    fn give_staging(&mut self, home: NodeId, ticket: Option<crate::engine::state::staging::Ticket>) {
        if let (Some(ticket), Some(peer)) = (ticket, self.peers.reachable(home)) {
            peer.staging.give(ticket);
        }
    }

    /// The write into staging memory ended. If it failed, the put behind it may have happened all the same: a
    /// connection can end after both had arrived.
    pub fn staged(&mut self, step: StepId, result: Result<(), Failure>) {
        let Err(failure) = result else { return };
        let Some(pending) = self.over(step) else {
            self.counters.stale += 1;
            return;
        };
        if let WaitState::Put { ticket, .. } = pending.wait {
            self.give_staging(pending.on, ticket);
        }
        self.finish(&pending, Outcome::Indeterminate(failure));
    }

    /// Something that was to be sent for this step was refused before it went out: the operation did nothing.
    pub fn refused(&mut self, step: StepId, failure: Failure) {
        let Some(pending) = self.operations.get_mut(step).copied() else { return };
        match pending.wait {
            WaitState::Put { ticket, .. } => self.give_staging(pending.on, ticket),
            WaitState::Fetch(PendingReads { transfer, refresh, .. }) => {
                self.read_ended(transfer.segment);
                if refresh {
                    self.drop_coming(transfer.segment);
                }
            }
            _ => {}
        }
        self.over(step);
        self.finish(&pending, Outcome::Failed(failure));
    }

    /// A home told us about one of its segments.
    pub(crate) fn found(&mut self, now: Now, node: NodeId, step: StepId, facts: SegmentInfo, window: RemoteWindow) {
        let is_home = self.home_of(facts.segment) == node;
        if facts.copies > 1 && !is_home {
            // It was taken over, and one of the two nodes has yet to hear of it.
            return self.ended(now, node, step, Outcome::Failed(Failure::Busy), ReplyFields::default());
        }
        let wraps = window.base.checked_add(window.bytes).is_none();
        let known = facts.bytes <= SEGMENT_BYTES_MAX && facts.keeps <= HISTORY_MAX;
        // Only of what can be is it known how much it takes.
        let takes = if known { Header::bytes_with(facts.bytes, facts.keeps) } else { u64::MAX };
        let reaches = facts.copies > 1 || !wraps && window.bytes >= takes;
        if !known || !is_home && facts.segment.home() != node || !reaches {
            self.act(Action::Cut { node });
            return;
        }
        let noted = self.note(node, facts, window);
        let Some(pending) = self.operations.get_mut(step).copied().filter(|pending| pending.is_on(node)) else {
            self.counters.stale += 1;
            return;
        };
        match pending.wait {
            WaitState::Allocate { .. } => {
                self.operations.remove(step);
                self.finish_opened(pending.lane, pending.request, &facts);
            }
            WaitState::Lookup => {
                let Some(lookup) = self.take_lookup(step, node) else { return };
                self.operations.remove(step);
                match lookup.then {
                    Continuation::Open => self.finish_opened(pending.lane, pending.request, &facts),
                    Continuation::Allocate(_) => self.finish(&pending, Outcome::Failed(Failure::AlreadyExists)),
                }
            }
            WaitState::Facts { transfer } => {
                let failure = if !noted {
                    Some(Failure::Busy)
                } else if now.steady_us >= pending.deadline_us {
                    Some(Failure::TimedOut)
                } else {
                    // The table of its ranges goes on with it.
                    self.operations.remove(step);
                    self.get_far(now, pending.caller(), transfer).err().inspect(|_| self.give_up_table(&transfer.parts))
                };
                if let Some(failure) = failure {
                    self.over(step);
                    self.finish(&pending, Outcome::Failed(failure));
                }
            }
            _ => self.counters.stale += 1,
        }
    }

    /// Ends a lookup, if this node's answer to it is still to come.
    fn take_lookup(&mut self, step: StepId, node: NodeId) -> Option<NameLookup> {
        self.lookups.get(&step).filter(|lookup| lookup.asked.contains(node))?;
        self.lookups.remove(&step)
    }

    /// Notes what a home said; `false` if there is no room for more.
    fn note(&mut self, node: NodeId, facts: SegmentInfo, window: RemoteWindow) -> bool {
        let Some(peer) = self.peers.reachable(node) else { return false };
        if peer.remotes.len() == Peer::REMOTES_MAX && !peer.remotes.contains_key(&facts.segment) {
            return false;
        }
        let fresh = RemoteSegment { facts, window, reads: 0, leaving: false };
        let remote = peer.remotes.entry(facts.segment).or_insert(fresh);
        (remote.facts, remote.window) = (facts, window);
        true
    }

    /// The home released a segment.
    pub(crate) fn forget(&mut self, now: Now, node: NodeId, segment: SegmentId) {
        self.spoil_copy(segment);
        self.drop_copy_of(now, node, segment);
        let Some(peer) = self.peers.reachable(node) else { return };
        match peer.remotes.get_mut(&segment) {
            Some(remote) if remote.reads > 0 => remote.leaving = true,
            _ => {
                peer.remotes.remove(&segment);
                self.send(node, Message::Forgotten { segment });
            }
        }
    }

    /// A home said how something ended.
    pub(crate) fn ended(&mut self, now: Now, node: NodeId, step: StepId, outcome: Outcome, told: ReplyFields) {
        self.clock.hear(told.timestamp, now.wall_us);
        let Some(pending) = self.operations.get_mut(step).filter(|pending| pending.is_on(node)) else {
            self.counters.stale += 1;
            return;
        };
        let wait = pending.wait;
        let wants_more = matches!(
            wait,
            WaitState::Lookup
                | WaitState::Allocate { .. }
                | WaitState::Facts { .. }
                | WaitState::Home(_)
                | WaitState::Page { .. }
        );
        if wants_more && outcome == Outcome::Done {
            // Only a description, bytes or a page are a good end of these: a peer that says otherwise is not one of us.
            return self.act(Action::Cut { node });
        }
        if let (WaitState::Lookup, Outcome::Failed(Failure::NotFound)) = (wait, outcome) {
            return self.not_there(now, step, node);
        }
        if wait == WaitState::Lookup && self.take_lookup(step, node).is_none() {
            self.counters.stale += 1;
            return;
        }
        if let (WaitState::Home(_), Outcome::Failed(failure) | Outcome::Indeterminate(failure)) = (wait, outcome) {
            return self.get_refused(now, step, failure);
        }
        let Some(pending) = self.over(step) else { return };
        match pending.wait {
            WaitState::Put { ticket, .. } => self.give_staging(pending.on, ticket),
            WaitState::Lock { segment, lease_us } if outcome == Outcome::Done => {
                let token = LockToken(told.word);
                if !self.is_attached(pending.lane.client) {
                    return self.give_back(pending.on, segment, token);
                }
                let until_us = now.steady_us.saturating_add(lease_us.into());
                self.held.push(RemoteLock { segment, home: node, token, client: pending.lane.client, until_us });
            }
            WaitState::LateLock { segment } => {
                if outcome == Outcome::Done {
                    self.give_back(node, segment, LockToken(told.word));
                }
                return;
            }
            _ => {}
        }
        self.answer(Requester::Client(pending.lane, pending.request), outcome, told);
    }

    /// Asks a home to change a word, to watch a version, to lock or to unlock.
    pub(crate) fn ask_far(&mut self, caller: LocalCaller, operation: &Operation) -> Result<(), Failure> {
        let LocalCaller { who, timeout_us, .. } = caller;
        match *operation {
            Operation::Atomic { segment, offset, change, token } => {
                let home = self.reachable_home(segment)?;
                self.check_own_lock(&caller, segment, token.is_none())?;
                let step = self.begin(&caller, WaitState::Answer { segment, harmless: false })?.to_bits();
                self.send(home, Message::Atomic { step, who, segment, offset, change, token, timeout_us });
            }
            Operation::Await { segment, above } => {
                let home = self.reachable_home(segment)?;
                let step = self.begin(&caller, WaitState::Answer { segment, harmless: true })?.to_bits();
                self.send(home, Message::Await { step, who, segment, above, timeout_us });
            }
            Operation::Lock { segment, wish } => {
                let home = self.reachable_home(segment)?;
                if self.held.len() >= OPERATIONS_MAX {
                    return Err(Failure::Busy);
                }
                let step = self.begin(&caller, WaitState::Lock { segment, lease_us: wish.lease_us })?.to_bits();
                self.send(home, Message::Lock { step, who, segment, wish, timeout_us });
            }
            Operation::Unlock { segment, token } => {
                let home = self.reachable_home(segment)?;
                let wanted = (segment, token, caller.lane.client);
                if !self.held.iter().any(|held| (held.segment, held.token, held.client) == wanted) {
                    return Err(Failure::LockLost);
                }
                let step = self.begin(&caller, WaitState::Unlock { segment, token })?.to_bits();
                self.send(home, Message::Unlock { step, segment, token });
            }
            _ => return Err(Failure::Unsupported),
        }
        Ok(())
    }

    /// One peer less that could have the name.
    fn not_there(&mut self, now: Now, step: StepId, node: NodeId) {
        let Some(lookup) = self.lookups.get_mut(&step) else { return };
        lookup.asked.remove(node);
        if lookup.asked.is_empty() {
            self.nobody_has(now, step);
        }
    }

    /// The node that an operation waits for is gone.
    pub(crate) fn answer_lost(&mut self, now: Now, step: StepId, node: NodeId) {
        if let Some(lookup) = self.lookups.get_mut(&step) {
            if lookup.asked.contains(node) {
                lookup.silent += 1;
                self.not_there(now, step, node);
            }
            return;
        }
        let Some(pending) = self.over(step) else { return };
        let outcome = match pending.wait {
            WaitState::LateLock { .. } => return,
            // A list goes on with the next node.
            WaitState::Page { node, list: true, .. } => {
                return self.tell_page(pending.lane, pending.request, ListPage { node, ..ListPage::default() });
            }
            WaitState::Facts { .. }
            | WaitState::Lookup
            | WaitState::Fetch(_)
            | WaitState::Home(_)
            | WaitState::Page { .. }
            | WaitState::Lock { .. }
            | WaitState::Answer { harmless: true, .. } => Outcome::Failed(Failure::NodeDown),
            WaitState::Allocate { .. }
            | WaitState::Release { .. }
            | WaitState::Put { .. }
            | WaitState::Unlock { .. }
            | WaitState::Answer { harmless: false, .. } => Outcome::Indeterminate(Failure::NodeDown),
        };
        self.finish(&pending, outcome);
    }
}

impl Pending {
    fn caller(&self) -> LocalCaller {
        let Pending { lane, request, who, deadline_us, timeout_us, .. } = *self;
        LocalCaller { lane, request, who, deadline_us, timeout_us }
    }
}
