//! Requests for segments whose home is another node.
//!
//! A get is one batch of one-sided reads: header, bytes, state word again ([`Action::Fetch`]); if a put came
//! between, it is done again. A put is the bytes written into the staging memory that the home keeps for us, and
//! behind them the message that says "commit": one round trip, and the home's own thread makes it whole. Small
//! puts travel inside that message.

use super::action::Action;
use super::core::{Caller, Engine, Now};
use super::guard::Asker;
use super::held::Held;
use super::near::Told;
use super::operations::{Asked, Lookup, Pending, StepId, Then, Transfer, Wait};
use super::peers::{Peer, Remote};
use super::segments::check_range;
use crate::limits::OPERATIONS_MAX;
use crate::message::{Facts, RemoteWindow};
use crate::request::{ArenaRange, LockToken, LockWish, Operation, Payload, Terms};
use crate::segment::{Header, Model, Name, Proof, Wish};
use crate::{Completion, Failure, Message, NodeId, Outcome, SegmentId};

impl Wait {
    /// Whether only a message from `node` can end it.
    pub(super) fn is_on(&self, node: NodeId) -> bool {
        match self {
            // Whether it is this one's turn to answer, its lookup says.
            Wait::Lookup => true,
            Wait::Allocate { home } | Wait::Release { home } | Wait::Put { home, .. } | Wait::Answer { home, .. } => {
                *home == node
            }
            Wait::Facts { transfer } | Wait::FetchLock(transfer) => transfer.segment.home() == node,
            Wait::Lock { segment, .. } | Wait::LateLock { segment } | Wait::Unlock { segment, .. } => {
                segment.home() == node
            }
            Wait::Fetch { .. } => false,
        }
    }
}

impl Engine {
    /// Finds a name: here, else with every peer that can be reached.
    pub(super) fn look_up(&mut self, caller: Caller, name: Name, then: Then, now: Now) -> Result<(), Failure> {
        if let Some(id) = self.segments.by_name(&name) {
            let segment = self.segments.get(id)?;
            if matches!(then, Then::Allocate(_)) {
                return Err(Failure::AlreadyExists);
            }
            segment.permissions.allow(caller.who, Wish::Read)?;
            let facts = segment.facts(id);
            self.finish_opened(caller.lane, caller.request, &facts);
            return Ok(());
        }
        if matches!(then, Then::Allocate(_)) && self.segments.is_taken(&name) {
            return Err(Failure::AlreadyExists);
        }
        if self.directory.is_some() {
            return self.look_up_shared(now, caller, name, then);
        }
        let peers: Vec<_> = self.peers.iter().collect();
        let (mut asked, mut silent) = (Asked::default(), 0);
        for &(node, up) in &peers {
            if up { asked.add(node) } else { silent += 1 }
        }
        let step = self.begin(&caller, Wait::Lookup)?;
        self.lookups.insert(step, Lookup { name, then, asked, silent, confirmed: false });
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
        let Some(Lookup { name, then, silent, .. }) = self.lookups.remove(&step) else { return };
        let Some(pending) = self.operations.remove(step) else { return };
        let outcome = match then {
            Then::Open if silent > 0 => Err(Failure::NodeDown),
            Then::Open => Err(Failure::NotFound),
            Then::Allocate(spec) if spec.home == NodeId::NOBODY || spec.home == self.node => {
                self.allocate_here(now, Asker::Client(pending.lane, pending.request), pending.who, name, spec)
            }
            Then::Allocate(spec) => self.allocate_far(&pending, name, spec),
        };
        if let Err(failure) = outcome {
            self.finish(&pending, Outcome::Failed(failure));
        }
    }

    pub(super) fn allocate_far(&mut self, pending: &Pending, name: Name, spec: crate::Spec) -> Result<(), Failure> {
        // A node that nobody here has heard of answers as little as one that is down.
        let home = self.reachable_home(SegmentId::new(spec.home, 0, 0)).map_err(|_| Failure::NodeDown)?;
        let step = self.begin(&pending.caller(), Wait::Allocate { home })?;
        self.send(home, Message::Allocate { step: step.to_bits(), who: pending.who, spec, name });
        Ok(())
    }

