//! Clients, peers and time; and which way a request goes.

use super::action::{Action, CommitSource, FetchTarget, MessageBody, RangeSet};
use super::home::home_ops::PendingAtomic;
use super::immediate::ImmediateActions;
use super::remote::name_claims::NameClaims;
use super::remote::read_cache::ReadCache;
use super::remote::remote_locks::RemoteLock;
use super::remote::served_get::ServedGets;
use super::replication::state::Replicas;
use super::state::buffer_pool::{BufferId, BufferPool};
use super::state::lock_queue::{LockOwner, PendingOp, Waiter};
use super::state::peers::Peers;
use super::state::pending::{NameLookup, Pending, PendingOperations, StepId, WaitState};
use super::state::segments::Segments;
use crate::limits::CLIENTS_MAX;
use crate::model::segment::Principal;
use crate::model::spec::Storage;
use crate::peer::message::{RemoteWindow, SegmentInfo};
use crate::request::listing::ListPage;
use crate::request::operation::ArenaRange;
use crate::{
    ChannelId, ClientId, Completion, Failure, HybridClock, Message, NodeId, OpenedSegment, Outcome, Request, RequestId,
    SegmentId, Shard, Timestamp, Version,
};
use std::collections::{BTreeMap, VecDeque};

/// What the engine is told once.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Which node this is.
    pub node: NodeId,
    /// Which of the node's planes. Its peers are the same plane of other nodes.
    pub plane: Shard,
    /// Bytes of the pool in which segments live.
    pub pool_bytes: u64,
    /// The other nodes.
    pub peers: Vec<NodeId>,
    /// The generation of the first segment in each slot. A node that forgot its segments begins with another number
    /// each time, so that an id of an earlier run never names a segment of this one.
    pub first_generation: u32,
    /// Whether the reads of one batch are under way together. Where each waits for the one before it, a get that need not
    /// be one-sided is carried out by its home, in one round trip.
    pub reads_overlap: bool,
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
    /// Gets of other nodes' clients that were carried out here.
    pub handed: u64,
    /// Gets that were answered from a copy that this node keeps of a remote segment.
    pub copied: u64,
    /// Locks granted here.
    pub locks_granted: u64,
    /// Locks that were taken back: their lease ran out, or their holder was gone.
    pub locks_broken: u64,
    /// Segments refused because their owner has as much as he may have.
    pub over_quota: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    generation: u32,
    pub(crate) who: Principal,
    pub(crate) arena_bytes: u64,
}

/// What is to be done next. An action is as large as the name in the largest of them; the few that nearly all are go
/// through the queue by themselves, at a third of that.
#[derive(Clone, Copy, Debug)]
enum ActionQueue {
    Reply(Reply),
    CopyOut {
        at: u64,
        parts: RangeSet,
        client: ClientId,
        into: ArenaRange,
    },
    Commit {
        at: u64,
        parts: RangeSet,
        source: CommitSource,
        version: Version,
        timestamp: Timestamp,
    },
    Fetch {
        node: NodeId,
        step: StepId,
        window: RemoteWindow,
        line: u64,
        parts: RangeSet,
        target: FetchTarget,
    },
    /// The next of the others.
    Other,
    /// What was done before this was the last use of these bytes.
    GiveUp(BufferId),
}

/// Who asks, checked to be attached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalCaller {
    pub(crate) lane: ChannelId,
    pub(crate) request: RequestId,
    pub(crate) who: Principal,
    pub(crate) deadline_us: u64,
    pub(crate) timeout_us: u32,
}

/// The engine of one node.
#[derive(Debug)]
pub struct Engine {
    pub(crate) node: NodeId,
    pub(crate) reads_overlap: bool,
    pub(crate) segments: Segments,
    pub(crate) operations: PendingOperations,
    pub(crate) lookups: BTreeMap<StepId, NameLookup>,
    pub(crate) peers: Peers,
    pub(crate) clock: HybridClock,
    pub(crate) counters: Counters,
    /// Atomics whose word was asked for.
    pub(crate) looks: VecDeque<PendingAtomic>,
    pub(crate) kept: BufferPool,
    pub(crate) held: Vec<RemoteLock>,
    /// The names of the cluster, if this node belongs to one.
    pub(crate) directory: Option<NameClaims>,
    pub(crate) hands: ServedGets,
    pub(crate) copies: ReadCache,
    pub(crate) mirrors: Replicas,
    /// Segments that were placed round robin.
    pub(crate) placed: u64,
    clients: Vec<Option<Client>>,
    pub(crate) at_once: ImmediateActions,
    actions: VecDeque<ActionQueue>,
    /// Those that [`ActionQueue::Other`] stands for, in order.
    others: VecDeque<Action>,
    #[cfg(feature = "planted")]
    pub(crate) bug: Option<super::Bug>,
}

