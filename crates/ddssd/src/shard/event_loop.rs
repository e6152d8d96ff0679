//! The road through a node, as its progress thread drives it:
//!
//! 1. arrivals: clients that came and went,
//! 2. requests: a bounded batch of copies from the rings → the engine → actions,
//! 3. network: what the fabric has done → the engine → actions,
//! 4. time: deadlines → the engine → actions,
//! 5. replies become visible; who sleeps is woken.
//!
//! What the thread holds besides the rings, and how it carries actions out, is in `executor.rs`. The answer to a
//! request that needs nobody else goes out before the next request is looked at.

use super::background::BackgroundTasks;
use super::drain::{Drain, DrainState, Refusing};
use super::executor::{ActionExecutor, ClientArena};
use super::inflight_reads::{InflightReads, Tag};
use super::latency_estimate::LatencyEstimate;
use crate::config::config::Config;
use crate::config::quotas::SharedQuotas;
use crate::control::ControlBridge;
use crate::node::StartError;
use crate::peers::handshake_worker::{HandshakeCounts, HandshakeWorker};
use crate::peers::links::{LinkChange, Links, ReceivedMessage};
use crate::status::{ClientSeen, Gauges, Recorder};
use crate::storage::area_access::AreaAudiences;
use crate::storage::memory::NodeMemory;
use crate::storage::recovery;
use crate::storage::recovery::Found;
use crate::supervisor::CriticalTask;
use ddss_core::engine::{Engine, EngineConfig, OWN_AREA};
use ddss_core::limits::{CLIENTS_MAX, MESSAGE_BYTES_MAX};
use ddss_core::status::Counter;
use ddss_core::{ClientId, Failure, Message, Name, NodeId, PeerHello, Principal, Shard, Storage};
use ddss_ipc::{ClientEvent, IdleMode, IpcServer, Session, SharedMemory};
use ddss_runtime::{ProgressTask, YieldTo};
use ddss_verbs::{Event, Events, Fabric, PeerId, Trust, WorkError};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Everything that the progress thread owns.
pub(crate) struct EventLoop {
    station: IpcServer,
    hands: ActionExecutor,
    events: Events,
    rounds: u32,
    next_tick: Instant,
    next_connect: Option<Instant>,
    /// A client that yields on this core has an answer, and has not been let in for it.
    owes_core: bool,
    next_gauges: Instant,
    quotas: SharedQuotas,
    pool_bytes: u64,
    file_bytes: u64,
    latency_ns: u64,
    leaving: DrainState,
    judged: HandshakeCounts,
    /// What is said of those who were cut off, or not served.
    vital: CriticalTask,
}

/// What others have made for the progress thread.
pub(crate) struct EventLoopParts {
    /// Which of the daemon's planes it is.
    pub(crate) plane: Shard,
    pub(crate) station: IpcServer,
    pub(crate) fabric: Box<dyn Fabric>,
    pub(crate) memory: NodeMemory,
    pub(crate) audiences: AreaAudiences,
    pub(crate) tally: Recorder,
    pub(crate) quotas: SharedQuotas,
    pub(crate) desk: Option<ControlBridge>,
    pub(crate) drain: Drain,
    /// Of a node that has a key.
    pub(crate) doorman: Option<HandshakeWorker>,
    pub(crate) judged: HandshakeCounts,
    pub(crate) vital: CriticalTask,
}

impl EventLoop {
    /// Requests taken in one round.
    const BATCH: usize = 256;
    /// Looks at the lanes in one round.
    const SWEEPS: u32 = 32;
    /// How many times as long the thread spins for clients that count on it.
    const POLL_SPINS: u32 = 20;
    /// The clock is read once in so many rounds without work: reading it takes as long as such a round.
    const ROUNDS_PER_CLOCK: u32 = 64;
    /// A round with work counts for so many without.
    const IDLE_ROUNDS_PER_BUSY: u32 = 4;
    /// How often deadlines are looked at.
    const TICK: Duration = Duration::from_millis(1);
    /// How often they are while none is near.
    const TICK_IDLE: Duration = Duration::from_millis(50);

