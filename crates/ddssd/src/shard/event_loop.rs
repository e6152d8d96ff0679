//! The event loop of one shard, which its progress thread runs. Each round has five steps:
//!
//! 1. arrivals: clients that attached and left,
//! 2. requests: a bounded batch of copies from the rings → the engine → actions,
//! 3. network: completions and messages of the fabric → the engine → actions,
//! 4. time: deadlines → the engine → actions,
//! 5. replies become visible; sleeping clients are woken.
//!
//! `executor.rs` holds the other state of the thread and executes the actions. A request that needs no other node is
//! answered before the next request is read.

use super::client_arena::ClientArena;
use super::drain::{Drain, DrainState, RefuseRequests};
use super::executor::ActionExecutor;
use crate::config::config::Config;
use crate::config::quota_table::SharedQuotas;
use crate::control::ControlBridge;
use crate::peers::handshake_worker::{HandshakeCounts, HandshakeWorker};
use crate::peers::links::{LinkChange, Links, ReceivedMessage};
use crate::peers::work_tag::Tag;
use crate::start_error::StartError;
use crate::status::{ClientInfo, Gauges, Recorder};
use crate::storage::area_access::AreaAudiences;
use crate::storage::memory::NodeMemory;
use crate::storage::recovery;
use crate::storage::recovery::RecoveryReport;
use crate::supervisor::CriticalTask;
use ddss_core::limits::MESSAGE_BYTES_MAX;
use ddss_core::status::Counter;
use ddss_core::{ChannelId, ClientId, Failure, Message, Name, NodeId, OWN_AREA, PeerHello, Principal, Shard, Storage};
use ddss_engine::{Engine, EngineConfig, NameState};
use ddss_ipc::{ClientEvent, IdleMode, IpcServer, Session, SharedMemory};
use ddss_runtime::ProgressTask;
use ddss_verbs::{Event, Events, Fabric, PeerId, Trust, WorkError};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// All state that the progress thread owns.
pub(crate) struct EventLoop {
    server: IpcServer,
    executor: ActionExecutor,
    events: Events,
    rounds: u32,
    next_tick: Instant,
    next_connect: Option<Instant>,
    next_gauges: Instant,
    quotas: SharedQuotas,
    pool_bytes: u64,
    file_bytes: u64,
    latency_ns: u64,
    drain_state: DrainState,
    handshakes: HandshakeCounts,
    /// Liveness token of this progress thread.
    liveness: CriticalTask,
}

/// Parts that other threads prepared for the progress thread.
pub(crate) struct EventLoopParts {
    /// Shard that the thread serves.
    pub(crate) shard: Shard,
    pub(crate) server: IpcServer,
    pub(crate) fabric: Box<dyn Fabric>,
    pub(crate) memory: NodeMemory,
    pub(crate) audiences: AreaAudiences,
    pub(crate) recorder: Recorder,
    pub(crate) quotas: SharedQuotas,
    pub(crate) bridge: Option<ControlBridge>,
    pub(crate) drain: Drain,
    /// Only for a node with a key whose fabric cannot verify handshakes itself.
    pub(crate) handshake_worker: Option<HandshakeWorker>,
    pub(crate) handshakes: HandshakeCounts,
    pub(crate) liveness: CriticalTask,
}

/// Creates the engine of a shard, with the limits of the configuration.
fn new_engine(config: &Config, shard: Shard, run: u32, reads_overlap: bool) -> Engine {
    let mut engine = Engine::new(&EngineConfig {
        node: config.node,
        shard,
        pool_bytes: config.pool_bytes,
        peers: config.peers.iter().map(|peer| peer.node).collect(),
        // The low half of a time in nanoseconds: as good as random.
        first_generation: run,
        reads_overlap,
    });
    engine.set_file_bytes(config.file_bytes);
    config.pool_limit.into_iter().for_each(|bytes| engine.set_pool_limit(bytes));
    engine.set_segments_max(config.segments);
    engine.set_waits_per_client(config.waits_per_client);
    engine
}

impl EventLoop {
    /// Requests taken in one round.
    const BATCH: usize = 256;
    /// Polls of the channels in one round.
    const POLLS_PER_ROUND: u32 = 32;
    /// Factor on the time without sleep while clients poll.
    const POLL_SPINS: u32 = 20;
    /// Rounds without work between two clock reads: one read takes as long as such a round.
    const ROUNDS_PER_CLOCK: u32 = 64;
    /// Idle rounds that a round with work counts for at least. Each further event counts as one more.
    const IDLE_ROUNDS_PER_BUSY: u32 = 4;
    /// Interval between two deadline checks.
    const TICK: Duration = Duration::from_millis(1);
    /// Interval between two deadline checks while no deadline is close.
    const TICK_IDLE: Duration = Duration::from_millis(50);

