//! The engine itself: its state, the queue of actions, and the entry points for clients, peers and time.

use crate::action::{Action, Commit, PeerAction, Reply};
use crate::config::{Counters, EngineConfig, Now};
use crate::home::fast_path::FastPath;
use crate::home::handler::Home;
use crate::ids::{BufferId, StepId};
use crate::outgoing_bytes::OutgoingBytes;
use crate::remote::handler::Remote;
use crate::requester::{LockOwner, NewSegment, ReplyFields};
use crate::role::ReplicaCounts;
use crate::state::memory::uploads::Uploads;
use crate::state::name_claims::NameClaims;
use crate::state::output::Output;
use crate::state::peers::Peers;
use crate::state::pending::{NameLookup, PendingOperations};
use crate::state::read_cache::ReadCache;
use crate::state::remote_locks::RemoteLocks;
use crate::state::replication::Replicas;
use crate::state::segments::Segments;
use crate::uploads::memory::UploadMemory;
use ddss_core::{
    ChannelId, ClientId, Completion, Failure, HybridClock, NodeId, Outcome, Principal, ReplicationInfo, RequestId,
    SegmentId, Storage, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};

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
    pub(crate) remote_locks: RemoteLocks,
    /// The cluster's name directory, if this node belongs to a cluster.
    pub(crate) directory: Option<NameClaims>,
    /// Large puts of this node's segments whose parts arrive.
    pub(crate) uploads: Uploads,
    /// Clients with large puts at other nodes.
    pub(crate) remote_uploaders: BTreeSet<ClientId>,
    pub(crate) read_cache: ReadCache,
    pub(crate) replicas: Replicas,
    /// Number of segments placed round robin so far.
    pub(crate) placed: u64,
    pub(crate) output: Output,
}