    pub(super) fn release_far(&mut self, caller: Caller, segment: SegmentId) -> Result<(), Failure> {
        let home = self.reachable_home(segment)?;
        let step = self.begin(&caller, Wait::Release { home })?;
        self.send(home, Message::Release { step: step.to_bits(), who: caller.who, segment });
        Ok(())
    }

    /// Gets bytes of a remote segment: reads them, or asks its home about it first.
    pub(super) fn get_far(
        &mut self,
        caller: Caller,
        segment: SegmentId,
        offset: u64,
        into: ArenaRange,
    ) -> Result<(), Failure> {
        self.reachable_home(segment)?;
        let transfer = Transfer { segment, offset, range: into };
        match self.noted(segment) {
            Some(facts) => {
                facts.permissions.allow(caller.who, Wish::Read)?;
                check_range(facts.bytes, offset, into.bytes)?;
                let step = self.begin(&caller, Wait::Fetch { transfer, under: None })?;
                self.fetch(step, caller.lane, transfer).inspect_err(|_| {
                    self.operations.remove(step);
                })
            }
            None => self.ask_facts(caller, transfer),
        }
    }

    /// Puts bytes into a remote segment.
    pub(super) fn put_far(
        &mut self,
        caller: Caller,
        segment: SegmentId,
        offset: u64,
        from: Payload,
        terms: Terms,
    ) -> Result<(), Failure> {
        let home = self.reachable_home(segment)?;
        let length = from.length();
        if let Some(facts) = self.noted(segment) {
            facts.permissions.allow(caller.who, Wish::Write)?;
            check_range(facts.bytes, offset, length)?;
        }
        let client = caller.lane.client;
        let put = |step: StepId, staged| Message::Put {
            step: step.to_bits(),
            who: caller.who,
            segment,
            offset,
            length,
            staged,
            terms,
            timeout_us: caller.timeout_us,
        };
        match from {
            Payload::Arena(range) if length as usize > Message::PUT_BYTES_MAX => {
                let peer = self.peers.reachable(home).ok_or(Failure::NodeDown)?;
                let ticket = peer.staging.take(length).ok_or(Failure::Busy)?;
                let begun = self.begin(&caller, Wait::Put { home, ticket: Some(ticket) });
                let step = begun.inspect_err(|_| self.give_staging(home, Some(ticket)))?;
                let message = put(step, ticket.at);
                self.act(Action::Stage { node: home, step, at: ticket.at, client, from: range, message });
            }
            _ => {
                let step = self.begin(&caller, Wait::Put { home, ticket: None })?;
                let message = put(step, Message::NOT_STAGED);
                self.act(Action::Send { node: home, message, tail: Some((client, from)) });
            }
        }
        Ok(())
    }

    fn give_staging(&mut self, home: NodeId, ticket: Option<super::staging::Ticket>) {
        if let (Some(ticket), Some(peer)) = (ticket, self.peers.reachable(home)) {
            peer.staging.give(ticket);
        }
    }

    /// What this node has noted about a remote segment.
    fn noted(&mut self, segment: SegmentId) -> Option<Facts> {
        let remote = self.peers.reachable(segment.home())?.remotes.get(&segment)?;
        (!remote.leaving).then_some(remote.facts)
    }

    fn ask_facts(&mut self, caller: Caller, transfer: Transfer) -> Result<(), Failure> {
        let step = self.begin(&caller, Wait::Facts { transfer })?;
        let message = Message::Describe { step: step.to_bits(), who: caller.who, segment: transfer.segment };
        self.send(transfer.segment.home(), message);
        Ok(())
    }

    /// Starts the reads of a get that is noted as [`Wait::Fetch`].
    fn fetch(&mut self, step: StepId, lane: crate::LaneId, transfer: Transfer) -> Result<(), Failure> {
        let Transfer { segment, offset, range } = transfer;
        let home = segment.home();
        let remote = self.peers.reachable(home).and_then(|peer| peer.remotes.get_mut(&segment));
        let remote = remote.filter(|remote| !remote.leaving).ok_or(Failure::NotFound)?;
        remote.reads += 1;
        let window = remote.window;
        self.act(Action::Fetch { node: home, step, window, offset, client: lane.client, into: range });
        Ok(())
    }