/// What [`Action::Reply`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// Where.
    pub lane: ChannelId,
    /// What.
    pub completion: Completion,
    /// Bytes of the pool that go into its data first: from where, and how many.
    pub data: Option<(u64, u8)>,
}

impl Engine {
    /// How long a peer has to forget a released segment before its connection is cut.
    pub(crate) const FORGET_US: u64 = 5_000_000;

    /// An engine with no segments, no clients, and its peers not yet reached.
    pub fn new(config: &EngineConfig) -> Self {
        let mut peers = Peers::default();
        for &node in config.peers.iter().filter(|&&node| node != config.node) {
            peers.add(node);
        }
        Self {
            node: config.node,
            reads_overlap: config.reads_overlap,
            segments: Segments::new(config),
            operations: PendingOperations::new(),
            lookups: BTreeMap::new(),
            peers,
            clock: HybridClock::default(),
            counters: Counters::default(),
            looks: VecDeque::new(),
            kept: BufferPool::default(),
            held: Vec::new(),
            directory: None,
            hands: ServedGets::default(),
            copies: ReadCache::default(),
            mirrors: Replicas::default(),
            placed: 0,
            clients: vec![None; CLIENTS_MAX],
            at_once: ImmediateActions::new(),
            actions: VecDeque::with_capacity(1024),
            others: VecDeque::with_capacity(1024),
            #[cfg(feature = "planted")]
            bug: None,
        }
    }

    /// Gives the engine a bug, or takes it away.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, bug: Option<super::Bug>) {
        self.bug = bug;
        self.segments.bug = bug;
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// A client asked for nothing, and was answered without the engine.
    #[inline]
    pub fn note_null(&mut self) {
        self.counters.requests += 1;
    }

    /// The newest timestamp that this node gave or heard of: goes out with each message.
    pub fn clock(&self) -> Timestamp {
        self.clock.last()
    }

    /// Segments at home here, and bytes of the pool that are free.
    pub fn segments(&self) -> (usize, u64) {
        (self.segments.count(), self.segments.free_bytes(Storage::Memory))
    }

    /// Who holds locks of segments at home here, and who waits in line for such a segment.
    pub fn locks(&self) -> (usize, usize) {
        let busy = (0..).map_while(|index| self.segments.busy(index));
        let guards = busy.filter_map(|id| Some(&self.segments.get(id).ok()?.guard));
        guards.fold((0, 0), |(holders, waiters), guard| (holders + guard.holders(), waiters + guard.waiting()))
    }

    /// Operations under way.
    pub fn pending(&self) -> usize {
        self.operations.count()
    }

    /// Bytes that an action names.
    pub fn kept(&self, id: BufferId) -> &[u8] {
        self.kept.get(id)
    }

    /// The bytes of a commit that [`CommitSource::Kept`](super::CommitSource::Kept) names; they are given up with this.
    pub fn take_kept(&mut self, id: BufferId, take: impl FnOnce(&[u8])) {
        take(self.kept.get(id));
        self.kept.remove(&id);
    }

    /// The next thing to do, in order. What it needs of the engine is there until this is called again.
    pub fn next_action(&mut self) -> Option<Action> {
        if let Some(first) = self.at_once.next() {
            return Some(first);
        }
        loop {
            return Some(match self.actions.pop_front()? {
                ActionQueue::Reply(Reply { lane, completion, data }) => Action::Reply { lane, completion, data },
                ActionQueue::CopyOut { at, parts, client, into } => Action::CopyOut { at, parts, client, into },
                ActionQueue::Commit { at, parts, source, version, timestamp } => {
                    Action::Commit { at, parts, source, version, timestamp }
                }
                ActionQueue::Fetch { node, step, window, line, parts, target } => {
                    Action::Fetch { node, step, window, line, parts, target }
                }
                ActionQueue::Other => self.others.pop_front()?,
                ActionQueue::GiveUp(kept) => {
                    self.kept.remove(&kept);
                    continue;
                }
            });
        }
    }

    /// How many actions are in the queue.
    #[inline]
    pub(crate) fn due(&self) -> usize {
        self.actions.len()
    }

    /// The first action of the queue, if it is a reply.
    #[inline]
    pub(crate) fn take_only_reply(&mut self) -> Option<Reply> {
        let Some(&ActionQueue::Reply(reply)) = self.actions.front() else { return None };
        self.actions.clear();
        Some(reply)
    }

