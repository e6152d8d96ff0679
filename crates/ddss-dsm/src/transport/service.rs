//! Task of the service thread.

use super::areas::{Layout, SHARED};
use super::command::{Answer, Call, Caller, Command, OWN_INDICES, OwnEnd, Reply};
use super::handover::{self, PeerWindows};
use super::post_queue::{Post, PostQueue, StagingSlots};
use super::rank_memory::RankMemory;
use crate::check::Trace;
use crate::error::SpaceError;
use crate::fault::Faults;
use crate::report::Reporter;
use ddss_dsm_core::{Action, Area, CallId, Config, Engine, Event, Failure, Output, Rank, Request, Tag};
use ddss_group::{Context, Driver, Group, Happened, Member, Membership, Mesh, Wake};
use ddss_runtime::ProgressTask;
use ddss_verbs::{Fabric, LocalRange, PeerId, PostErrorKind, RegionId, RemoteRange, Rights, Trust, Work};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// First byte of a message to a peer.
const HANDOVER: u8 = 0;
const ENGINE: u8 = 1;

/// Barrier of leaving.
const LEAVE_BARRIER: u32 = OWN_INDICES + 1;

/// Tag bits of work that is not the engine's.
const WRITE: u64 = 1 << 62;
const WRITE_PAGE: u64 = 1 << 61;

/// Parts of which the service thread is made.
pub(crate) struct ServiceConfig {
    pub(crate) engine: Config,
    pub(crate) memory: RankMemory,
    pub(crate) context: Context,
    pub(crate) lease: Duration,
    pub(crate) membership: Membership,
    pub(crate) fabric: Box<dyn Fabric>,
    pub(crate) commands: Receiver<Command>,
    /// Readable when there are commands.
    pub(crate) wake: Arc<Wake>,
    /// Trace of this rank, if races are looked for.
    pub(crate) trace: Option<Arc<Trace>>,
    /// Receives the reason of this rank for the end of the space.
    pub(crate) own_end: Arc<OnceLock<OwnEnd>>,
    /// Page faults of the application, if it uses them.
    pub(crate) faults: Option<Faults>,
}

/// Connection to another rank.
#[derive(Debug, Default)]
struct Peer {
    windows: Option<PeerWindows>,
    queue: PostQueue,
}

/// Task of the service thread.
pub(crate) struct Service {
    config: Config,
    engine: Engine,
    memory: RankMemory,
    driver: Driver,
    /// Region of the rank's file.
    region: RegionId,
    peers: Vec<Peer>,
    staging: StagingSlots,
    commands: Receiver<Command>,
    wake: Arc<Wake>,
    /// Calls that the engine works on.
    waiting: HashMap<CallId, Caller>,
    next_call: u64,
    /// Results of calls that failed with the space, and the time until which they may wait.
    failed_calls: Vec<(Caller, Answer)>,
    failed_calls_due: Option<Duration>,
    /// Calls that wait until all ranks are connected.
    held: Vec<Command>,
    is_ready: bool,
    /// True once the end of the space has been passed on.
    has_ended: bool,
    /// True once this rank leaves: others may leave too.
    is_leaving: bool,
    happened: Vec<Happened>,
    reporter: Reporter,
    trace: Option<Arc<Trace>>,
    own_end: Arc<OnceLock<OwnEnd>>,
    faults: Option<Faults>,
    out: Output,
}

impl Service {
    /// Longest time in which the peers are told why the space has ended, before the application is.
    const FAREWELL_MAX: Duration = Duration::from_millis(100);