    /// Takes everything into the progress thread's hands.
    pub(crate) fn new(config: &Config, parts: EventLoopParts, run: u32) -> Result<Self, StartError> {
        let EventLoopParts {
            plane,
            station,
            mut fabric,
            mut memory,
            audiences,
            tally,
            quotas,
            desk,
            drain,
            doorman,
            judged,
            vital,
        } = parts;
        let mut register = |memory: &SharedMemory, trust| {
            fabric.register(memory.descriptor(), trust, memory.offset() as u64, memory.len() as u64)
        };
        let scratch_region = register(&memory.scratch, Trust::Sealed)?;
        let mut engine = Engine::new(&EngineConfig {
            node: config.node,
            plane,
            pool_bytes: config.pool_bytes,
            peers: config.peers.iter().map(|peer| peer.node).collect(),
            // The low half of a time in nanoseconds: as good as random.
            first_generation: run,
            reads_overlap: fabric.capabilities().reads_overlap,
        });
        engine.set_file_bytes(config.file_bytes);
        let found = recovery::restore(&config.memory_folder, &mut memory, &mut engine)?;
        if found.segments > 0 {
            let Found { segments, bytes, undone, .. } = found;
            tracing::info!(segments, bytes, undone, "found what the last daemon left");
        }
        quotas.changed().into_iter().for_each(|quotas| engine.set_quotas(quotas));
        if desk.is_some() {
            engine.enable_cluster_names();
        }
        let hello = PeerHello { node: config.node, run, planes: plane.count() };
        station.publish_core();
        let began = Instant::now();
        let mut hands = ActionExecutor {
            fabric,
            engine,
            links: Links::new(hello, plane.index(), config.key.clone(), doorman),
            memory,
            chores: BackgroundTasks::default(),
            fetches: InflightReads::new(),
            area_regions: Vec::new(),
            audiences,
            scratch_region,
            arenas: std::iter::repeat_with(|| None).take(CLIENTS_MAX).collect(),
            replies: Vec::with_capacity(Self::BATCH),
            pulse: LatencyEstimate::default(),
            tally,
            began,
            desk,
            members_changed: false,
            has_company: false,
            now: ActionExecutor::read_clocks(began),
        };
        hands.register_area(OWN_AREA, Storage::Memory).map_err(StartError::Area)?;
        for (area, (audience, storage)) in found.areas {
            hands.know_area(area, audience, storage).map_err(StartError::Area)?;
        }
        hands.keep_floor();
        let (events, next_connect) = (Events::new(), Some(began));
        let (next_tick, next_gauges) = (began, began);
        let (pool_bytes, file_bytes) = (config.pool_bytes, config.file_bytes);
        let (rounds, latency_ns, leaving) = (0, 0, DrainState::new(drain));
        Ok(Self {
            station,
            hands,
            events,
            rounds,
            next_tick,
            next_connect,
            owes_core: false,
            next_gauges,
            quotas,
            pool_bytes,
            file_bytes,
            latency_ns,
            leaving,
            judged,
            vital,
        })
    }

    /// Does what the engine has decided, and makes its replies visible.
    fn perform(&mut self) {
        self.hands.perform();
        self.publish();
    }

    fn publish(&mut self) {
        for (lane, entry) in self.hands.replies.drain(..) {
            self.hands.pulse.ended(lane, entry[1]);
            self.hands.tally.landed(lane, &entry);
            self.station.reply(lane, &entry);
        }
    }

    // 1. Arrivals.

    fn take_arrivals(&mut self) -> usize {
        let mut taken = 0;
        while let Some(arrival) = self.station.next_event() {
            taken += 1;
            match arrival {
                ClientEvent::Attached(session) => self.welcome(session),
                ClientEvent::Detached(client) => self.bid_farewell(client, "left"),
            }
        }
        while let Some(offence) = self.station.next_violation() {
            tracing::warn!(client = offence.client().index, %offence, "cut off a client");
            self.hands.tally.count(Counter::CutOff);
            self.bid_farewell(offence.client(), "was cut off");
        }
        taken
    }