    #[inline(always)]
    pub(crate) fn act(&mut self, action: Action) {
        let due = match action {
            Action::Reply { lane, completion, data } => ActionQueue::Reply(Reply { lane, completion, data }),
            Action::CopyOut { at, parts, client, into } => ActionQueue::CopyOut { at, parts, client, into },
            Action::Commit { at, parts, source, version, timestamp } => {
                ActionQueue::Commit { at, parts, source, version, timestamp }
            }
            Action::Fetch { node, step, window, line, parts, target } => {
                ActionQueue::Fetch { node, step, window, line, parts, target }
            }
            other => {
                self.others.push_back(other);
                ActionQueue::Other
            }
        };
        self.actions.push_back(due);
    }

    /// Bytes are needed no longer than for what is due already.
    pub(crate) fn give_up(&mut self, kept: BufferId) {
        self.actions.push_back(ActionQueue::GiveUp(kept));
    }

    /// A client came.
    pub fn attach(&mut self, client: ClientId, who: Principal, arena_bytes: u64) {
        if let Some(slot) = self.clients.get_mut(client.index as usize) {
            *slot = Some(Client { generation: client.generation, who, arena_bytes });
        }
    }

    /// A client is gone. What it had under way goes on and is told to nobody; its locks are broken.
    pub fn detach(&mut self, now: Now, client: ClientId) {
        if self.is_attached(client) {
            self.clients[client.index as usize] = None;
            self.owner_gone(now, LockOwner::Client(client));
            self.give_back_all(client);
            self.cancel_all_far(client);
        }
    }

    pub(crate) fn is_attached(&self, client: ClientId) -> bool {
        self.client(client).is_some()
    }

    pub(crate) fn client(&self, id: ClientId) -> Option<Client> {
        (*self.clients.get(id.index as usize)?).filter(|client| client.generation == id.generation)
    }

    /// A node said hello on a new connection.
    pub fn peer_up(&mut self, node: NodeId) {
        let peer = self.peers.add(node);
        assert!(!peer.up, "a peer goes down before it comes up again");
        peer.up = true;
        self.mirrors.dead.remove(&node);
    }

    /// The connection to a node ended. Reads under way end by themselves, with [`fetched`](Self::fetched).
    pub fn peer_down(&mut self, now: Now, node: NodeId) {
        let Some(peer) = self.peers.reachable(node) else { return };
        *peer = super::state::peers::Peer::default();
        self.segments.forgotten(node, None);
        self.reclaim();
        self.owner_gone(now, LockOwner::Peer(node));
        self.held_lost(node);
        self.spoil_copies_of(node);
        for step in self.operations.find(|pending| pending.is_on(node)) {
            self.answer_lost(now, step, node);
        }
        self.mirrors_lost(now, node);
    }

