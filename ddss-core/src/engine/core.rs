//! Clients, peers and time; and which way a request goes.

use super::action::{Action, Source};
use super::directory::Directory;
use super::guard::{Owner, Waiter, Wanted, Watcher};
use super::held::Held;
use super::kept::{Kept, KeptId};
use super::near::Look;
use super::operations::{Lookup, Operations, Pending, StepId, Then, Wait};
use super::peers::Peers;
use super::segments::Segments;
use crate::limits::CLIENTS_MAX;
use crate::message::Facts;
use crate::request::{ArenaRange, Payload};
use crate::segment::{Identity, Name, Spec};
use crate::{
    ClientId, Completion, Failure, HybridClock, LaneId, Message, NodeId, Opened, Operation, Outcome, Request,
    RequestId, SegmentId,
};
use std::collections::{BTreeMap, VecDeque};

/// What the engine is told once.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Which node this is.
    pub node: NodeId,
    /// Bytes of the pool in which segments live.
    pub pool_bytes: u64,
    /// The other nodes.
    pub peers: Vec<NodeId>,
}

/// The time, as the daemon read it before it came here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// A clock that never goes back, in microseconds: for deadlines.
    pub steady_us: u64,
    /// The wall's clock, in microseconds since 1970: for timestamps.
    pub wall_us: u64,
}

/// What happened so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Requests taken from clients.
    pub requests: u64,
    /// Requests that were refused because they made no sense.
    pub malformed: u64,
    /// Fetches that met a put and were done again.
    pub torn_fetches: u64,
    /// Answers and completions that came for an operation that had ended.
    pub stale: u64,
    /// Operations whose deadline passed.
    pub timeouts: u64,
    /// Puts committed here.
    pub commits: u64,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    generation: u32,
    who: Identity,
    arena_bytes: u64,
}

/// Who asks, checked to be attached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub(super) lane: LaneId,
    pub(super) request: RequestId,
    pub(super) who: Identity,
    pub(super) deadline_us: u64,
    pub(super) timeout_us: u32,
}

/// The engine of one node.
#[derive(Debug)]
pub struct Engine {
    pub(super) node: NodeId,
    pub(super) segments: Segments,
    pub(super) operations: Operations,
    pub(super) lookups: BTreeMap<StepId, Lookup>,
    pub(super) peers: Peers,
    pub(super) clock: HybridClock,
    pub(super) counters: Counters,
    /// Atomics whose word was asked for.
    pub(super) looks: VecDeque<Look>,
    pub(super) kept: Kept,
    pub(super) held: Vec<Held>,
    /// The names of the cluster, if this node belongs to one.
    pub(super) directory: Option<Directory>,
    clients: Vec<Option<Client>>,
    actions: VecDeque<Action>,
}

impl Engine {
    /// How long a peer has to forget a released segment before its connection is cut.
    pub(super) const FORGET_US: u64 = 5_000_000;
    /// How long a get that met a holder keeps the shared lock at the most.
    pub(super) const READ_LEASE_US: u32 = 1_000_000;