    fn welcome(&mut self, session: Session) {
        let (who, seen) = (session.credentials(), ClientSeen::of(&session));
        let adopted = self.station.add_client(session).map_err(|error| error.to_string()).and_then(|client| {
            let memory = self.station.arena(client).cloned().ok_or("its arena is gone")?;
            let (offset, bytes) = (memory.offset() as u64, memory.len() as u64);
            let region = self.hands.fabric.register(memory.descriptor(), Trust::Sealed, offset, bytes);
            region.map(|region| ClientArena { client, memory, region }).map_err(|error| {
                self.station.remove_client(client);
                error.to_string()
            })
        });
        match adopted {
            Ok(arena) => {
                let client = arena.client;
                tracing::debug!(%client, pid = who.pid, uid = who.uid, "attached");
                let identity = Principal { uid: who.uid, gid: who.gid };
                self.hands.engine.attach(client, identity, arena.memory.len() as u64);
                self.hands.tally.attached(&seen, self.hands.now.wall_us);
                self.hands.arenas[client.index as usize] = Some(arena);
            }
            Err(error) => {
                tracing::warn!(pid = who.pid, error, "could not serve a client");
                self.hands.tally.count(Counter::NotServed);
            }
        }
    }

    /// A client is gone. The fabric keeps its arena mapped until what is under way into it has ended.
    fn bid_farewell(&mut self, client: ClientId, how: &str) {
        self.station.remove_client(client);
        let now = self.hands.now;
        self.hands.engine.detach(now, client);
        self.perform();
        self.hands.tally.gone(client);
        if self.hands.arena(client).is_some()
            && let Some(arena) = self.hands.arenas[client.index as usize].take()
        {
            tracing::debug!(%client, how, "client gone");
            self.hands.fabric.deregister(arena.region);
        }
    }

    // 2. Requests.

    fn take_requests(&mut self) -> usize {
        // With nothing under way elsewhere the next thing to come is most likely a request: the rest of a round takes
        // as long as several looks at the lanes.
        let sweeps = if self.station.is_busy() && self.hands.engine.pending() == 0 { Self::SWEEPS } else { 1 };
        let taken = (0..sweeps).map(|_| self.sweep()).find(|taken| *taken > 0).unwrap_or(0);
        self.hands.pulse.taken(taken);
        self.publish();
        taken
    }

    #[inline]
    fn sweep(&mut self) -> usize {
        if self.leaving.refuses() {
            return self.station.serve(Self::BATCH, &mut Refusing(&mut self.hands));
        }
        self.station.serve(Self::BATCH, &mut self.hands)
    }

    // 3. Network.

    fn take_events(&mut self) -> usize {
        self.events.clear();
        let taken = self.hands.fabric.poll(&mut self.events);
        if taken > 0 {
            self.hands.tally.notice();
        }
        if self.events.is_empty() {
            return taken;
        }
        let events = std::mem::take(&mut self.events);
        for event in events.iter() {
            self.take_event(event);
        }
        self.events = events;
        taken
    }

    fn take_event(&mut self, event: Event<'_>) {
        let now = self.hands.now;
        tracing::trace!(?event, "fabric");
        let change = match event {
            Event::Done { tag, outcome, .. } => return self.done(tag, outcome),
            Event::Message { peer, bytes, .. } => return self.hear(peer, bytes),
            Event::ConnectRequest { peer, address, hello } => {
                self.next_connect = Some(Instant::now());
                self.hands.links.asked(self.hands.fabric.as_mut(), peer, address, hello);
                None
            }
            Event::Admitted { peer, address } => {
                // Whoever was let in has to prove himself by then.
                self.next_connect = Some(Instant::now());
                self.hands.links.admitted(self.hands.fabric.as_mut(), peer, address);
                None
            }
            Event::Connected { peer, hello } => {
                self.hands.links.connected(self.hands.fabric.as_mut(), peer, hello);
                None
            }
            Event::Closed { peer, reason, hello } => {
                self.next_connect = Some(Instant::now());
                self.hands.links.closed(peer, reason, hello)
            }
            _ => None,
        };
        match change {
            Some(LinkChange::Down(node)) => {
                self.hands.tally.count(Counter::ConnectionsLost);
                self.hands.engine.peer_down(now, node);
            }
            None => return,
        }
        self.perform();
    }

    /// A message, still sealed.
    fn hear(&mut self, peer: PeerId, sealed: &[u8]) {
        let mut plain = [0; MESSAGE_BYTES_MAX];
        match self.hands.links.hear(self.hands.fabric.as_mut(), peer, sealed, &mut plain) {
            ReceivedMessage::Said(node, length) => self.take_message(node, &plain[..length]),
            ReceivedMessage::Met { node, again } => {
                self.hands.tally.count(Counter::ConnectionsMade);
                if again {
                    self.hands.tally.count(Counter::ConnectionsLost);
                    self.hands.engine.peer_down(self.hands.now, node);
                }
                self.hands.engine.peer_up(node);
                self.perform();
            }
            ReceivedMessage::Nothing => {}
        }
    }