    /// The reads of a fetch ended: the header before the bytes and the state word after them, or why not.
    pub fn fetched(&mut self, now: Now, step: StepId, result: Result<(Header, u64), Failure>) {
        let Some(pending) = self.operations.get_mut(step).copied() else {
            self.counters.stale += 1;
            return;
        };
        let Wait::Fetch { transfer, under } = pending.wait else { return };
        let segment = transfer.segment;
        let minds = self.noted(segment).is_some_and(|facts| matches!(facts.model, Model::Strict | Model::Read));
        self.read_ended(segment);
        let proof = result.map(|(header, after)| (header.prove(segment, after), header.locked != 0));
        let in_time = now.steady_us < pending.deadline_us;
        match proof {
            Ok((Proof::Torn, _)) if in_time => {
                self.counters.torn_fetches += 1;
                self.fetch_again(step, &pending, transfer);
            }
            Ok((Proof::Whole(..), true))
                if in_time && minds && under.is_none() && !self.holds_far(pending.lane.client, segment) =>
            {
                self.fetch_locked(now, step, &pending, transfer);
            }
            Ok((Proof::Whole(version, timestamp), _)) => {
                self.operations.remove(step);
                let done = Completion::bare(pending.request, Outcome::Done);
                self.reply(pending.lane, Completion { version, timestamp, ..done }, None);
                self.end_under(segment, under);
            }
            Ok((Proof::Torn, _)) => self.end_fetch(step, &pending, Failure::Contended),
            Ok((Proof::Gone, _)) => self.end_fetch(step, &pending, Failure::NotFound),
            Err(failure) => self.end_fetch(step, &pending, failure),
        }
    }

    fn fetch_again(&mut self, step: StepId, pending: &Pending, transfer: Transfer) {
        if let Err(failure) = self.fetch(step, pending.lane, transfer) {
            self.end_fetch(step, pending, failure);
        }
    }

    /// Somebody holds the lock alone and may not be through: wait in line at the home, then read.
    fn fetch_locked(&mut self, now: Now, step: StepId, pending: &Pending, transfer: Transfer) {
        let segment = transfer.segment;
        let left = pending.deadline_us.saturating_sub(now.steady_us);
        let timeout_us = u32::try_from(left).unwrap_or(u32::MAX);
        let wish = LockWish { shared: true, no_wait: false, lease_us: Self::READ_LEASE_US };
        if let Some(pending) = self.operations.get_mut(step) {
            pending.wait = Wait::FetchLock(transfer);
        }
        let message = Message::Lock { step: step.to_bits(), who: pending.who, segment, wish, timeout_us };
        self.send(segment.home(), message);
    }

    fn end_under(&mut self, segment: SegmentId, under: Option<LockToken>) {
        if let Some(token) = under {
            self.give_back(segment, token);
        }
    }

    fn end_fetch(&mut self, step: StepId, pending: &Pending, failure: Failure) {
        self.operations.remove(step);
        if let Wait::Fetch { transfer, under } = pending.wait {
            self.end_under(transfer.segment, under);
        }
        self.finish(pending, Outcome::Failed(failure));
    }

    /// One read of a remote segment less; the last one lets its home know.
    fn read_ended(&mut self, segment: SegmentId) {
        let home = segment.home();
        let Some(peer) = self.peers.reachable(home) else { return };
        let Some(remote) = peer.remotes.get_mut(&segment) else { return };
        remote.reads = remote.reads.saturating_sub(1);
        if remote.leaving && remote.reads == 0 {
            peer.remotes.remove(&segment);
            self.send(home, Message::Forgotten { segment });
        }
    }

    /// The write into staging memory ended. If it failed, the put behind it may have happened all the same: a
    /// connection can end after both had arrived.
    pub fn staged(&mut self, step: StepId, result: Result<(), Failure>) {
        let Err(failure) = result else { return };
        let Some(pending) = self.operations.remove(step) else {
            self.counters.stale += 1;
            return;
        };
        if let Wait::Put { home, ticket } = pending.wait {
            self.give_staging(home, ticket);
        }
        self.finish(&pending, Outcome::Indeterminate(failure));
    }