impl Engine {
    /// Creates an engine with no segments, no clients, and no connected peer.
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
            remote_locks: RemoteLocks::default(),
            directory: None,
            uploads: Uploads::new(config.pool_bytes, config.first_generation),
            remote_uploaders: BTreeSet::new(),
            read_cache: ReadCache::default(),
            replicas: Replicas::default(),
            placed: 0,
            output: Output::new(),
        }
    }

    /// Returns the handler of everything that this node does as a home or a replica.
    #[inline]
    pub(crate) fn home(&mut self) -> Home<'_> {
        Home {
            segments: &mut self.segments,
            replicas: &mut self.replicas,
            peers: &mut self.peers,
            uploads: &mut self.uploads,
            directory: &mut self.directory,
            clock: &mut self.clock,
            output: &mut self.output,
        }
    }

    /// Returns the handler of bytes for other nodes.
    pub(crate) fn outgoing_bytes(&mut self) -> OutgoingBytes<'_> {
        let Self { peers, segments, output, .. } = self;
        OutgoingBytes { peers, segments, output }
    }

    /// Returns the handler of the memory of uploads.
    pub(crate) fn upload_memory(&mut self) -> UploadMemory<'_> {
        UploadMemory { segments: &mut self.segments, uploads: &mut self.uploads }
    }

    /// Returns the handler of calls on the fast path.
    #[inline(always)]
    pub(crate) fn fast_path(&mut self) -> FastPath<'_> {
        FastPath { segments: &mut self.segments, clock: &mut self.clock, output: &mut self.output }
    }

    /// Disables the fast path, or enables it again. Both paths decide the same, which the simulator verifies.
    pub fn set_slow_path(&mut self, slow_path_only: bool) {
        self.segments.set_slow_path(slow_path_only);
    }

    /// Returns the handler of calls at other nodes.
    #[inline]
    pub(crate) fn remote(&mut self) -> Remote<'_> {
        Remote {
            node: self.node,
            reads_overlap: self.reads_overlap,
            operations: &mut self.operations,
            lookups: &mut self.lookups,
            remote_locks: &mut self.remote_locks,
            remote_uploaders: &mut self.remote_uploaders,
            read_cache: &mut self.read_cache,
            directory: self.directory.as_ref(),
            replicas: &self.replicas,
            segments: &mut self.segments,
            peers: &mut self.peers,
            clock: &mut self.clock,
            output: &mut self.output,
        }
    }

    /// Creates a segment whose name no other node has.
    pub(crate) fn create(&mut self, now: Now, new: Option<NewSegment>) {
        let Some(NewSegment { requester, principal, name, spec }) = new else { return };
        if let Err(failure) = self.home().lifecycle().allocate_at_home(now, requester, principal, name, spec) {
            self.output.answer(requester, Outcome::Failed(failure), ReplyFields::default());
        }
    }

    /// Returns true if this node is the home of a segment.
    #[inline]
    pub(crate) fn is_home(&self, segment: SegmentId) -> bool {
        self.replicas.home_of(segment) == self.node
    }

    /// Returns true if requests may need the exact time, for a lease or the age of a cached copy.
    #[inline]
    pub fn needs_time(&self) -> bool {
        self.segments.has_replicated() || self.read_cache.has_entries()
    }

    /// Answers waiters before the node stops. A lock would end with the node, and no client starts a put any more, so
    /// waiters for a lock or a version are failed. With `all`, every queued operation is failed: none of them has
    /// started.
    pub fn fail_waiters(&mut self, now: Now, all: bool) {
        self.home().operate(|operations| operations.fail_waiters(now, all));
    }

    /// Switches a bug on, or all off.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, bug: Option<super::Bug>) {
        self.segments.bug = bug;
    }

    /// Returns the event counters.
    pub fn counters(&self) -> Counters {
        self.output.counters
    }

    /// Counts a null request that was answered without the engine.
    #[inline]
    pub fn note_null(&mut self) {
        self.output.counters.requests += 1;
    }

    /// Returns the time of this node, no older than any timestamp that it gave or received. It goes out with each message.
    pub fn clock(&self, now: Now) -> Timestamp {
        self.clock.at(now.wall_us)
    }

    /// Returns the number of segments at home here and the free bytes of the pool.
    pub fn segments(&self) -> (usize, u64) {
        (self.segments.count(), self.segments.free_bytes(Storage::Memory))
    }

    /// Returns the numbers of replicated segments at home here, by the state of their replicas.
    pub fn replicas(&self) -> ReplicaCounts {
        let in_sync = self.replicas.in_sync_at(self.segments.node());
        let mut counts = ReplicaCounts { in_sync, unsure: self.replicas.unconfirmed_count(), ..Default::default() };
        for id in self.replicas.transitions() {
            let replication = self.segments.get(id).ok().and_then(|segment| segment.replication.as_deref());
            let Some(replication) = replication.filter(|replication| replication.is_home()) else { continue };
            match replication.replication_info() {
                ReplicationInfo::Copying => counts.copying += 1,
                ReplicationInfo::Degraded => counts.degraded += 1,
                _ => {}
            }
        }
        counts
    }

    /// Returns the number of lock holders and of queued waiters, over all segments at home here.
    pub fn locks(&self) -> (usize, usize) {
        let busy = (0..).map_while(|index| self.segments.busy(index));
        let lock_queues = busy.filter_map(|id| Some(&self.segments.get(id).ok()?.lock_queue));
        lock_queues.fold((0, 0), |(holders, waiters), lock_queue| {
            (holders + lock_queue.holders(), waiters + lock_queue.waiting())
        })
    }

    /// Sets the bytes of the largest value that is committed at once, for tests with small values.
    pub fn set_commit_at_once_max(&mut self, bytes: u32) {
        self.uploads.at_once_max = bytes;
    }

    /// Sets the time between two passes in which this home frees the expired entries of a map, for tests.
    pub fn set_sweep_pause(&mut self, pause_us: u64) {
        self.segments.sweeps.pause_us = pause_us;
    }

    /// Returns the number of large puts whose parts arrive or are committed here, and the bytes of memory that they take.
    pub fn uploads(&self) -> (usize, u64) {
        self.uploads.usage()
    }

    /// Returns the number of pending operations.
    pub fn pending(&self) -> usize {
        self.operations.count()
    }

    /// Returns the bytes of a buffer that an action names.
    pub fn buffer(&self, id: BufferId) -> &[u8] {
        self.output.buffer(id)
    }

    /// Passes the bytes of a [`CommitSource::Buffer`](super::CommitSource::Buffer) to `take`, and frees the buffer.
    pub fn consume_buffer(&mut self, id: BufferId, take: impl FnOnce(&[u8])) {
        take(self.output.buffer(id));
        self.output.drop_buffer(&id);
    }

    /// Takes the next action, in order. State that the action refers to stays valid until the next call.
    pub fn next_action(&mut self) -> Option<Action> {
        debug_assert!(!self.replicas.has_work(), "the work that follows from an event is done in it");
        self.output.next_action()
    }

    /// Takes the next action if it is an immediate commit: the same as [`next_action`](Self::next_action), without a
    /// move.
    #[inline]
    pub fn first_commit(&mut self) -> Option<&Commit> {
        self.output.take_commit()
    }

    /// Takes the next action if it is a reply and the last one, without a move.
    #[inline]
    pub fn last_reply(&mut self) -> Option<&Reply> {
        self.output.take_last_reply()
    }

    /// Attaches a client.
    pub fn attach(&mut self, client: ClientId, principal: Principal, arena_bytes: u64) {
        self.output.attach(client, principal, arena_bytes);
    }

    /// Detaches a client: breaks its locks and cancels its waits. Its other operations continue, and their replies are
    /// dropped.
    pub fn detach(&mut self, now: Now, client: ClientId) {
        if self.output.detach(client) {
            self.home().operate(|operations| operations.drop_owner(now, LockOwner::Client(client)));
            let here = self.node;
            self.upload_memory().drop_of(here, LockOwner::Client(client));
            let mut remote = self.remote();
            remote.release_remote_locks(client);
            remote.cancel_all_remote(client);
            remote.drop_uploads_of(client);
        }
    }

    /// Marks a peer as connected, after the handshake, with its clock.
    pub fn on_peer_up(&mut self, now: Now, node: NodeId, clock: Timestamp) {
        self.peers.connect(node).note_clock(now, clock);
        self.replicas.set_dead(node, false);
        self.home().operations().watches().announce_names();
    }

    /// Handles the loss of the connection to a peer. Reads in flight end by themselves, with
    /// [`on_fetched`](Self::on_fetched).
    pub fn on_peer_down(&mut self, now: Now, node: NodeId) {
        if !self.peers.disconnect(node) {
            return;
        }
        self.segments.forgotten(node, None);
        let mut home = self.home();
        home.lifecycle().reclaim();
        home.operate(|operations| operations.drop_owner(now, LockOwner::Peer(node)));
        let here = self.node;
        self.upload_memory().drop_of(here, LockOwner::Peer(node));
        self.remote_locks.remove_home(node);
        self.remote().invalidate_cached_of(node);
        for step in self.operations.find(|pending| pending.is_on(node)) {
            let new = self.remote().handle_peer_loss(step, node);
            self.create(now, new);
        }
        self.home().replicas_lost(now, node);
    }

    /// Handles everything that is due at `now`.
    pub fn tick(&mut self, now: Now) {
        while let Some(step) = self.operations.expired(now.steady_us) {
            self.output.counters.timeouts += 1;
            self.remote().expire(step);
        }
        self.home().tick(now);
        self.upload_memory().expire(now);
        self.remote_locks.expire(now.steady_us);
        loop {
            let overdue = self.segments.overdue(now.steady_us).next();
            let Some(node) = overdue else { break };
            self.segments.forgotten(node, None);
            self.output.push(Action::Peer(PeerAction::Disconnect { node }));
        }
        self.home().lifecycle().reclaim();
    }

    /// Returns the latest time, on the steady clock, for the next call of [`tick`](Self::tick). It covers pending
    /// operations, leases and waiters. Pure clean-up may happen later.
    pub fn next_deadline_us(&self) -> u64 {
        let due_us = self.segments.due_us().min(self.segments.sweeps.due_us());
        self.operations.next_deadline_us().unwrap_or(u64::MAX).min(due_us)
    }

    /// Takes the next completion of a parked wait, with the channel that offered a place for it.
    #[inline]
    pub fn next_parked(&mut self) -> Option<(ChannelId, Completion)> {
        self.output.parked.next_reply()
    }

    /// Returns the number of parked waits whose completion was not collected.
    pub fn parked(&self) -> usize {
        self.output.parked.count()
    }

    /// Sets the maximum number of segments.
    pub fn set_segments_max(&mut self, segments: usize) {
        self.segments.set_maximum(segments);
    }

    /// Sets the maximum number of parked waits of one client.
    pub fn set_waits_per_client(&mut self, waits: usize) {
        self.output.parked.set_limit(waits);
    }

    /// Answers an entry that could not be decoded as a request.
    pub fn refuse(&mut self, channel: ChannelId, request: RequestId, failure: Failure) {
        self.output.counters.malformed += 1;
        self.output.reply(channel, Completion::bare(request, Outcome::Failed(failure)), None);
    }
}