    fn take_message(&mut self, node: NodeId, bytes: &[u8]) {
        match Message::decode(bytes) {
            Ok((message, clock, tail)) => {
                self.hands.see_time();
                self.hands.tally.heard(&message);
                self.hands.engine.message(self.hands.now, node, clock, &message, tail);
                self.perform();
            }
            Err(_) => self.hands.links.cut(self.hands.fabric.as_mut(), node),
        }
    }

    fn done(&mut self, tag: u64, outcome: Result<u64, WorkError>) {
        let failure = outcome.err().map(|_| Failure::NodeDown);
        let hands = &mut self.hands;
        hands.tally.add(Counter::FabricFailures, failure.is_some().into());
        match Tag::from_bits(tag) {
            Tag::Fetch(step) => {
                let Some(result) = hands.fetches.ended(step, failure) else { return };
                hands.tally.count(Counter::RoundTrips);
                let read = result.map(|()| hands.memory.fetched(step.index()));
                hands.engine.fetched(hands.now, step, read);
            }
            Tag::Stage(step) => match failure {
                Some(failure) => hands.engine.staged(step, Err(failure)),
                None => return,
            },
            Tag::Hand(hand) => hands.engine.served_get_sent(hand),
            Tag::Send => return,
        }
        self.perform();
    }

    // 4. Time.

    fn keep_time(&mut self, worked: bool) {
        self.rounds += if worked { Self::IDLE_ROUNDS_PER_BUSY } else { 1 };
        if self.rounds < Self::ROUNDS_PER_CLOCK {
            return;
        }
        self.rounds = 0;
        let now = Instant::now();
        self.hands.read_time();
        if self.next_connect.is_some_and(|due| due <= now) {
            self.next_connect = self.hands.links.connect_due(self.hands.fabric.as_mut(), now);
        }
        let pause = self.pause();
        self.next_tick = self.next_tick.min(now + pause);
        if self.next_tick <= now {
            self.next_tick = now + pause;
            self.vital.look();
            self.quotas.changed().into_iter().for_each(|quotas| self.hands.engine.set_quotas(quotas));
            self.hands.engine.tick(self.hands.now);
            self.perform();
            if let Some(average_ns) = self.hands.pulse.beat(now) {
                self.latency_ns = average_ns;
                self.station.publish_latency_ns(average_ns);
            }
            self.tell(now);
        }
    }

    /// How long the engine need not be told the time: until the next deadline, and never so long that others would take this
    /// thread for dead.
    fn pause(&self) -> Duration {
        let left_us = self.hands.engine.next_deadline_us().saturating_sub(self.hands.now.steady_us);
        Duration::from_micros(left_us).clamp(Self::TICK, Self::TICK_IDLE)
    }

    // What others see of it.

    /// Writes down what happened so far.
    fn tell_counts(&mut self) {
        let ActionExecutor { tally, engine, links, .. } = &mut self.hands;
        tally.refused(engine.counters().over_quota + self.quotas.refused());
        tally.sent(links.sent, links.sent_bytes);
        tally.asked(self.judged.count());
        tally.flush(engine.counters(), self.station.counts());
    }

    /// The same, and from time to time what has to be looked up.
    fn tell(&mut self, now: Instant) {
        self.tell_counts();
        if now < self.next_gauges {
            return;
        }
        self.next_gauges = now + Self::TICK_IDLE;
        let ActionExecutor { tally, engine, links, .. } = &mut self.hands;
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
        };
        tally.flush_gauges(&gauges, self.latency_ns, links.rows());
    }

    /// The names of the segments that it has; with each, whether it was first at home elsewhere.
    pub(crate) fn names(&self) -> Vec<(Name, bool)> {
        self.hands.engine.names()
    }

    /// Where other nodes reach this one.
    pub(crate) fn listen(fabric: &mut dyn Fabric, address: SocketAddr) -> Result<SocketAddr, StartError> {
        fabric.listen(address).map_err(|source| StartError::Listen { address, source })
    }
}