    /// Builds the state of the progress thread, and restores the segments of the last run.
    pub(crate) fn new(config: &Config, parts: EventLoopParts, run: u32) -> Result<Self, StartError> {
        let EventLoopParts {
            shard,
            mut server,
            mut fabric,
            mut memory,
            audiences,
            recorder,
            quotas,
            bridge,
            drain,
            handshake_worker,
            handshakes,
            liveness,
        } = parts;
        let mut register = |memory: &SharedMemory, trust| {
            fabric.register(memory.descriptor(), trust, memory.offset() as u64, memory.len() as u64)
        };
        let scratch_region = register(&memory.scratch, Trust::Sealed)?;
        let mut engine = new_engine(config, shard, run, fabric.capabilities().reads_overlap);
        let found = recovery::restore(&config.memory_folder, &mut memory, &mut engine)?;
        if found.segments > 0 {
            let RecoveryReport { segments, bytes, undone, .. } = found;
            tracing::info!(segments, bytes, undone, "restored the segments of the last daemon");
        }
        quotas.take_changed().into_iter().for_each(|quotas| engine.set_quotas(quotas));
        if let Some(bridge) = &bridge {
            engine.enable_cluster_names();
            if bridge.are_names_compared {
                engine.set_names_compared();
            }
        }
        let hello = PeerHello { node: config.node, run, shards: shard.count() };
        server.publish_load(Instant::now());
        let links = Links::new(fabric, hello, shard.index(), config.key.clone(), handshake_worker);
        let memory = (memory, scratch_region);
        let mut executor = ActionExecutor::new(engine, links, memory, audiences, recorder, bridge, Self::BATCH);
        let began = executor.clock.began();
        executor.register_area(OWN_AREA, Storage::Memory).map_err(StartError::Area)?;
        for (area, (audience, storage)) in found.areas {
            executor.publish_area(area, audience, storage).map_err(StartError::Area)?;
        }
        executor.persist_clock_floor();
        let (events, next_connect) = (Events::new(), Some(began));
        let (next_tick, next_gauges) = (began, began);
        let (pool_bytes, file_bytes) = (config.pool_bytes, config.file_bytes);
        let (rounds, latency_ns, drain_state) = (0, 0, DrainState::new(drain));
        Ok(Self {
            server,
            executor,
            events,
            rounds,
            next_tick,
            next_connect,
            next_gauges,
            quotas,
            pool_bytes,
            file_bytes,
            latency_ns,
            drain_state,
            handshakes,
            liveness,
        })
    }

    /// Executes the engine's actions and publishes the replies.
    fn execute_actions(&mut self) {
        self.executor.execute_actions();
        self.publish_replies();
    }

    fn publish_replies(&mut self) {
        for (channel, entry) in self.executor.replies.drain() {
            self.executor.latency.end_sample(channel, entry[1]);
            self.executor.recorder.complete(channel, &entry);
            self.server.reply(channel, &entry);
        }
        while let Some((channel, completion)) = self.executor.engine.next_parked() {
            self.executor.recorder.complete(ChannelId::parked(channel.client), &completion.encode());
            self.server.reply(channel, &completion.encode());
        }
    }

    // 1. Arrivals.

    fn take_arrivals(&mut self) -> usize {
        let mut taken = 0;
        while let Some(arrival) = self.server.next_event() {
            taken += 1;
            match arrival {
                ClientEvent::Attached(session) => self.attach_client(session),
                ClientEvent::Detached(client) => self.detach_client(client, "left"),
            }
        }
        while let Some(offence) = self.server.next_violation() {
            tracing::warn!(client = offence.client().index, %offence, "cut off a client");
            self.executor.recorder.count(Counter::CutOff);
            self.detach_client(offence.client(), "was cut off");
        }
        taken
    }