    /// An engine with no segments, no clients, and its peers not yet reached.
    pub fn new(config: &EngineConfig) -> Self {
        let mut peers = Peers::default();
        for &node in config.peers.iter().filter(|&&node| node != config.node) {
            peers.add(node);
        }
        Self {
            node: config.node,
            segments: Segments::new(config.node, config.pool_bytes),
            operations: Operations::new(),
            lookups: BTreeMap::new(),
            peers,
            clock: HybridClock::default(),
            counters: Counters::default(),
            looks: VecDeque::new(),
            kept: Kept::default(),
            held: Vec::new(),
            directory: None,
            clients: vec![None; CLIENTS_MAX],
            actions: VecDeque::with_capacity(1024),
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Segments at home here, and bytes of the pool that are free.
    pub fn segments(&self) -> (usize, u64) {
        (self.segments.count(), self.segments.free_bytes())
    }

    /// Operations under way.
    pub fn pending(&self) -> usize {
        self.operations.count()
    }

    /// Whether nothing is under way and nobody holds or waits for anything: then time need not be told often.
    pub fn is_quiet(&self) -> bool {
        self.pending() == 0 && self.segments.is_quiet()
    }

    /// The bytes of a commit that [`Source::Kept`](super::Source::Kept) names; they are given up with this.
    pub fn take_kept(&mut self, id: KeptId, take: impl FnOnce(&[u8])) {
        take(self.kept.get(id));
        self.kept.remove(&id);
    }

    /// The next thing to do, in order.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub(super) fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    /// A client came.
    pub fn attach(&mut self, client: ClientId, who: Identity, arena_bytes: u64) {
        if let Some(slot) = self.clients.get_mut(client.index as usize) {
            *slot = Some(Client { generation: client.generation, who, arena_bytes });
        }
    }

    /// A client is gone. What it had under way goes on and is told to nobody; its locks are broken.
    pub fn detach(&mut self, now: Now, client: ClientId) {
        if self.is_attached(client) {
            self.clients[client.index as usize] = None;
            self.owner_gone(now, Owner::Client(client));
            self.give_back_all(client);
        }
    }

    pub(super) fn is_attached(&self, client: ClientId) -> bool {
        self.client(client).is_some()
    }

    fn client(&self, id: ClientId) -> Option<Client> {
        (*self.clients.get(id.index as usize)?).filter(|client| client.generation == id.generation)
    }

    /// A node said hello on a new connection.
    pub fn peer_up(&mut self, node: NodeId) {
        let peer = self.peers.add(node);
        assert!(!peer.up, "a peer goes down before it comes up again");
        peer.up = true;
    }

    /// The connection to a node ended. Reads under way end by themselves, with [`fetched`](Self::fetched).
    pub fn peer_down(&mut self, now: Now, node: NodeId) {
        let Some(peer) = self.peers.reachable(node) else { return };
        *peer = super::peers::Peer::default();
        self.segments.forgotten(node, None);
        self.reclaim();
        self.owner_gone(now, Owner::Peer(node));
        self.held_lost(node);
        for step in self.operations.find(|pending| pending.wait.is_on(node)) {
            self.answer_lost(now, step, node);
        }
    }

    /// Time went on.
    pub fn tick(&mut self, now: Now) {
        while let Some(step) = self.operations.expired(now.steady_us) {
            self.counters.timeouts += 1;
            self.expire(step);
        }
        self.tick_guards(now);
        self.tick_held(now);
        loop {
            let overdue = self.segments.overdue(now.steady_us).next();
            let Some(node) = overdue else { break };
            self.segments.forgotten(node, None);
            self.act(Action::Cut { node });
        }
        self.reclaim();
    }

    /// When [`tick`](Self::tick) has something to do at the latest, on the steady clock.
    pub fn next_deadline_us(&self) -> Option<u64> {
        self.operations.next_deadline_us()
    }

    /// A client asks. `text` is a copy of what a name or specification range of its arena holds, else empty.
    pub fn request(&mut self, now: Now, lane: LaneId, request: &Request, text: &[u8]) {
        let Some(client) = self.client(lane.client) else { return };
        self.counters.requests += 1;
        let deadline_us = now.steady_us.saturating_add(u64::from(request.timeout_us));
        let timeout_us = request.timeout_us;
        let caller = Caller { lane, request: request.id, who: client.who, deadline_us, timeout_us };
        if let Err(failure) = self.dispatch(now, &client, caller, &request.operation, text) {
            self.end(&caller, Outcome::Failed(failure));
        }
    }

    /// A client's entry could not be read as a request.
    pub fn refuse(&mut self, lane: LaneId, request: RequestId, failure: Failure) {
        self.counters.malformed += 1;
        self.reply(lane, Completion::bare(request, Outcome::Failed(failure)), None);
    }

    fn dispatch(
        &mut self,
        now: Now,
        client: &Client,
        caller: Caller,
        operation: &Operation,
        text: &[u8],
    ) -> Result<(), Failure> {
        let fits = |range: &ArenaRange| range.fits(client.arena_bytes).then_some(()).ok_or(Failure::OutOfRange);
        match operation {
            Operation::Null => {
                self.end(&caller, Outcome::Done);
                Ok(())
            }
            Operation::Allocate { .. } => {
                let (spec, name) = text.split_first_chunk().ok_or(Failure::Malformed)?;
                self.look_up(caller, Name::from_bytes(name)?, Then::Allocate(Spec::decode(spec)?), now)
            }
            Operation::Open { .. } => self.look_up(caller, Name::from_bytes(text)?, Then::Open, now),
            Operation::Release { segment } if segment.home() == self.node => {
                self.release_named(now, Self::asker(&caller), caller.who, *segment)
            }
            Operation::Release { segment } => self.release_far(caller, *segment),
            Operation::Get { segment, offset, into, inline } => {
                fits(into)?;
                let (offset, into, inline) = (*offset, *into, *inline);
                if segment.home() == self.node {
                    self.ask_here(now, &caller, *segment, Wanted::Get { offset, into, inline })
                } else {
                    self.get_far(caller, *segment, offset, into)
                }
            }
            Operation::Put { segment, offset, from, terms } => {
                if let Payload::Arena(range) = from {
                    fits(range)?;
                }
                let (offset, terms) = (*offset, *terms);
                if segment.home() == self.node {
                    let source = Source::Client(caller.lane.client, *from);
                    self.ask_here(now, &caller, *segment, Wanted::Put { offset, length: from.length(), source, terms })
                } else {
                    self.put_far(caller, *segment, offset, *from, terms)
                }
            }
            Operation::Atomic { segment, offset, change } if segment.home() == self.node => {
                self.ask_here(now, &caller, *segment, Wanted::Atomic { offset: *offset, change: *change })
            }
            Operation::Lock { segment, wish } if segment.home() == self.node => {
                self.ask_here(now, &caller, *segment, Wanted::Lock(*wish))
            }
            Operation::Await { segment, above } if segment.home() == self.node => {
                let (asker, deadline_us) = (Self::asker(&caller), caller.deadline_us);
                self.await_here(*segment, caller.who, Watcher { asker, above: *above, deadline_us })
            }
            Operation::Unlock { segment, token } if segment.home() == self.node => {
                let owner = Owner::Client(caller.lane.client);
                let told = self.unlock_here(now, *segment, *token, owner)?;
                self.answer(Self::asker(&caller), Outcome::Done, told);
                Ok(())
            }
            Operation::Atomic { .. } | Operation::Lock { .. } | Operation::Await { .. } | Operation::Unlock { .. } => {
                self.ask_far(caller, operation)
            }
        }
    }

    fn ask_here(&mut self, now: Now, caller: &Caller, id: SegmentId, wanted: Wanted) -> Result<(), Failure> {
        let (asker, who, deadline_us) = (Self::asker(caller), caller.who, caller.deadline_us);
        self.ask_home(now, id, Waiter { asker, who, wanted, deadline_us })
    }

    /// Notes an operation that has to wait.
    pub(super) fn begin(&mut self, caller: &Caller, wait: Wait) -> Result<StepId, Failure> {
        let Caller { lane, request, who, deadline_us, timeout_us } = *caller;
        let pending = Pending { lane, request, who, deadline_us, timeout_us, wait };
        self.operations.insert(pending).ok_or(Failure::Busy)
    }

    /// Tells a caller how it ended.
    pub(super) fn end(&mut self, caller: &Caller, outcome: Outcome) {
        self.reply(caller.lane, Completion::bare(caller.request, outcome), None);
    }

    /// Tells the caller of a pending operation, which is over.
    pub(super) fn finish(&mut self, pending: &Pending, outcome: Outcome) {
        self.reply(pending.lane, Completion::bare(pending.request, outcome), None);
    }

    pub(super) fn finish_opened(&mut self, lane: LaneId, request: RequestId, facts: &Facts) {
        let at = self.segments.get(facts.segment).ok().map(|segment| segment.at);
        let opened = Opened { segment: facts.segment, bytes: facts.bytes, at, model: facts.model };
        let completion = Completion { data: opened.encode(), ..Completion::bare(request, Outcome::Done) };
        self.reply(lane, completion, None);
    }

    pub(super) fn reply(&mut self, lane: LaneId, completion: Completion, data: Option<(u64, u8)>) {
        if self.client(lane.client).is_some() {
            self.act(Action::Reply { lane, completion, data });
        }
    }

    pub(super) fn send(&mut self, node: NodeId, message: Message) {
        self.act(Action::Send { node, message, tail: None });
    }

    /// The deadline of an operation passed. Where the fabric may still touch the client's arena there is no end
    /// yet: the client, which has the same deadline, stops waiting by itself and keeps the range until the end.
    fn expire(&mut self, step: StepId) {
        let Some(pending) = self.operations.get_mut(step) else { return };
        let outcome = match pending.wait {
            Wait::Fetch { .. } | Wait::Put { ticket: Some(_), .. } | Wait::LateLock { .. } => return,
            // What is granted all the same is given back when the word of it comes.
            Wait::Lock { segment, .. } => return self.expire_lock(step, segment),
            Wait::FetchLock(transfer) => return self.expire_lock(step, transfer.segment),
            Wait::Put { .. }
            | Wait::Release { .. }
            | Wait::Allocate { .. }
            | Wait::Unlock { .. }
            | Wait::Answer { harmless: false, .. } => Outcome::Indeterminate(Failure::TimedOut),
            Wait::Lookup | Wait::Facts { .. } | Wait::Answer { harmless: true, .. } => {
                Outcome::Failed(Failure::TimedOut)
            }
        };
        self.lookups.remove(&step);
        if let Some(pending) = self.operations.remove(step) {
            self.finish(&pending, outcome);
        }
    }

    fn expire_lock(&mut self, step: StepId, segment: SegmentId) {
        let Some(pending) = self.operations.get_mut(step) else { return };
        pending.wait = Wait::LateLock { segment };
        let pending = *pending;
        self.finish(&pending, Outcome::Failed(Failure::TimedOut));
    }

    /// The home of a segment, if it is another node that can be reached.
    pub(super) fn reachable_home(&mut self, segment: SegmentId) -> Result<NodeId, Failure> {
        let home = segment.home();
        match self.peers.get(home) {
            None => Err(Failure::NotFound),
            Some(peer) if peer.up => Ok(home),
            Some(_) => Err(Failure::NodeDown),
        }
    }
}