    pub(crate) fn new(config: ServiceConfig) -> Result<Self, SpaceError> {
        let ServiceConfig { commands, wake, trace, own_end, faults, .. } = config;
        let ServiceConfig { engine: config, memory, context, lease, membership, mut fabric, .. } = config;
        let region = fabric.register(memory.file.descriptor(), Trust::Exclusive, 0, memory.layout.bytes)?;
        let reporter = Reporter::new(membership.group_state(), membership.ours().member.0);
        let group = Group::new(membership, fabric.as_mut(), context, lease).map_err(SpaceError::System)?;
        let mut engine = Engine::new(config)?;
        if trace.is_some() {
            engine.record_accesses();
        }
        Ok(Self {
            engine,
            memory,
            driver: Driver::new(fabric, group, wake.clone()),
            region,
            peers: (0..config.ranks).map(|_| Peer::default()).collect(),
            staging: StagingSlots::new(Layout::STAGING_SLOTS),
            commands,
            wake,
            waiting: HashMap::new(),
            next_call: 0,
            failed_calls: Vec::new(),
            failed_calls_due: None,
            held: Vec::new(),
            is_ready: config.ranks == 1,
            has_ended: false,
            is_leaving: false,
            happened: Vec::new(),
            reporter,
            trace,
            own_end,
            faults,
            out: Output::default(),
            config,
        })
    }

    fn now(&self) -> Duration {
        self.driver.now()
    }

    /// Hands an event to the engine, and executes what it decides.
    fn handle(&mut self, event: Event<'_>) {
        let now_us = self.now().as_micros() as u64;
        let mut out = std::mem::take(&mut self.out);
        self.engine.handle(event, now_us, &mut self.memory, &mut out);
        if self.engine.failure().is_some() {
            // Before the caller learns of it: no view is made behind a failed call.
            self.memory.frames.end();
        }
        for action in out.actions() {
            let (to, post) = match action {
                Action::Send { to, message } => (*to, Post::Send(out.payload(message).to_vec())),
                Action::Write { to, offset, bytes } => {
                    (*to, Post::Write { offset: *offset, bytes: out.payload(bytes).to_vec() })
                }
                Action::WritePage { to, page, slot } => (*to, Post::WritePage { page: *page, slot: *slot }),
                Action::Read { from, tag, area, offset, bytes, into } => {
                    let (tag, area, offset, bytes, into) = (*tag, *area, *offset, *bytes, *into);
                    (*from, Post::Read { tag, area, offset, bytes, into })
                }
                Action::Swap { at, tag, offset, word } => (*at, Post::Swap { tag: *tag, offset: *offset, word: *word }),
                Action::Complete { call, result } => {
                    if let Some(caller) = self.waiting.remove(call) {
                        self.complete(caller, result.map(Reply::Value));
                    }
                    continue;
                }
            };
            self.peers[to.index()].queue.0.push_back(post);
        }
        out.clear();
        self.out = out;
        self.write_trace();
    }

    /// Writes the intervals that were closed into the trace. A trace that cannot be written ends the space: it would hide races.
    fn write_trace(&mut self) {
        let Some(trace) = &self.trace else { return };
        if let Err(error) = self.engine.take_accesses().iter().try_for_each(|accesses| trace.write_accesses(accesses)) {
            self.trace = None;
            self.end_here(OwnEnd::Untraced(error.kind()));
        }
    }

    /// Answers a call. The application may end after a failed one: the peers learn the reason for the end of the space before, or
    /// they would take this rank for the first one that was lost.
    fn complete(&mut self, caller: Caller, result: Answer) {
        if self.engine.failure().is_some() {
            let due = self.now() + Self::FAREWELL_MAX;
            self.failed_calls.push((caller, result));
            self.failed_calls_due.get_or_insert(due);
        } else {
            self.answer(caller, result);
        }
    }

    fn answer(&mut self, caller: Caller, result: Answer) {
        match (caller, &mut self.faults) {
            // The application may be gone.
            (Caller::Application(reply), _) => drop(reply.send(result)),
            (Caller::Fault(fault), Some(faults)) => faults.answer(&fault, result.err()),
            (Caller::Fault(_), None) => {}
        }
    }

    /// Answers the calls that failed, once nothing is left to tell the peers. Returns true if calls wait.
    fn complete_failed(&mut self, posted: usize) -> bool {
        let Some(due) = self.failed_calls_due else { return false };
        if (posted == 0 && self.is_idle()) || self.now() >= due {
            self.failed_calls_due = None;
            for (caller, result) in std::mem::take(&mut self.failed_calls) {
                self.answer(caller, result);
            }
        }
        true
    }

    fn call(&mut self, request: Request, caller: Caller) {
        let call = CallId(self.next_call);
        self.next_call += 1;
        self.waiting.insert(call, caller);
        self.handle(Event::Call { call, request });
    }