    fn attach_client(&mut self, session: Session) {
        let (credentials, seen) = (session.credentials(), ClientInfo::of(&session));
        let adopted = self.server.add_client(session).map_err(|error| error.to_string()).and_then(|client| {
            let memory = self.server.arena(client).cloned().ok_or("its arena is gone")?;
            let (offset, bytes) = (memory.offset() as u64, memory.len() as u64);
            let region = self.executor.links.fabric_mut().register(memory.descriptor(), Trust::Sealed, offset, bytes);
            region.map(|region| ClientArena { client, memory, region }).map_err(|error| {
                self.server.remove_client(client);
                error.to_string()
            })
        });
        match adopted {
            Ok(arena) => {
                let client = arena.client;
                tracing::debug!(%client, pid = credentials.pid, uid = credentials.uid, "attached");
                let identity = Principal { uid: credentials.uid, gid: credentials.gid };
                self.executor.engine.attach(client, identity, arena.memory.len() as u64);
                self.executor.recorder.attach(&seen, self.executor.clock.now().wall_us);
                self.executor.arenas.insert(arena);
            }
            Err(error) => {
                tracing::warn!(pid = credentials.pid, error, "cannot serve a client");
                self.executor.recorder.count(Counter::NotServed);
            }
        }
    }

    /// Detaches a client. The fabric keeps its arena mapped until pending writes into it have ended.
    fn detach_client(&mut self, client: ClientId, reason: &str) {
        self.server.remove_client(client);
        let now = self.executor.clock.now();
        self.executor.engine.detach(now, client);
        self.execute_actions();
        self.executor.recorder.detach(client);
        if let Some(arena) = self.executor.arenas.remove(client) {
            tracing::debug!(%client, reason, "client gone");
            self.executor.links.fabric_mut().deregister(arena.region);
        }
    }

    // 2. Requests.

    fn take_requests(&mut self) -> usize {
        // With no operation pending elsewhere the next event is most likely a request: the rest of a round takes as
        // long as several polls of the channels.
        let polls =
            if self.server.is_busy() && self.executor.engine.pending() == 0 { Self::POLLS_PER_ROUND } else { 1 };
        let taken = (0..polls).map(|_| self.poll_channels()).find(|taken| *taken > 0).unwrap_or(0);
        self.executor.latency.add_calls(taken);
        self.publish_replies();
        taken
    }

    #[inline]
    fn poll_channels(&mut self) -> usize {
        if self.drain_state.is_refusing() {
            return self.server.serve(Self::BATCH, &mut RefuseRequests(&mut self.executor));
        }
        self.server.serve(Self::BATCH, &mut self.executor)
    }

    // 3. Network.

    fn take_events(&mut self) -> usize {
        self.events.clear();
        let taken = self.executor.links.fabric_mut().poll(&mut self.events);
        if taken > 0 {
            self.executor.recorder.mark_event_time();
        }
        if self.events.is_empty() {
            return taken;
        }
        let events = std::mem::take(&mut self.events);
        for event in events.iter() {
            self.handle_event(event);
        }
        self.events = events;
        taken
    }

    fn handle_event(&mut self, event: Event<'_>) {
        let now = self.executor.clock.now();
        tracing::trace!(?event, "fabric");
        let change = match event {
            Event::Done { tag, outcome, .. } => return self.complete_work(tag, outcome),
            Event::Message { peer, bytes, .. } => return self.receive_message(peer, bytes),
            Event::ConnectRequest { peer, address, hello } => {
                self.next_connect = Some(Instant::now());
                self.executor.links.verify_handshake(peer, address, hello);
                None
            }
            Event::Admitted { peer, address } => {
                // An admitted peer has to authenticate before this deadline.
                self.next_connect = Some(Instant::now());
                self.executor.links.handle_admitted(peer, address);
                None
            }
            Event::Connected { peer, hello } => {
                self.executor.links.connected(peer, hello);
                None
            }
            Event::Closed { peer, reason, hello } => {
                self.next_connect = Some(Instant::now());
                self.executor.links.closed(peer, reason, hello)
            }
            _ => None,
        };
        match change {
            Some(LinkChange::Down(node)) => {
                self.executor.recorder.count(Counter::ConnectionsLost);
                self.executor.engine.on_peer_down(now, node);
            }
            None => return,
        }
        self.execute_actions();
    }

    /// Opens and handles a sealed message.
    fn receive_message(&mut self, peer: PeerId, sealed: &[u8]) {
        let mut plain = [0; MESSAGE_BYTES_MAX];
        match self.executor.links.receive(peer, sealed, &mut plain) {
            ReceivedMessage::Message(node, length) => self.handle_message(node, &plain[..length]),
            ReceivedMessage::Connected { node, clock, again } => {
                self.executor.recorder.count(Counter::ConnectionsMade);
                let now = self.executor.clock.now();
                if again {
                    self.executor.recorder.count(Counter::ConnectionsLost);
                    self.executor.engine.on_peer_down(now, node);
                }
                self.executor.engine.on_peer_up(now, node, clock);
                self.execute_actions();
            }
            ReceivedMessage::None => {}
        }
    }