impl ProgressTask for EventLoop {
    fn poll(&mut self) -> usize {
        self.hands.tally.count(Counter::Rounds);
        let arrivals = self.take_arrivals();
        if self.leaving.is_asked() && self.leaving.go_on(&mut self.station, &mut self.hands) {
            self.perform();
        }
        let requests = self.take_requests();
        let events = self.take_events();
        let met = self.hands.links.meet(self.hands.fabric.as_mut());
        if met > 0 {
            // Whoever was let in has to prove himself by then.
            self.next_connect = Some(Instant::now());
        }
        let told = self.hands.hear_control();
        if told > 0 {
            self.publish();
            if std::mem::take(&mut self.hands.members_changed) {
                self.next_connect = Some(Instant::now());
            }
        }
        let chores = self.hands.do_chores(requests + events);
        if chores > 0 {
            self.publish();
        }
        let work = arrivals + requests + events + met + told + chores;
        self.keep_time(work > 0);
        // Room in a socket is not an event: whoever has messages waiting stays awake for it.
        let waits = self.hands.links.flush(self.hands.fabric.as_mut());
        // 5. Replies were visible as they were written; this wakes who sleeps.
        self.station.flush();
        work + usize::from(waits)
    }

    /// Who answers other nodes' reads hears nothing of it: the next one would find it asleep.
    fn has_served_peers(&self) -> bool {
        self.hands.fabric.has_moved_bytes()
    }

    fn has_computing_client(&mut self) -> bool {
        std::mem::take(&mut self.hands.has_company)
    }

    /// Who waits for several answers takes more at once if they are out when he is let in; and others are served first.
    fn should_yield_core(&mut self, idle: bool) -> bool {
        self.owes_core |= self.station.take_yield_request();
        self.owes_core
            && (idle || self.hands.engine.pending() == 0 && self.station.has_one_active_channel())
            && std::mem::take(&mut self.owes_core)
    }

    fn last_yielded_to(&mut self) -> YieldTo {
        let woken = self.station.take_wake_flag();
        match self.station.has_same_core_waiter() {
            _ if woken && self.station.has_few_active_channels() => YieldTo::Woken,
            true => YieldTo::Waiter,
            false => YieldTo::Unknown,
        }
    }

    fn set_core_uncontended(&mut self, uncontended: bool) {
        self.station.publish_core_exclusive(uncontended);
    }

    fn arm(&mut self) -> bool {
        self.tell_counts();
        let is_told = || self.hands.desk.as_ref().is_some_and(ControlBridge::is_rung);
        !is_told() && self.hands.fabric.arm() && {
            let rests = self.station.arm();
            // What is told from now on can be read from the desk's descriptor.
            if !rests {
                self.hands.fabric.disarm();
            }
            rests
        }
    }

    fn disarm(&mut self) {
        self.station.disarm();
        self.hands.fabric.disarm();
        self.hands.read_time();
        // Whatever was due meanwhile is looked at in the next round: there may be no other before the next sleep.
        self.rounds = Self::ROUNDS_PER_CLOCK;
    }

    fn with_descriptors(&self, wait: &mut dyn FnMut(&[BorrowedFd<'_>])) {
        let (station, fabric) = (self.station.descriptor(), self.hands.fabric.descriptor());
        match &self.hands.desk {
            Some(desk) => wait(&[station, fabric, desk.descriptor()]),
            None => wait(&[station, fabric]),
        }
    }

    /// Clients that poll count on a thread that does; with those only that sleep in the kernel there is nothing to spin
    /// for, unless other nodes are at work here.
    fn spin_limit(&self, usual: Duration) -> Duration {
        match self.station.idle_mode() {
            IdleMode::Poll => usual * Self::POLL_SPINS,
            IdleMode::Sleep if self.hands.engine.pending() == 0 => Duration::ZERO,
            IdleMode::Sleep | IdleMode::Spin => usual,
        }
    }

    fn park_limit(&self) -> Duration {
        let due = [Some(self.next_tick), self.next_connect, self.hands.fabric.next_deadline()];
        let next = due.into_iter().flatten().min().unwrap_or(self.next_tick);
        next.saturating_duration_since(Instant::now()).min(self.pause())
    }

    fn finish(&mut self) {
        self.tell_counts();
        self.hands.links.close_all(self.hands.fabric.as_mut());
        // The goodbyes go out with one more round; who does not take them will see the end of the process.
        let mut events = Events::new();
        self.hands.fabric.poll(&mut events);
        if let Err(error) = self.hands.memory.close_files() {
            tracing::error!(%error, "segments in files may not be on the disk as a whole");
        }
    }
}