    /// Starts the calls of the application. Returns their number.
    fn take_commands(&mut self) -> usize {
        let mut taken = 0;
        while let Ok(command) = self.commands.try_recv() {
            taken += 1;
            self.start(command);
        }
        taken + self.take_faults()
    }

    /// Starts to open the pages at which threads wait. Returns their number.
    fn take_faults(&mut self) -> usize {
        let now = self.now();
        let Some(faults) = &mut self.faults else { return 0 };
        let (gives_up, taken) = (faults.are_late(now), faults.take(now));
        let count = taken.len();
        for (fault, request) in taken {
            self.call(request, Caller::Fault(fault));
        }
        if gives_up && self.engine.failure().is_none() {
            self.call(Request::GiveUp, Caller::Application(channel().0));
        }
        count
    }

    fn start(&mut self, command: Command) {
        let (failure, ends) = (self.engine.failure(), matches!(command.call, Call::Engine(Request::GiveUp)));
        if !self.is_ready && failure.is_none() && !ends {
            return self.held.push(command);
        }
        let Command { call, reply } = command;
        match call {
            Call::Engine(request) => self.call(request, Caller::Application(reply)),
            Call::Ready => drop(reply.send(failure.map_or(Ok(Reply::Value(0)), Err))),
            Call::Run(rank) => {
                let process = self.driver.incarnation(Member(rank.index() as u16));
                let _ = reply.send(Ok(Reply::Value(process.run.into())));
            }
            Call::Reads(reads) => self.engine.add_reads(reads),
            Call::AwaitLeave => {
                self.is_leaving = true;
                self.call(Request::Barrier(LEAVE_BARRIER), Caller::Application(reply));
            }
            Call::Leave => {
                // Behind all that the others still wait for.
                self.peers.iter_mut().for_each(|peer| peer.queue.0.push_back(Post::Leave));
                let _ = reply.send(Ok(Reply::Value(0)));
            }
            Call::AssignHomes { pages, homes } => {
                let assigned = failure.map_or_else(|| self.engine.assign_homes(pages, homes), Err);
                let _ = reply.send(assigned.map(|()| Reply::Value(0)));
            }
            Call::Statistics => {
                drop(reply.send(Ok(Reply::Statistics(Box::new(self.reporter.statistics(&self.engine))))))
            }
        }
    }

    /// Polls the fabric and the group, and handles what has happened. Returns the number of events.
    fn poll_members(&mut self) -> usize {
        let mut happened = std::mem::take(&mut self.happened);
        let count = self.driver.poll(&mut happened);
        happened.drain(..).for_each(|happened| self.apply(happened));
        self.happened = happened;
        count
    }

    fn apply(&mut self, happened: Happened) {
        match happened {
            Happened::Up(member) => self.hand_over(member),
            Happened::Message(from, bytes) => self.receive(from, &bytes),
            Happened::Left(member) if !self.is_leaving => self.lose(member),
            Happened::Lost(member, _) => self.lose(member),
            Happened::Replaced => self.lose(self.driver.ours()),
            Happened::Unreadable(error) => {
                self.end_here(OwnEnd::Unreadable(error));
            }
            Happened::Done(tag, value) => self.finish_work(tag, value),
            _ => {}
        }
    }

    fn end_here(&mut self, reason: OwnEnd) {
        let _ = self.own_end.set(reason);
        self.lose(self.driver.ours());
    }

    fn lose(&mut self, member: Member) {
        if let Some(rank) = Rank::new(usize::from(member.0)) {
            self.handle(Event::Lost(rank));
        }
    }

    /// Answers the calls that wait for the other ranks, and disconnects the rank that ended the space: nobody else tells it.
    fn end(&mut self, failure: Failure) {
        self.has_ended = true;
        for command in std::mem::take(&mut self.held) {
            self.start(command);
        }
        if let Failure::Lost(rank) | Failure::Protocol(rank) = failure {
            self.driver.close(Member(rank.index() as u16));
        }
    }