    fn handle_message(&mut self, node: NodeId, bytes: &[u8]) {
        match Message::decode(bytes) {
            Ok((message, clock, tail)) => {
                self.executor.refresh_time();
                self.executor.recorder.count_message(&message);
                self.executor.engine.on_message(self.executor.clock.now(), node, clock, &message, tail);
                self.execute_actions();
            }
            Err(_) => self.executor.links.close_for_violation(node),
        }
    }

    fn complete_work(&mut self, tag: u64, outcome: Result<u64, WorkError>) {
        let failure = outcome.err().map(|_| Failure::NodeDown);
        let executor = &mut self.executor;
        executor.recorder.add(Counter::FabricFailures, failure.is_some().into());
        match Tag::from_bits(tag) {
            Tag::RemoteGet(step) => {
                let Some(result) = executor.inflight_reads.complete_read(step, failure) else { return };
                executor.recorder.count(Counter::RoundTrips);
                let read = result.map(|()| executor.memory.scratch_header(step.index()));
                executor.engine.on_fetched(executor.clock.now(), step, read);
            }
            Tag::StagedPut(step) => match failure {
                Some(failure) => executor.engine.on_staged(step, Err(failure)),
                None => return,
            },
            Tag::ServedGet(served_get) => executor.engine.on_served_get_sent(served_get),
            Tag::Send => return,
        }
        self.execute_actions();
    }

    // 4. Time.

    fn update_time(&mut self, work: usize) {
        // A round with many events takes long: a flood from one peer must not delay deadlines and signs of life.
        let work = u32::try_from(work).unwrap_or(Self::ROUNDS_PER_CLOCK);
        self.rounds += if work > 0 { work.clamp(Self::IDLE_ROUNDS_PER_BUSY, Self::ROUNDS_PER_CLOCK) } else { 1 };
        if self.rounds < Self::ROUNDS_PER_CLOCK {
            return;
        }
        self.rounds = 0;
        let now = Instant::now();
        self.executor.read_time();
        self.server.publish_load(now);
        if self.next_connect.is_some_and(|due| due <= now) {
            self.next_connect = self.executor.links.connect_due(now);
        }
        let pause = self.tick_interval();
        self.next_tick = self.next_tick.min(now + pause);
        if self.next_tick <= now {
            self.next_tick = now + pause;
            self.liveness.check_fault();
            self.quotas.take_changed().into_iter().for_each(|quotas| self.executor.engine.set_quotas(quotas));
            self.executor.tick_background(now);
            self.executor.engine.tick(self.executor.clock.now());
            self.execute_actions();
            if let Some(average_ns) = self.executor.latency.close_period(now) {
                self.latency_ns = average_ns;
            }
            self.publish_status(now);
        }
    }

    /// Returns the time until the engine needs a tick: up to the next deadline, and short enough that the thread shows
    /// signs of life.
    fn tick_interval(&self) -> Duration {
        let left_us = self.executor.engine.next_deadline_us().saturating_sub(self.executor.clock.now().steady_us);
        Duration::from_micros(left_us).clamp(Self::TICK, Self::TICK_IDLE)
    }

    // Status that others read.

    /// Publishes the counters.
    fn publish_counters(&mut self) {
        let ActionExecutor { recorder, engine, links, .. } = &mut self.executor;
        recorder.set_refusals(engine.counters().over_quota + self.quotas.refused());
        recorder.set_sent(links.sent, links.sent_bytes);
        recorder.set_handshakes(self.handshakes.count());
        recorder.flush(engine.counters(), self.server.counts());
    }

    /// Publishes the counters, and from time to time the gauges.
    fn publish_status(&mut self, now: Instant) {
        self.publish_counters();
        if now < self.next_gauges {
            return;
        }
        self.next_gauges = now + Self::TICK_IDLE;
        let ActionExecutor { recorder, engine, links, .. } = &mut self.executor;
        let (segments, pool_bytes_free) = engine.segments();
        let (lock_holders, lock_waiters) = engine.locks();
        let gauges = Gauges {
            segments,
            pool_bytes: self.pool_bytes,
            pool_bytes_free,
            file_bytes: self.file_bytes,
            file_bytes_free: engine.file_bytes_free(),
            under_way: engine.pending(),
            lock_holders,
            lock_waiters,
            parked_waits: engine.parked(),
            replicas: engine.replicas(),
        };
        recorder.flush_gauges(&gauges, self.latency_ns, links.rows());
    }

