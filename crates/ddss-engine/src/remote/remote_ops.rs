//! Requests for segments whose home is another node, apart from gets (`remote_get.rs`).
//!
//! A put writes its bytes into the staging memory that the home keeps for this node, and sends a message that commits
//! them: one round trip, and the home's progress thread makes it atomic. Small puts travel inside that message.

use crate::action::{Action, MessageBody, PeerAction, RangeSet};
use crate::config::Now;
use crate::ids::StepId;
use crate::remote::handler::{Remote, text_range};
use crate::requester::{LocalCaller, NewSegment, ReplyFields, Requester};
use crate::state::pending::{Continuation, Pending, PendingReads, WaitState};
use crate::state::remote_locks::RemoteLock;
use ddss_core::limits::{ARENA_SLOT_BYTES, HISTORY_MAX, SEGMENT_BYTES_MAX};
use ddss_core::{
    Access, ArenaRange, Failure, Limit, ListPage, LockToken, Message, NodeId, Operation, Outcome, Payload,
    PutConditions, RemoteWindow, SegmentId, SegmentInfo,
};

impl Pending {
    /// Returns true if only a message from `node` can end the operation.
    pub(crate) fn is_on(&self, node: NodeId) -> bool {
        match &self.wait {
            // The lookup itself knows whether this peer's answer is outstanding.
            WaitState::Lookup => true,
            WaitState::Allocate { home } | WaitState::Release { home } | WaitState::Page { node: home, .. } => {
                *home == node
            }
            WaitState::Fetch(_) => false,
            _ => self.on == node,
        }
    }
}