    /// Returns true if a process has come too late into the place of a rank: the space has ended without that rank.
    fn is_too_late(&self, member: Member) -> bool {
        let index = usize::from(member.0);
        self.engine.failure().is_some_and(|failure| {
            let ended_it = matches!(
                failure,
                Failure::Lost(rank) | Failure::Protocol(rank) | Failure::GaveUp { rank, .. } if rank.index() == index
            );
            ended_it || self.peers[index].windows.is_some()
        })
    }

    /// Opens the areas to a peer, and tells it where they are.
    fn hand_over(&mut self, member: Member) {
        let Some(peer) = self.driver.peer(member) else { return };
        if self.is_too_late(member) {
            return self.driver.close(member);
        }
        let windows = self.expose(peer);
        let sent = windows.map(|windows| {
            let message = handover::encode(&windows);
            self.driver.send(member, &[&[HANDOVER], &message])
        });
        if !matches!(sent, Some(Ok(()))) {
            self.lose(member);
        }
    }

    fn expose(&mut self, peer: PeerId) -> Option<[ddss_verbs::Window; SHARED.len()]> {
        let mut windows = Vec::with_capacity(SHARED.len());
        for area in SHARED {
            let rights = match area {
                Area::HomeFrames => Rights::READ.union(Rights::WRITE),
                Area::HomeWords => Rights::ATOMIC,
                Area::Lines | Area::Log => Rights::READ,
                Area::Landing => Rights::WRITE,
            };
            let span = self.memory.layout.shared(area);
            windows.push(self.driver.expose(peer, self.region, span.offset, span.bytes, rights).ok()?);
        }
        windows.try_into().ok()
    }

    fn receive(&mut self, from: Member, bytes: &[u8]) {
        let index = usize::from(from.0);
        match (bytes.split_first(), Rank::new(index)) {
            (Some((&HANDOVER, windows)), _) if self.peers[index].windows.is_none() => {
                let Some(windows) = handover::decode(windows) else { return self.lose(from) };
                self.peers[index].windows = Some(windows);
                let ours = self.config.rank.index();
                let is_known = |(rank, peer): (usize, &Peer)| rank == ours || peer.windows.is_some();
                self.is_ready = self.peers.iter().enumerate().all(is_known);
                if self.is_ready {
                    for command in std::mem::take(&mut self.held) {
                        self.start(command);
                    }
                }
            }
            (Some((&ENGINE, message)), Some(rank)) => {
                let begun = Instant::now();
                self.handle(Event::Message { from: rank, bytes: message });
                self.reporter.count_handler(begun);
            }
            _ => self.lose(from),
        }
    }

    /// Takes the completion of work.
    fn finish_work(&mut self, tag: u64, value: Option<u64>) {
        if tag & WRITE != 0 {
            return self.staging.put_back(tag as u16);
        }
        // Failed work is followed by the end of its connection.
        if let (Some(tag), Some(value)) = (Tag::from_bits(tag), value) {
            self.handle(Event::Done { tag, value });
        }
    }

    /// Posts what waits for the peers. Returns the number of posts.
    fn post(&mut self) -> usize {
        let mut posted = 0;
        for index in 0..self.peers.len() {
            let member = Member(index as u16);
            while let (Some(peer), Some(windows)) = (self.driver.peer(member), self.peers[index].windows) {
                let Some(post) = self.peers[index].queue.0.pop_front() else { break };
                if let Err(post) = self.post_one(member, peer, &windows, post) {
                    self.peers[index].queue.0.push_front(post);
                    break;
                }
                posted += 1;
            }
        }
        posted
    }