    /// Time went on.
    pub fn tick(&mut self, now: Now) {
        while let Some(step) = self.operations.expired(now.steady_us) {
            self.counters.timeouts += 1;
            self.expire(step);
        }
        self.tick_mirrors(now);
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

    /// When [`tick`](Self::tick) has something to do at the latest for what is under way, held or waited for, on the steady
    /// clock. What only has to be tidied up can wait longer.
    pub fn next_deadline_us(&self) -> u64 {
        self.operations.next_deadline_us().unwrap_or(u64::MAX).min(self.segments.due_us())
    }

    /// A client asks. `text` is a copy of what its operation has in the arena for the engine, else empty: names, a
    /// specification, what a list asks for, a table of ranges.
    pub fn request(&mut self, now: Now, lane: ChannelId, request: &Request, text: &[u8]) {
        let Some(client) = self.client(lane.client) else { return };
        self.counters.requests += 1;
        let deadline_us = now.steady_us.saturating_add(u64::from(request.timeout_us));
        let timeout_us = request.timeout_us;
        let caller = LocalCaller { lane, request: request.id, who: client.who, deadline_us, timeout_us };
        if let Err(failure) = self.dispatch(now, &client, caller, &request.operation, text) {
            let failure = self.why(request.operation.segment(), failure);
            self.end(&caller, Outcome::Failed(failure));
        }
    }

    /// A client's entry could not be read as a request.
    pub fn refuse(&mut self, lane: ChannelId, request: RequestId, failure: Failure) {
        self.counters.malformed += 1;
        self.reply(lane, Completion::bare(request, Outcome::Failed(failure)), None);
    }

    pub(crate) fn ask_here(
        &mut self,
        now: Now,
        caller: &LocalCaller,
        id: SegmentId,
        wanted: PendingOp,
    ) -> Result<(), Failure> {
        let (asker, who, deadline_us) = (Self::asker(caller), caller.who, caller.deadline_us);
        self.ask_home(now, id, Waiter { asker, who, wanted, deadline_us })
    }

    /// Notes an operation that has to wait.
    pub(crate) fn begin(&mut self, caller: &LocalCaller, wait: WaitState) -> Result<StepId, Failure> {
        let LocalCaller { lane, request, who, deadline_us, timeout_us } = *caller;
        let on = wait.segment().map_or(NodeId::NOBODY, |segment| self.home_of(segment));
        let pending = Pending { lane, request, who, deadline_us, timeout_us, on, wait };
        self.operations.insert(pending).ok_or(Failure::Busy)
    }

    /// Ends an operation: what was kept for it is free, and a copy of what it may have changed does not count any more.
    pub(crate) fn over(&mut self, step: StepId) -> Option<Pending> {
        let pending = self.operations.remove(step)?;
        if let Some(table) = pending.wait.table() {
            self.give_up(table);
        }
        if let WaitState::Unlock { token, segment } = pending.wait {
            // However it ended, its client does not count on the lock any more. Two homes may give the same token.
            self.held.retain(|held| (held.segment, held.token) != (segment, token));
        }
        if let Some(segment) = pending.wait.changes() {
            self.spoil_copy(segment);
        }
        Some(pending)
    }

    /// Tells a caller how it ended.
    #[inline]
    pub(crate) fn end(&mut self, caller: &LocalCaller, outcome: Outcome) {
        self.reply(caller.lane, Completion::bare(caller.request, outcome), None);
    }

    /// Tells the caller of a pending operation, which is over.
    pub(crate) fn finish(&mut self, pending: &Pending, outcome: Outcome) {
        self.reply(pending.lane, Completion::bare(pending.request, outcome), None);
    }

    pub(crate) fn finish_opened(&mut self, lane: ChannelId, request: RequestId, facts: &SegmentInfo) {
        let at = self.segments.get(facts.segment).ok();
        // What has a mirror is read through its home's engine, which knows whether it is the home still.
        let at = at.filter(|segment| segment.mirror.is_none()).map(|segment| segment.at);
        let opened = OpenedSegment { segment: facts.segment, bytes: facts.bytes, at, model: facts.model };
        let completion = Completion { data: opened.encode(), ..Completion::bare(request, Outcome::Done) };
        self.reply(lane, completion, None);
    }

    pub(crate) fn send(&mut self, node: NodeId, message: Message) {
        self.act(Action::Send { node, message, tail: MessageBody::None });
    }

    /// The deadline of an operation passed. Where the fabric may still touch the client's arena there is no end
    /// yet: the client, which has the same deadline, stops waiting by itself and keeps the range until the end.
    pub(crate) fn expire(&mut self, step: StepId) {
        let Some(pending) = self.operations.get_mut(step) else { return };
        let outcome = match pending.wait {
            WaitState::Fetch(_) | WaitState::Put { ticket: Some(_), .. } | WaitState::LateLock { .. } => return,
            // What is granted all the same is given back when the word of it comes.
            WaitState::Lock { segment, .. } => return self.expire_lock(step, segment),
            // A list goes on with the next node.
            WaitState::Page { node, list: true, .. } => {
                let Some(pending) = self.over(step) else { return };
                return self.tell_page(pending.lane, pending.request, ListPage { node, ..ListPage::default() });
            }
            WaitState::Put { .. }
            | WaitState::Release { .. }
            | WaitState::Allocate { .. }
            | WaitState::Unlock { .. }
            | WaitState::Answer { harmless: false, .. } => Outcome::Indeterminate(Failure::TimedOut),
            WaitState::Lookup
            | WaitState::Facts { .. }
            | WaitState::Home(_)
            | WaitState::Page { .. }
            | WaitState::Answer { harmless: true, .. } => Outcome::Failed(Failure::TimedOut),
        };
        self.lookups.remove(&step);
        if let Some(pending) = self.over(step) {
            self.finish(&pending, outcome);
        }
    }

    fn expire_lock(&mut self, step: StepId, segment: SegmentId) {
        let Some(pending) = self.operations.get_mut(step) else { return };
        pending.wait = WaitState::LateLock { segment };
        let pending = *pending;
        self.finish(&pending, Outcome::Failed(Failure::TimedOut));
    }

    /// The home of a segment, if it is another node that can be reached.
    pub(crate) fn reachable_home(&mut self, segment: SegmentId) -> Result<NodeId, Failure> {
        let home = self.home_of(segment);
        match self.peers.get(home) {
            None => Err(Failure::NotFound),
            Some(peer) if peer.up => Ok(home),
            Some(_) => Err(Failure::NodeDown),
        }
    }
}