    /// Returns the names of the segments; with each, true if the directory decides whether this node is its home.
    pub(crate) fn names(&self) -> Vec<(Name, NameState)> {
        self.executor.engine.names()
    }

    /// Listens for other nodes.
    pub(crate) fn listen(fabric: &mut dyn Fabric, address: SocketAddr) -> Result<SocketAddr, StartError> {
        fabric.listen(address).map_err(|source| StartError::Listen { address, source })
    }
}

impl ProgressTask for EventLoop {
    fn poll(&mut self) -> usize {
        self.executor.recorder.count(Counter::Rounds);
        let arrivals = self.take_arrivals();
        if self.drain_state.is_requested() && self.drain_state.advance(&mut self.server, &mut self.executor) {
            self.execute_actions();
        }
        let requests = self.take_requests();
        let events = self.take_events();
        let handshakes = self.executor.links.take_handshake_results();
        if handshakes > 0 {
            // An admitted peer has to authenticate before this deadline.
            self.next_connect = Some(Instant::now());
        }
        let commands = self.executor.poll_control();
        if commands > 0 {
            self.publish_replies();
            if self.executor.take_members_changed() {
                self.next_connect = Some(Instant::now());
            }
        }
        let background_tasks = self.executor.run_background(requests + events);
        if background_tasks > 0 {
            self.publish_replies();
        }
        let work = arrivals + requests + events + handshakes + commands + background_tasks;
        self.update_time(work);
        // Room in a socket is not an event: stay awake while messages wait for it.
        let waits = self.executor.links.flush();
        // 5. Replies became visible as they were written; this wakes sleeping clients.
        self.server.flush();
        work + usize::from(waits)
    }

    /// One-sided reads of other nodes raise no event here, so a thread that serves them must not sleep.
    fn has_served_peers(&self) -> bool {
        self.executor.links.fabric().has_moved_bytes()
    }

    fn before_yield(&mut self) {
        self.server.flush_all();
    }

    fn arm(&mut self) -> bool {
        self.publish_counters();
        let has_commands = || self.executor.bridge().is_some_and(ControlBridge::is_signaled);
        !has_commands() && self.executor.links.fabric_mut().arm() && {
            let can_sleep = self.server.arm();
            // From here on the bridge's descriptor signals new control commands.
            if !can_sleep {
                self.executor.links.fabric_mut().disarm();
            }
            can_sleep
        }
    }

    fn disarm(&mut self) {
        self.server.disarm();
        self.executor.links.fabric_mut().disarm();
        self.executor.read_time();
        // Check due work in the next round: there may be no other round before the next sleep.
        self.rounds = Self::ROUNDS_PER_CLOCK;
    }

    fn with_descriptors(&self, wait: &mut dyn FnMut(&[BorrowedFd<'_>])) {
        let (server, fabric) = (self.server.descriptor(), self.executor.links.fabric().descriptor());
        match self.executor.bridge() {
            Some(bridge) => wait(&[server, fabric, bridge.descriptor()]),
            None => wait(&[server, fabric]),
        }
    }

    /// Polling clients rely on an awake thread. With only sleeping clients there is nothing to wait for, unless
    /// operations of other nodes are pending.
    fn awake_limit(&self, usual: Duration) -> Duration {
        match self.server.idle_mode() {
            IdleMode::Poll => usual * Self::POLL_SPINS,
            IdleMode::Sleep if self.executor.engine.pending() == 0 => Duration::ZERO,
            IdleMode::Sleep | IdleMode::Spin => usual,
        }
    }

    fn park_limit(&self) -> Duration {
        let due = [Some(self.next_tick), self.next_connect, self.executor.links.fabric().next_deadline()];
        let next = due.into_iter().flatten().min().unwrap_or(self.next_tick);
        next.saturating_duration_since(Instant::now()).min(self.tick_interval())
    }

    fn finish(&mut self) {
        self.publish_counters();
        self.executor.links.close_all();
        // One more round sends the goodbyes; a peer that does not take them sees the end of the process.
        let mut events = Events::new();
        self.executor.links.fabric_mut().poll(&mut events);
        if let Err(error) = self.executor.memory.close_files() {
            tracing::error!(%error, "cannot sync all segments in files to the disk");
        }
    }
}