    /// Posts one action. Returns it if it has to wait.
    fn post_one(&mut self, member: Member, peer: PeerId, windows: &PeerWindows, post: Post) -> Result<(), Post> {
        let region = self.region;
        let local = |offset, bytes| LocalRange { region, offset, bytes };
        let page_bytes = u64::from(self.config.page_bytes);
        let outside = RemoteRange { key: 0, address: u64::MAX };
        let work = match &post {
            Post::Send(message) => {
                return match self.driver.send(member, &[&[ENGINE], message]) {
                    Err(ddss_group::SendError::Full(_)) => Err(post),
                    // The connection has ended: its event follows.
                    _ => Ok(()),
                };
            }
            Post::Leave => {
                self.driver.leave(member);
                return Ok(());
            }
            Post::Write { offset, bytes } => {
                let Some(slot) = self.staging.take() else { return Err(post) };
                let place = self.memory.layout.staging(slot);
                self.memory.file.write(place, bytes);
                let length = bytes.len() as u64;
                let remote = windows.address(Area::HomeFrames, *offset, length).unwrap_or(outside);
                let (tag, local) = (WRITE | u64::from(slot), local(place, length));
                Work::Write { peer, tag, local, remote }
            }
            Post::WritePage { page, slot } => {
                let offset = u64::from(*slot) * page_bytes;
                let remote = windows.address(Area::Landing, offset, page_bytes).unwrap_or(outside);
                Work::Write { peer, tag: WRITE_PAGE, local: local(self.memory.home(*page), page_bytes), remote }
            }
            Post::Read { tag, area, offset, bytes, into } => {
                let length = u64::from(*bytes);
                let remote = windows.address(*area, *offset, length).unwrap_or(outside);
                let local = local(self.memory.layout.local(*into), length);
                Work::Read { peer, tag: tag.to_bits(), local, remote }
            }
            Post::Swap { tag, offset, word } => {
                let remote = windows.address(Area::HomeWords, *offset, 8).unwrap_or(outside);
                Work::CompareSwap { peer, tag: tag.to_bits(), remote, compare: 0, swap: *word }
            }
        };
        let (tag, error) = (work.tag(), self.driver.post(work).err());
        if error.is_some() && tag & WRITE != 0 {
            self.staging.put_back(tag as u16);
        }
        match error {
            None => Ok(()),
            Some(PostErrorKind::Busy | PostErrorKind::NotConnected) => Err(post),
            Some(_) => {
                // The peer's windows do not fit this space, or it is gone.
                self.lose(member);
                Ok(())
            }
        }
    }

    /// Returns true if there is nothing to post but for peers that are not connected.
    fn is_idle(&self) -> bool {
        let is_connected = |index: usize| self.driver.peer(Member(index as u16)).is_some();
        let waits =
            |(index, peer): (usize, &Peer)| !peer.queue.0.is_empty() && peer.windows.is_some() && is_connected(index);
        !self.peers.iter().enumerate().any(waits)
    }
}

impl ProgressTask for Service {
    fn poll(&mut self) -> usize {
        let mut worked = self.poll_members() + self.take_commands();
        let now_us = self.now().as_micros() as u64;
        if self.engine.next_deadline().is_some_and(|due| due <= now_us) {
            self.handle(Event::Tick);
            worked += 1;
        }
        if let Some(failure) = self.engine.failure().filter(|_| !self.has_ended) {
            self.end(failure);
            worked += 1;
        }
        let posted = self.post();
        self.reporter.report(self.driver.now(), &self.engine);
        worked + posted + usize::from(self.complete_failed(posted))
    }

    fn has_served_peers(&self) -> bool {
        self.driver.has_moved_bytes()
    }

    fn arm(&mut self) -> bool {
        // Drained before the look at the channel, so that a command behind the look is readable.
        self.wake.clear();
        if self.take_commands() > 0 || !self.is_idle() {
            return false;
        }
        self.driver.arm()
    }

    fn disarm(&mut self) {
        self.driver.disarm();
    }

    fn with_descriptors(&self, wait: &mut dyn FnMut(&[BorrowedFd<'_>])) {
        wait(&self.driver.descriptors());
    }

    fn park_limit(&self) -> Duration {
        let now_us = self.now().as_micros() as u64;
        let engine = self
            .engine
            .next_deadline()
            .map_or(Mesh::ASK_AFTER, |due| Duration::from_micros(due.saturating_sub(now_us)));
        engine.min(self.driver.sleep_max())
    }

    /// Sends what is left, such as the word that this rank leaves, and waits a moment until the peers have closed.
    fn finish(&mut self) {
        let end = Instant::now() + Duration::from_millis(500);
        let is_connected =
            |service: &Self| (0..service.peers.len()).any(|index| service.driver.peer(Member(index as u16)).is_some());
        while self.is_leaving && is_connected(self) && Instant::now() < end {
            self.poll();
            std::thread::yield_now();
        }
    }
}
