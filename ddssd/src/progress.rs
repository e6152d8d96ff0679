//! The road through a node, as its progress thread drives it:
//!
//! 1. arrivals: clients that came and went,
//! 2. requests: a bounded batch of copies from the rings → the engine → actions,
//! 3. network: what the fabric has done → the engine → actions,
//! 4. time: deadlines → the engine → actions,
//! 5. replies become visible; who sleeps is woken.
//!
//! Actions are carried out in `perform.rs`.

use crate::config::Config;
use crate::fetches::{Fetches, Tag};
use crate::links::{Change, Links};
use crate::memory::NodeMemory;
use crate::service::StartError;
use ddss_core::engine::{Engine, EngineConfig, Now, StepId};
use ddss_core::limits::{CLIENTS_MAX, NAME_BYTES_MAX};
use ddss_core::{ClientId, Entry, Failure, Identity, LaneId, Message, Operation, PeerHello, Request, Spec};
use ddss_ipc::{Arrival, Session, SharedMemory, Station};
use ddss_runtime::Work;
use ddss_verbs::{Event, Events, Fabric, RegionId, Trust, WorkError};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A client's arena, as this thread and the fabric see it.
#[derive(Debug)]
pub(crate) struct Arena {
    client: ClientId,
    pub(crate) memory: SharedMemory,
    pub(crate) region: RegionId,
}

/// Everything that the progress thread owns.
pub(crate) struct Node {
    pub(crate) station: Station,
    pub(crate) fabric: Box<dyn Fabric>,
    pub(crate) engine: Engine,
    pub(crate) links: Links,
    pub(crate) memory: NodeMemory,
    pub(crate) fetches: Fetches,
    pub(crate) pool_region: RegionId,
    pub(crate) scratch_region: RegionId,
    arenas: Vec<Option<Arena>>,
    requests: Vec<(LaneId, Entry)>,
    events: Events,
    began: Instant,
    /// The wall clock when the steady one began, as of the last tick.
    wall_began_us: u64,
    rounds: u32,
    next_tick: Instant,
    next_connect: Option<Instant>,
}

impl Node {
    /// Requests taken in one round.
    const BATCH: usize = 256;
    /// The clock is read once in so many rounds without work, and with.
    const ROUNDS_PER_CLOCK: u32 = 64;
    const ROUNDS_PER_CLOCK_AT_WORK: u32 = 16;
    /// How often deadlines are looked at.
    const TICK: Duration = Duration::from_millis(1);
    /// How often they are while nothing is under way.
    const TICK_IDLE: Duration = Duration::from_millis(50);

    /// Takes everything into the progress thread's hands.
    pub(crate) fn new(
        config: &Config,
        station: Station,
        mut fabric: Box<dyn Fabric>,
        memory: NodeMemory,
        incarnation: u64,
    ) -> Result<Self, StartError> {
        let mut register = |memory: &SharedMemory, trust| {
            fabric.register(memory.descriptor(), trust, memory.offset() as u64, memory.len() as u64)
        };
        let pool_region = register(&memory.pool, Trust::Vouched)?;
        let scratch_region = register(&memory.scratch, Trust::Sealed)?;
        let staging = memory.staging.as_ref().map(|staging| register(staging, Trust::Sealed)).transpose()?;
        let engine = Engine::new(&EngineConfig {
            node: config.node,
            pool_bytes: config.pool_bytes,
            peers: config.peers.iter().map(|peer| peer.node).collect(),
        });
        let hello = PeerHello { node: config.node, incarnation };
        station.tell_core();
        let now = Instant::now();
        Ok(Self {
            station,
            fabric,
            engine,
            links: Links::new(hello, &config.peers, staging),
            memory,
            fetches: Fetches::new(),
            pool_region,
            scratch_region,
            arenas: std::iter::repeat_with(|| None).take(CLIENTS_MAX).collect(),
            requests: Vec::with_capacity(Self::BATCH),
            events: Events::new(),
            began: now,
            wall_began_us: wall_us(),
            rounds: 0,
            next_tick: now,
            next_connect: Some(now),
        })
    }

    pub(crate) fn now(&self) -> Now {
        self.now_at(Instant::now())
    }

    /// One clock is read for both: reading a second one costs as much as half of the way to the next core.
    fn now_at(&self, now: Instant) -> Now {
        let steady_us = now.duration_since(self.began).as_micros() as u64;
        Now { steady_us, wall_us: self.wall_began_us + steady_us }
    }