impl Remote<'_> {
    /// Puts bytes into a remote segment. On error the caller still owns the range table.
    pub(crate) fn put_remote(
        &mut self,
        caller: &LocalCaller,
        segment: SegmentId,
        parts: RangeSet,
        from: Payload,
        conditions: PutConditions,
    ) -> Result<(), Failure> {
        let home = self.reachable_home(segment)?;
        if let Some(info) = self.known_segment(segment) {
            // The home of a replicated segment may have changed, and its permissions with it.
            if info.copies == 1 {
                info.permissions.allow(caller.principal, Access::Write)?;
            }
            self.output.check_parts(&parts, info.bytes)?;
            let depends_on_lock =
                conditions.token.is_none() && info.model.put_waits_for_lock(conditions.requested_model);
            self.check_own_lock(caller, segment, depends_on_lock, self.output.first_offset(&parts))?;
        }
        let (client, length) = (caller.channel.client, from.length());
        let (ranges, table) = match parts {
            RangeSet::One { .. } => (0, None),
            RangeSet::Many { table, .. } => (self.output.ranges_of(&parts).len() as u8, Some(table)),
        };
        let put = |step: StepId, at: Option<u64>| {
            let operation = match (parts, from) {
                (RangeSet::Many { bytes, .. }, _) => {
                    let list = ArenaRange::staged(at, ARENA_SLOT_BYTES as u32 + bytes);
                    Operation::PutMany { segment, list, ranges, conditions }
                }
                (RangeSet::One { offset, .. }, Payload::Inline { .. }) => {
                    Operation::Put { segment, offset, from, conditions }
                }
                (RangeSet::One { offset, .. }, Payload::Arena(_)) => {
                    let from = Payload::Arena(ArenaRange::staged(at, length));
                    Operation::Put { segment, offset, from, conditions }
                }
            };
            caller.call(step, operation)
        };
        match from {
            Payload::Arena(range) if length as usize > Message::PUT_BYTES_MAX || table.is_some() => {
                let peer = self.peers.reachable(home).ok_or(Failure::NodeDown)?;
                let ticket = peer.staging.take(length).ok_or(Failure::Busy(Limit::Staging))?;
                let begun = self.begin(caller, WaitState::Put { segment, ticket: Some(ticket) });
                let step = begun.inspect_err(|_| self.free_staging(home, Some(ticket)))?;
                let message = put(step, Some(ticket.at));
                self.output.push(Action::Peer(PeerAction::Stage {
                    node: home,
                    step,
                    at: ticket.at,
                    client,
                    from: range,
                    message,
                    table,
                }));
                if let Some(table) = table {
                    self.output.free_buffer(table);
                }
            }
            _ => {
                let step = self.begin(caller, WaitState::Put { segment, ticket: None })?;
                let tail = match from {
                    Payload::Inline { .. } => MessageBody::None,
                    Payload::Arena(_) => MessageBody::Client(client, from),
                };
                self.output.push(Action::Peer(PeerAction::Send { node: home, message: put(step, None), tail }));
            }
        }
        Ok(())
    }

    /// Refuses a call that would wait for a lock of its own client, on the segment or on the row at `offset`: the home
    /// knows only clients of its own node.
    pub(crate) fn check_own_lock(
        &mut self,
        caller: &LocalCaller,
        segment: SegmentId,
        depends_on_lock: bool,
        offset: u64,
    ) -> Result<(), Failure> {
        if !depends_on_lock || self.remote_locks.is_empty() {
            return Ok(());
        }
        let layout = self.known_segment(segment).and_then(|info| info.layout());
        let row_offset = layout.and_then(|layout| Some(layout.bounds(layout.row_of(offset, 0)?).0));
        let is_held = self.remote_locks.is_held_by(caller.channel.client, segment, row_offset);
        if is_held { Err(Failure::OwnLock) } else { Ok(()) }
    }

    pub(crate) fn free_staging(&mut self, home: NodeId, ticket: Option<crate::state::memory::staging::Ticket>) {
        if let (Some(ticket), Some(peer)) = (ticket, self.peers.reachable(home)) {
            peer.staging.give(ticket);
        }
    }

    /// Handles the end of a write into staging memory. If it failed, the put behind it may still have happened: a
    /// connection can end after both had arrived.
    pub(crate) fn staged(&mut self, step: StepId, result: Result<(), Failure>) {
        let Err(failure) = result else { return };
        let Some(pending) = self.end_pending(step) else {
            self.output.counters.stale += 1;
            return;
        };
        let mut outcome = Outcome::Indeterminate(failure);
        match pending.wait {
            WaitState::Put { ticket, .. } => self.free_staging(pending.on, ticket),
            WaitState::Part { ticket, .. } => {
                self.free_staging(pending.on, ticket);
                outcome = Outcome::Failed(failure);
            }
            _ => {}
        }
        self.output.finish(&pending, outcome);
    }

    /// Ends an operation whose message was refused before it went out: it did nothing.
    pub(crate) fn refused(&mut self, step: StepId, failure: Failure) {
        let Some(pending) = self.operations.get_mut(step).copied() else { return };
        match pending.wait {
            WaitState::Put { ticket, .. } | WaitState::Part { ticket, .. } => self.free_staging(pending.on, ticket),
            WaitState::Fetch(PendingReads { transfer, refresh, .. }) => {
                self.read_ended(transfer.segment);
                if refresh {
                    self.drop_cache_fill(transfer.segment);
                }
            }
            _ => {}
        }
        self.end_pending(step);
        self.output.finish(&pending, Outcome::Failed(failure));
    }

    /// Handles a home's description of one of its segments.
    pub(crate) fn handle_found(
        &mut self,
        now: Now,
        node: NodeId,
        step: StepId,
        info: SegmentInfo,
        window: RemoteWindow,
    ) {
        let is_home = self.home_of(info.segment) == node;
        if info.copies > 1 && !is_home {
            // The segment was taken over, and one of the two nodes has yet to learn it.
            let failed = Outcome::Failed(Failure::InProgress);
            let created = self.handle_ended(now, node, step, failed, ReplyFields::default());
            assert!(created.is_none(), "a segment is created only if no peer has its name");
            return;
        }
        let wraps = window.base.checked_add(window.bytes).is_none();
        let known = info.bytes <= SEGMENT_BYTES_MAX && info.history_len <= HISTORY_MAX;
        // The size can be computed only from valid fields.
        let takes = if known { info.pool_bytes() } else { u64::MAX };
        let reaches = info.copies > 1 || !wraps && window.bytes >= takes;
        if !known || !is_home && info.segment.home() != node || !reaches {
            self.output.push(Action::Peer(PeerAction::Disconnect { node }));
            return;
        }
        let noted = self.record_segment(node, info, window);
        let Some(pending) = self.operations.get_mut(step).copied().filter(|pending| pending.is_on(node)) else {
            self.output.counters.stale += 1;
            return;
        };
        match pending.wait {
            WaitState::Allocate { .. } => {
                self.operations.remove(step);
                self.output.finish_opened(pending.channel, pending.request, &self.segments.opened(&info));
            }
            WaitState::Lookup => {
                let Some(lookup) = self.take_lookup(step, node) else { return };
                self.operations.remove(step);
                match lookup.then {
                    Continuation::Open => {
                        self.output.finish_opened(pending.channel, pending.request, &self.segments.opened(&info))
                    }
                    Continuation::Allocate(_) => self.output.finish(&pending, Outcome::Failed(Failure::AlreadyExists)),
                }
            }
            WaitState::Info { transfer } => {
                let failure = if !noted {
                    Some(Failure::Busy(Limit::RemoteSegments))
                } else if now.steady_us >= pending.deadline_us {
                    Some(Failure::TimedOut)
                } else {
                    // The range table stays in use.
                    self.operations.remove(step);
                    self.get_remote(now, &pending.caller(), transfer)
                        .err()
                        .inspect(|_| self.output.free_table(&transfer.parts))
                };
                if let Some(failure) = failure {
                    self.end_pending(step);
                    self.output.finish(&pending, Outcome::Failed(failure));
                }
            }
            _ => self.output.counters.stale += 1,
        }
    }

    /// Requests a page of the list of another node.
    pub(crate) fn request_page(
        &mut self,
        caller: &LocalCaller,
        node: NodeId,
        into: ArenaRange,
        query: &[u8],
    ) -> Result<(), Failure> {
        let step = self.begin(caller, WaitState::Page { node, into, list: true })?;
        let operation = Operation::List { node, text: text_range(query) };
        self.output.send_with(node, caller.call(step, operation), query);
        Ok(())
    }

    /// Handles a page that a peer sent.
    pub(crate) fn handle_page(&mut self, node: NodeId, step: StepId, more: bool, page: &[u8]) {
        let Some(pending) = self.operations.get_mut(step).filter(|pending| pending.is_on(node)).copied() else {
            self.output.counters.stale += 1;
            return;
        };
        let WaitState::Page { into, .. } = pending.wait else {
            return self.output.push(Action::Peer(PeerAction::Disconnect { node }));
        };
        self.end_pending(step);
        self.output.reply_page(pending.channel, pending.request, into, page, (node, more));
    }

    /// Handles the end of an operation at its home. Returns the segment to create here.
    pub(crate) fn handle_ended(
        &mut self,
        now: Now,
        node: NodeId,
        step: StepId,
        outcome: Outcome,
        fields: ReplyFields,
    ) -> Option<NewSegment> {
        self.clock.hear(fields.timestamp, now.wall_us);
        let Some(pending) = self.operations.get_mut(step).filter(|pending| pending.is_on(node)) else {
            self.output.counters.stale += 1;
            return None;
        };
        let wait = pending.wait;
        let is_no_end = match wait {
            // These end well only with a description, bytes or a page.
            WaitState::Lookup
            | WaitState::Allocate { .. }
            | WaitState::Info { .. }
            | WaitState::Home(_)
            | WaitState::Page { .. } => true,
            WaitState::Version { above, .. } => fields.version <= above,
            _ => false,
        };
        if is_no_end && outcome == Outcome::Done {
            // A peer that says so breaks the protocol.
            self.output.push(Action::Peer(PeerAction::Disconnect { node }));
            return None;
        }
        if let (WaitState::Lookup, Outcome::Failed(Failure::NotFound)) = (wait, outcome) {
            return self.record_missing(step, node);
        }
        if wait == WaitState::Lookup && self.take_lookup(step, node).is_none() {
            self.output.counters.stale += 1;
            return None;
        }
        if let (WaitState::Home(_), Outcome::Failed(failure) | Outcome::Indeterminate(failure)) = (wait, outcome) {
            self.served_get_refused(now, step, failure);
            return None;
        }
        let pending = self.end_pending(step)?;
        match pending.wait {
            WaitState::Put { ticket, .. } | WaitState::Part { ticket, .. } => self.free_staging(pending.on, ticket),
            WaitState::Lock { segment, lease_us, row_offset } if outcome == Outcome::Done => {
                let token = LockToken(fields.word);
                if !self.output.is_attached(pending.channel.client) {
                    self.release_remote_lock(pending.on, segment, token);
                    return None;
                }
                let until_us = now.steady_us.saturating_add(lease_us.into());
                self.remote_locks.add(RemoteLock {
                    segment,
                    row_offset,
                    home: node,
                    token,
                    client: pending.channel.client,
                    until_us,
                });
            }
            WaitState::Renew { segment, token, lease_us } => {
                self.renewal_answered(now, segment, token, (lease_us, outcome));
            }
            WaitState::LateLock { segment } => {
                if outcome == Outcome::Done {
                    self.release_remote_lock(node, segment, LockToken(fields.word));
                }
                return None;
            }
            _ => {}
        }
        self.output.answer(Requester::Client(pending.channel, pending.request), outcome, fields);
        None
    }

    /// Ends an operation whose node is gone. Returns the segment to create here.
    pub(crate) fn handle_peer_loss(&mut self, step: StepId, node: NodeId) -> Option<NewSegment> {
        if let Some(lookup) = self.lookups.get_mut(&step) {
            if lookup.asked.contains(node) {
                lookup.unreachable_peers += 1;
                return self.record_missing(step, node);
            }
            return None;
        }
        let pending = self.end_pending(step)?;
        let outcome = match pending.wait {
            WaitState::LateLock { .. } => return None,
            // A list continues with the next node.
            WaitState::Page { node, list: true, .. } => {
                self.output.complete_page(
                    pending.channel,
                    pending.request,
                    ListPage { node, away: true, ..ListPage::default() },
                );
                return None;
            }
            WaitState::Info { .. }
            | WaitState::Lookup
            | WaitState::Fetch(_)
            | WaitState::Home(_)
            | WaitState::Page { .. }
            | WaitState::Lock { .. }
            | WaitState::Part { .. }
            | WaitState::Version { .. } => Outcome::Failed(Failure::NodeDown),
            WaitState::Allocate { .. }
            | WaitState::Release { .. }
            | WaitState::Put { .. }
            | WaitState::Unlock { .. }
            | WaitState::Renew { .. }
            | WaitState::Answer { .. } => Outcome::Indeterminate(Failure::NodeDown),
        };
        self.output.finish(&pending, outcome);
        None
    }
}

impl Pending {
    pub(crate) fn caller(&self) -> LocalCaller {
        let Pending { channel, request, principal, deadline_us, timeout_us, .. } = *self;
        LocalCaller { channel, request, principal, deadline_us, timeout_us }
    }
}