    /// Something that was to be sent for this step was refused before it went out: the operation did nothing.
    pub fn refused(&mut self, step: StepId, failure: Failure) {
        let Some(pending) = self.operations.remove(step) else { return };
        match pending.wait {
            Wait::Put { home, ticket } => self.give_staging(home, ticket),
            Wait::Fetch { transfer, under } => {
                self.read_ended(transfer.segment);
                self.end_under(transfer.segment, under);
            }
            _ => {}
        }
        self.finish(&pending, Outcome::Failed(failure));
    }

    /// A home told us about one of its segments.
    pub(super) fn found(&mut self, now: Now, node: NodeId, step: StepId, facts: Facts, window: RemoteWindow) {
        if facts.segment.home() != node || window.bytes < Header::DATA_OFFSET.saturating_add(facts.bytes) {
            self.act(Action::Cut { node });
            return;
        }
        let noted = self.note(node, facts, window);
        let Some(pending) = self.operations.get_mut(step).copied().filter(|pending| pending.wait.is_on(node)) else {
            self.counters.stale += 1;
            return;
        };
        match pending.wait {
            Wait::Allocate { .. } => {
                self.operations.remove(step);
                self.finish_opened(pending.lane, pending.request, &facts);
            }
            Wait::Lookup => {
                let Some(lookup) = self.take_lookup(step, node) else { return };
                self.operations.remove(step);
                match lookup.then {
                    Then::Open => self.finish_opened(pending.lane, pending.request, &facts),
                    Then::Allocate(_) => self.finish(&pending, Outcome::Failed(Failure::AlreadyExists)),
                }
            }
            Wait::Facts { transfer } => {
                self.operations.remove(step);
                let Transfer { segment, offset, range } = transfer;
                let caller = pending.caller();
                if !noted {
                    self.finish(&pending, Outcome::Failed(Failure::Busy));
                } else if now.steady_us >= pending.deadline_us {
                    self.finish(&pending, Outcome::Failed(Failure::TimedOut));
                } else if let Err(failure) = self.get_far(caller, segment, offset, range) {
                    self.finish(&pending, Outcome::Failed(failure));
                }
            }
            _ => self.counters.stale += 1,
        }
    }

    /// Ends a lookup, if this node's answer to it is still to come.
    fn take_lookup(&mut self, step: StepId, node: NodeId) -> Option<Lookup> {
        self.lookups.get(&step).filter(|lookup| lookup.asked.contains(node))?;
        self.lookups.remove(&step)
    }

    /// Notes what a home said; `false` if there is no room for more.
    fn note(&mut self, node: NodeId, facts: Facts, window: RemoteWindow) -> bool {
        let Some(peer) = self.peers.reachable(node) else { return false };
        if peer.remotes.len() == Peer::REMOTES_MAX && !peer.remotes.contains_key(&facts.segment) {
            return false;
        }
        let fresh = Remote { facts, window, reads: 0, leaving: false };
        let remote = peer.remotes.entry(facts.segment).or_insert(fresh);
        (remote.facts, remote.window) = (facts, window);
        true
    }