    /// The arena of a client that is attached.
    pub(crate) fn arena(&self, client: ClientId) -> Option<&Arena> {
        self.arenas.get(client.index as usize)?.as_ref().filter(|arena| arena.client == client)
    }

    // 1. Arrivals.

    fn take_arrivals(&mut self) -> usize {
        let mut taken = 0;
        while let Some(arrival) = self.station.arrival() {
            taken += 1;
            match arrival {
                Arrival::Attached(session) => self.welcome(session),
                Arrival::Left(client) => self.bid_farewell(client, "left"),
            }
        }
        while let Some(offence) = self.station.offence() {
            let ddss_ipc::Offence::Sequence { lane, .. } = offence else { continue };
            tracing::warn!(client = lane.client.index, %offence, "cut off a client");
            self.bid_farewell(lane.client, "was cut off");
        }
        taken
    }

    fn welcome(&mut self, session: Session) {
        let who = session.credentials();
        let adopted = self.station.adopt(session).map_err(|error| error.to_string()).and_then(|client| {
            let memory = self.station.arena(client).cloned().ok_or("its arena is gone")?;
            let (offset, bytes) = (memory.offset() as u64, memory.len() as u64);
            let region = self.fabric.register(memory.descriptor(), Trust::Sealed, offset, bytes);
            region.map(|region| Arena { client, memory, region }).map_err(|error| {
                self.station.dismiss(client);
                error.to_string()
            })
        });
        match adopted {
            Ok(arena) => {
                let client = arena.client;
                tracing::debug!(%client, pid = who.pid, uid = who.uid, "attached");
                let identity = Identity { uid: who.uid, gid: who.gid };
                self.engine.attach(client, identity, arena.memory.len() as u64);
                self.arenas[client.index as usize] = Some(arena);
            }
            Err(error) => tracing::warn!(pid = who.pid, error, "could not serve a client"),
        }
    }

    /// A client is gone. The fabric keeps its arena mapped until what is under way into it has ended.
    fn bid_farewell(&mut self, client: ClientId, how: &str) {
        self.station.dismiss(client);
        self.engine.detach(client);
        if self.arena(client).is_some()
            && let Some(arena) = self.arenas[client.index as usize].take()
        {
            tracing::debug!(%client, how, "client gone");
            self.fabric.deregister(arena.region);
        }
    }

    // 2. Requests.

    fn take_requests(&mut self) -> usize {
        let mut requests = std::mem::take(&mut self.requests);
        let taken = self.station.poll(Self::BATCH, &mut requests);
        if taken > 0 {
            let now = self.now();
            for (lane, entry) in requests.drain(..) {
                self.take_request(now, lane, &entry);
            }
        }
        self.requests = requests;
        taken
    }

    fn take_request(&mut self, now: Now, lane: LaneId, entry: &Entry) {
        match Request::decode(entry) {
            Ok(request) => {
                let mut text = [0; Spec::ENCODED_BYTES + NAME_BYTES_MAX];
                let length = self.copy_text(lane.client, &request.operation, &mut text);
                self.engine.request(now, lane, &request, &text[..length]);
            }
            Err(refused) => self.engine.refuse(lane, refused.id, refused.failure),
        }
        self.perform(&[]);
    }

    /// Names and specifications are copied out of the arena once, before anybody looks at them.
    fn copy_text(&self, client: ClientId, operation: &Operation, text: &mut [u8]) -> usize {
        let (Operation::Allocate { spec_and_name: range } | Operation::Open { name: range }) = operation else {
            return 0;
        };
        let Some(arena) = self.arena(client) else { return 0 };
        let length = (range.bytes as usize).min(text.len());
        arena.memory.read(range.offset() as usize, &mut text[..length]).map_or(0, |()| length)
    }

    // 3. Network.

    fn take_events(&mut self) -> usize {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let taken = self.fabric.poll(&mut events);
        if taken > 0 {
            let now = self.now();
            for event in events.iter() {
                self.take_event(now, event);
            }
        }
        self.events = events;
        taken
    }

    fn take_event(&mut self, now: Now, event: Event<'_>) {
        tracing::trace!(?event, "fabric");
        let change = match event {
            Event::Done { tag, outcome, .. } => return self.done(now, tag, outcome),
            Event::Message { peer, bytes, .. } => match self.links.node_of(peer) {
                Some(node) => return self.take_message(now, node, bytes),
                None => match Message::decode(bytes) {
                    Ok((message, _)) => self.links.welcomed(peer, &message).or_else(|| {
                        self.fabric.close(peer);
                        None
                    }),
                    Err(_) => {
                        self.fabric.close(peer);
                        None
                    }
                },
            },
            Event::Asked { peer, address, hello } => self.links.asked(self.fabric.as_mut(), peer, address, hello),
            Event::Connected { peer, hello } => {
                self.links.connected(self.fabric.as_mut(), peer, hello);
                None
            }
            Event::Closed { peer, reason, hello } => {
                self.next_connect = Some(Instant::now());
                self.links.closed(peer, reason, hello)
            }
            _ => None,
        };
        match change {
            Some(Change::Up(node)) => self.engine.peer_up(node),
            Some(Change::Down(node)) => self.engine.peer_down(now, node),
            None => return,
        }
        self.perform(&[]);
    }

    fn take_message(&mut self, now: Now, node: ddss_core::NodeId, bytes: &[u8]) {
        match Message::decode(bytes) {
            Ok((message, tail)) => {
                self.engine.message(now, node, &message);
                self.perform(tail);
            }
            Err(_) => self.links.cut(self.fabric.as_mut(), node),
        }
    }

    fn done(&mut self, now: Now, tag: u64, outcome: Result<u64, WorkError>) {
        let failure = outcome.err().map(|_| Failure::NodeDown);
        match Tag::from_bits(tag) {
            Tag::Fetch(step) => {
                let Some(result) = self.fetches.ended(step, failure) else { return };
                let read = result.map(|()| self.memory.fetched(step.index()));
                self.engine.fetched(now, step, read);
            }
            Tag::Stage(step) => match failure {
                Some(failure) => self.engine.staged(step, Err(failure)),
                None => return,
            },
            Tag::Send => return,
        }
        self.perform(&[]);
    }

    // 4. Time.

    fn keep_time(&mut self, worked: bool) {
        self.rounds += 1;
        if self.rounds < if worked { Self::ROUNDS_PER_CLOCK_AT_WORK } else { Self::ROUNDS_PER_CLOCK } {
            return;
        }
        self.rounds = 0;
        let now = Instant::now();
        if self.next_connect.is_some_and(|due| due <= now) {
            self.next_connect = self.links.connect_due(self.fabric.as_mut(), now);
        }
        if self.next_tick <= now {
            let pause = if self.engine.pending() > 0 { Self::TICK } else { Self::TICK_IDLE };
            self.next_tick = now + pause;
            self.wall_began_us = wall_us().saturating_sub(now.duration_since(self.began).as_micros() as u64);
            let time = self.now_at(now);
            self.engine.tick(time);
            self.perform(&[]);
        }
    }

    /// The step that an operation is noted under could not go out.
    pub(crate) fn refuse_step(&mut self, step: StepId, failure: Failure) {
        self.engine.refused(step, failure);
    }

    /// Where other nodes reach this one.
    pub(crate) fn listen(fabric: &mut dyn Fabric, address: SocketAddr) -> Result<SocketAddr, StartError> {
        fabric.listen(address).map_err(|source| StartError::Listen { address, source })
    }
}

fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

impl Work for Node {
    fn poll(&mut self) -> usize {
        let arrivals = self.take_arrivals();
        let requests = self.take_requests();
        let events = self.take_events();
        let work = arrivals + requests + events;
        self.keep_time(work > 0);
        // Room in a socket is not an event: whoever has messages waiting stays awake for it.
        let waits = self.links.flush(self.fabric.as_mut());
        // 5. Replies were visible as they were written; this wakes who sleeps.
        self.station.flush();
        work + usize::from(waits)
    }

    fn arm(&mut self) -> bool {
        self.fabric.arm() && {
            let rests = self.station.arm();
            if !rests {
                self.fabric.disarm();
            }
            rests
        }
    }

    fn disarm(&mut self) {
        self.station.disarm();
        self.fabric.disarm();
    }

    fn with_descriptors(&self, wait: &mut dyn FnMut(&[BorrowedFd<'_>])) {
        wait(&[self.station.descriptor(), self.fabric.descriptor().as_fd()]);
    }

    fn nap(&self) -> Duration {
        let due = [Some(self.next_tick), self.next_connect, self.fabric.next_deadline()];
        let next = due.into_iter().flatten().min().unwrap_or(self.next_tick);
        next.saturating_duration_since(Instant::now())
    }

    fn finish(&mut self) {
        self.links.close_all(self.fabric.as_mut());
        // The goodbyes go out with one more round; who does not take them will see the end of the process.
        let mut events = Events::new();
        self.fabric.poll(&mut events);
    }
}