    /// The home released a segment.
    pub(super) fn forget(&mut self, node: NodeId, segment: SegmentId) {
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
    pub(super) fn ended(&mut self, now: Now, node: NodeId, step: StepId, outcome: Outcome, told: Told) {
        self.clock.hear(told.timestamp, now.wall_us);
        let Some(pending) = self.operations.get_mut(step).filter(|pending| pending.wait.is_on(node)) else {
            self.counters.stale += 1;
            return;
        };
        let wait = pending.wait;
        if let (Wait::Lookup | Wait::Allocate { .. } | Wait::Facts { .. }, Outcome::Done) = (wait, outcome) {
            // Only a description is a good end of these: a peer that says otherwise is not one of us.
            return self.act(Action::Cut { node });
        }
        if let (Wait::Lookup, Outcome::Failed(Failure::NotFound)) = (wait, outcome) {
            return self.not_there(now, step, node);
        }
        if wait == Wait::Lookup && self.take_lookup(step, node).is_none() {
            self.counters.stale += 1;
            return;
        }
        if let (Wait::FetchLock(transfer), Outcome::Done) = (wait, outcome) {
            let Some(pending) = self.operations.get_mut(step) else { return };
            pending.wait = Wait::Fetch { transfer, under: Some(LockToken(told.word)) };
            let pending = *pending;
            return self.fetch_again(step, &pending, transfer);
        }
        let Some(pending) = self.operations.remove(step) else { return };
        match pending.wait {
            Wait::Put { home, ticket } => self.give_staging(home, ticket),
            Wait::Lock { segment, lease_us } if outcome == Outcome::Done => {
                let token = LockToken(told.word);
                if !self.is_attached(pending.lane.client) {
                    return self.give_back(segment, token);
                }
                let until_us = now.steady_us.saturating_add(lease_us.into());
                self.held.push(Held { segment, token, client: pending.lane.client, until_us });
            }
            Wait::LateLock { segment } => {
                if outcome == Outcome::Done {
                    self.give_back(segment, LockToken(told.word));
                }
                return;
            }
            Wait::Unlock { token, .. } => self.held.retain(|held| held.token != token),
            _ => {}
        }
        self.answer(Asker::Client(pending.lane, pending.request), outcome, told);
    }

    /// Asks a home to change a word, to watch a version, to lock or to unlock.
    pub(super) fn ask_far(&mut self, caller: Caller, operation: &Operation) -> Result<(), Failure> {
        let Caller { who, timeout_us, .. } = caller;
        match *operation {
            Operation::Atomic { segment, offset, change } => {
                let home = self.reachable_home(segment)?;
                let step = self.begin(&caller, Wait::Answer { home, harmless: false })?.to_bits();
                self.send(home, Message::Atomic { step, who, segment, offset, change, timeout_us });
            }
            Operation::Await { segment, above } => {
                let home = self.reachable_home(segment)?;
                let step = self.begin(&caller, Wait::Answer { home, harmless: true })?.to_bits();
                self.send(home, Message::Await { step, who, segment, above, timeout_us });
            }
            Operation::Lock { segment, wish } => {
                let home = self.reachable_home(segment)?;
                if self.held.len() >= OPERATIONS_MAX {
                    return Err(Failure::Busy);
                }
                let step = self.begin(&caller, Wait::Lock { segment, lease_us: wish.lease_us })?.to_bits();
                self.send(home, Message::Lock { step, who, segment, wish, timeout_us });
            }
            Operation::Unlock { segment, token } => {
                let home = self.reachable_home(segment)?;
                if !self.held.iter().any(|held| held.token == token && held.client == caller.lane.client) {
                    return Err(Failure::LockLost);
                }
                let step = self.begin(&caller, Wait::Unlock { segment, token })?.to_bits();
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
    pub(super) fn answer_lost(&mut self, now: Now, step: StepId, node: NodeId) {
        if let Some(lookup) = self.lookups.get_mut(&step) {
            if lookup.asked.contains(node) {
                lookup.silent += 1;
                self.not_there(now, step, node);
            }
            return;
        }
        let Some(pending) = self.operations.remove(step) else { return };
        let outcome = match pending.wait {
            Wait::LateLock { .. } => return,
            Wait::Facts { .. }
            | Wait::Lookup
            | Wait::Fetch { .. }
            | Wait::FetchLock(_)
            | Wait::Lock { .. }
            | Wait::Answer { harmless: true, .. } => Outcome::Failed(Failure::NodeDown),
            Wait::Allocate { .. }
            | Wait::Release { .. }
            | Wait::Put { .. }
            | Wait::Unlock { .. }
            | Wait::Answer { harmless: false, .. } => Outcome::Indeterminate(Failure::NodeDown),
        };
        self.finish(&pending, outcome);
    }
}

impl Pending {
    fn caller(&self) -> Caller {
        let Pending { lane, request, who, deadline_us, timeout_us, .. } = *self;
        Caller { lane, request, who, deadline_us, timeout_us }
    }
}
