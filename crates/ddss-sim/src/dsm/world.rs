//! Engines, memory, connections and threads of a simulated space.

use super::happens_before::HappensBefore;
use super::memory::{RacingWrite, SimMemory};
use super::network::{Connection, Kind, PieceData, Response, Transfer, cut};
use super::program::{Op, Program};
use super::thread::{Thread, ThreadState, report_end, report_start};
use crate::random::Random;
use ddss_dsm_core::{
    Access, Action, CallId, Config, Engine, Event, Failure, Output, PageId, PageRange, Rank, Request, common_ranges,
    concurrent,
};
use std::collections::BTreeMap;

/// One simulated rank.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) engine: Engine,
    pub(crate) memory: SimMemory,
    pub(crate) is_dead: bool,
    /// Threads that each call belongs to: all of the rank at a barrier, otherwise one.
    calls: BTreeMap<CallId, Vec<usize>>,
}

/// Operations that were posted, and messages that arrived, by rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) sent: u64,
    pub(crate) handled: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) swaps: u64,
}

/// A simulated space.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) nodes: Vec<Node>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) connections: BTreeMap<(usize, usize), Connection>,
    pub(crate) model: HappensBefore,
    pub(crate) now_us: u64,
    pub(crate) accesses: u64,
    pub(crate) calls: u64,
    pub(crate) traffic: Vec<Traffic>,
    out: Output,
}

pub(crate) fn rank(index: usize) -> Rank {
    Rank::new(index).expect("the simulation has few ranks")
}

impl World {
    pub(crate) fn new(config: Config, program: &Program) -> Self {
        let node = |index| {
            let config = Config { rank: rank(index), ..config };
            let engine = Engine::new(config).expect("the simulation uses valid settings");
            Node { engine, memory: SimMemory::new(&config), is_dead: false, calls: BTreeMap::new() }
        };
        let pairs = (0..config.ranks).flat_map(|from| (0..config.ranks).map(move |to| (from, to)));
        let thread = |(rank, steps): (&usize, &Vec<Op>)| Thread::new(*rank, steps.clone());
        Self {
            config,
            nodes: (0..config.ranks).map(node).collect(),
            threads: program.ranks.iter().zip(&program.threads).map(thread).collect(),
            connections: pairs.filter(|(from, to)| from != to).map(|pair| (pair, Connection::default())).collect(),
            model: HappensBefore::new(program.threads.len(), program.has_no_race),
            now_us: 0,
            accesses: 0,
            calls: 0,
            traffic: vec![Traffic::default(); config.ranks],
            out: Output::default(),
        }
    }

    /// Hands an event to an engine, and executes what it decides.
    pub(crate) fn handle(&mut self, node: usize, event: Event<'_>, random: &mut Random) {
        self.offer_races(node, random);
        let mut out = std::mem::take(&mut self.out);
        let Node { engine, memory, .. } = &mut self.nodes[node];
        engine.handle(event, self.now_us, memory, &mut out);
        self.nodes[node].memory.racing.clear();
        for thread in std::mem::take(&mut self.nodes[node].memory.raced) {
            self.record_access(thread);
        }
        for action in out.actions() {
            self.execute(node, action, &out, random);
        }
        out.clear();
        self.out = out;
        if let Some(failure) = self.nodes[node].engine.failure() {
            self.fail_waiting_threads(node, failure);
        }
    }

    /// Ends threads that are at a barrier for which another thread of their rank will not make the call.
    fn fail_waiting_threads(&mut self, node: usize, failure: Failure) {
        let calls = &self.nodes[node].calls;
        let is_in_call = |thread: &usize| calls.values().any(|threads| threads.contains(thread));
        for (index, thread) in self.threads.iter_mut().enumerate() {
            if thread.rank == node && thread.state == ThreadState::AtBarrier && !is_in_call(&index) {
                thread.state = ThreadState::Failed(failure);
            }
        }
    }

    /// Offers the next writes of the rank's threads: they can happen while the engine copies the page.
    fn offer_races(&mut self, node: usize, random: &mut Random) {
        let page_bytes = self.config.page_bytes as usize;
        for (index, thread) in self.threads.iter().enumerate() {
            let is_able = thread.rank == node && thread.state == ThreadState::Ready;
            if let (true, Some(Op::Write { address, values })) = (is_able, thread.step())
                && random.one_in(2)
            {
                let page = PageId((address / page_bytes) as u32);
                let offset = address % page_bytes;
                let write = RacingWrite { thread: index, page, offset, bytes: values.clone() };
                self.nodes[node].memory.racing.push(write);
            }
        }
    }

    fn execute(&mut self, node: usize, action: &Action, out: &Output, random: &mut Random) {
        let traffic = &mut self.traffic[node];
        let (to, transfer) = match action {
            Action::Send { to, message } => {
                traffic.sent += 1;
                (*to, Transfer::Message(out.payload(message).to_vec()))
            }
            Action::Write { to, offset, bytes } => {
                traffic.writes += 1;
                let bytes = out.payload(bytes).to_vec();
                let pieces = cut(bytes.len(), random);
                (*to, Transfer::Write { offset: *offset, bytes, pieces })
            }
            Action::WritePage { to, page, slot } => {
                traffic.writes += 1;
                let pieces = cut(self.config.page_bytes as usize, random);
                (*to, Transfer::Page { page: *page, slot: *slot, pieces })
            }
            Action::Read { from, tag, area, offset, bytes, into } => {
                traffic.reads += 1;
                let (bytes, data) = (*bytes as usize, Vec::new());
                (*from, Transfer::Read { tag: *tag, area: *area, offset: *offset, bytes, into: *into, data })
            }
            Action::Swap { at, tag, offset, word } => {
                traffic.swaps += 1;
                (*at, Transfer::Swap { tag: *tag, offset: *offset, word: *word })
            }
            Action::Complete { call, result } => return self.complete(node, *call, *result),
        };
        if !self.nodes[to.index()].is_dead {
            self.connection(node, to.index()).push(transfer);
        }
    }

    pub(crate) fn connection(&mut self, from: usize, to: usize) -> &mut Connection {
        self.connections.get_mut(&(from, to)).expect("every pair of ranks is connected")
    }

    fn complete(&mut self, node: usize, call: CallId, result: Result<u64, Failure>) {
        let Some(threads) = self.nodes[node].calls.remove(&call) else {
            self.model.violations.push(format!("{call:?} completed twice"));
            return;
        };
        for index in threads {
            let thread = &mut self.threads[index];
            let step = thread.step().cloned();
            match (result, step) {
                // The thread continues without the write.
                (Err(Failure::Full("twins")), _) => thread.advance(),
                (Err(failure), _) => thread.state = ThreadState::Failed(failure),
                (Ok(_), None | Some(Op::Read { .. } | Op::Write { .. })) => thread.state = ThreadState::Ready,
                (Ok(value), Some(op)) => {
                    thread.advance();
                    report_end(&mut self.model, index, &op, value);
                    self.check_opened(node, index, &op);
                }
            }
        }
    }

    /// Checks that pages are open when the call for them is complete. Another thread of the rank may have closed them.
    fn check_opened(&mut self, node: usize, index: usize, op: &Op) {
        let has_others = self.threads.iter().filter(|thread| thread.rank == node).count() > 1;
        if let (Op::Open { page, pages, writes }, false) = (op, has_others) {
            let access = if *writes { Access::Write } else { Access::Read };
            let memory = &self.nodes[node].memory;
            if !(*page..page + pages).all(|page| memory.may_access(PageId(page), access)) {
                self.model.violations.push(format!("thread {index} did not get its pages: {op:?}"));
            }
        }
    }

    /// Lets a thread do its next step, as far as it can.
    pub(crate) fn run_thread(&mut self, index: usize, random: &mut Random) {
        let thread = &self.threads[index];
        let node = thread.rank;
        let Some(op) = thread.step().cloned() else { return };
        let request = match &op {
            Op::Read { address, bytes } => {
                if self.nodes[node].memory.load(*address, *bytes).is_some() {
                    return self.record_access(index);
                }
                self.touch(*address, Access::Read)
            }
            Op::Write { address, values } => {
                if self.nodes[node].memory.store(*address, values) {
                    return self.record_access(index);
                }
                self.touch(*address, Access::Write)
            }
            Op::Open { page, pages, writes } => {
                let pages = PageRange { first: PageId(*page), pages: *pages };
                let access = if *writes { Access::Write } else { Access::Read };
                Request::Touch { pages, access }
            }
            Op::Lock(lock) => Request::Lock(*lock),
            Op::Unlock(lock) => Request::Unlock(*lock),
            Op::Barrier(_) => Request::Barrier(0),
            Op::Post(semaphore) => Request::Post(*semaphore),
            Op::Wait(semaphore) => Request::Wait(*semaphore),
            Op::Add(counter) => Request::Add { counter: *counter, delta: 1 },
        };
        report_start(&mut self.model, index, &op);
        self.call(index, node, request, random);
    }

    fn touch(&self, address: usize, access: Access) -> Request {
        let page = PageId((address / self.config.page_bytes as usize) as u32);
        Request::Touch { pages: PageRange::one(page), access }
    }

    /// Returns the lowest number without a call: a number is free again after its completion.
    fn free_call(&self, node: usize) -> CallId {
        let calls = &self.nodes[node].calls;
        (0..).map(CallId).find(|call| !calls.contains_key(call)).expect("threads are fewer than numbers")
    }

    fn call(&mut self, index: usize, node: usize, request: Request, random: &mut Random) {
        self.calls += u64::from(!matches!(request, Request::Touch { .. }));
        let call = self.free_call(node);
        let mut threads = vec![index];
        if matches!(request, Request::Barrier(_)) {
            self.threads[index].state = ThreadState::AtBarrier;
            let of_rank = |thread: &usize| self.threads[*thread].rank == node;
            threads = (0..self.threads.len()).filter(of_rank).collect();
            if threads.iter().any(|thread| self.threads[*thread].state != ThreadState::AtBarrier) {
                if let Some(failure) = self.nodes[node].engine.failure() {
                    self.threads[index].state = ThreadState::Failed(failure);
                }
                return;
            }
        } else {
            self.threads[index].state = ThreadState::Waiting(call);
        }
        self.nodes[node].calls.insert(call, threads);
        self.handle(node, Event::Call { call, request }, random);
    }

    /// Calls an engine without a thread.
    #[cfg(test)]
    pub(crate) fn request(&mut self, node: usize, request: Request, random: &mut Random) -> CallId {
        let call = self.free_call(node);
        self.nodes[node].calls.insert(call, Vec::new());
        self.handle(node, Event::Call { call, request }, random);
        call
    }

    /// Returns true if a call is complete.
    #[cfg(test)]
    pub(crate) fn is_complete(&self, node: usize, call: CallId) -> bool {
        !self.nodes[node].calls.contains_key(&call)
    }

    /// Reports an access that the memory has executed to the checker.
    fn record_access(&mut self, index: usize) {
        let thread = &mut self.threads[index];
        let Some(op) = thread.step().cloned() else { return };
        let Node { memory, engine, .. } = &mut self.nodes[thread.rank];
        match op {
            Op::Read { address, bytes } => {
                engine.add_reads(std::iter::once(address as u64..(address + bytes) as u64));
                for (at, value) in (address..).zip(memory.load(address, bytes).unwrap_or_default()) {
                    self.model.read(index, at, *value);
                }
            }
            Op::Write { address, values } => {
                (address..).zip(values).for_each(|(at, value)| self.model.write(index, at, value));
            }
            _ => {}
        }
        self.accesses += 1;
        thread.advance();
    }

    /// Returns the bytes that two ranks used in concurrent intervals, one of them writing.
    pub(crate) fn races(&mut self) -> Vec<String> {
        let accesses: Vec<_> = self.nodes.iter_mut().map(|node| node.engine.take_accesses()).collect();
        let mut races = Vec::new();
        for (first, second) in (0..accesses.len()).flat_map(|second| (0..second).map(move |first| (first, second))) {
            let ranks = [first, second].map(rank);
            for (ours, theirs) in concurrent(ranks, &accesses[first], &accesses[second]) {
                let pairs =
                    [(&ours.writes, &theirs.writes), (&ours.writes, &theirs.reads), (&ours.reads, &theirs.writes)];
                let bytes = pairs.into_iter().flat_map(|(ours, theirs)| common_ranges(ours, theirs));
                races.extend(bytes.map(|bytes| format!("{} and {} race at bytes {bytes:?}", ranks[0], ranks[1])));
            }
        }
        races
    }

    /// Executes the next event of a kind on a connection.
    pub(crate) fn deliver(&mut self, from: usize, to: usize, kind: Kind, random: &mut Random) {
        match kind {
            Kind::Write => self.place_piece(from, to, random),
            Kind::Read => self.serve_read(from, to, random),
            Kind::Message => {
                if let Some(bytes) = self.connection(from, to).take_message() {
                    self.traffic[to].handled += 1;
                    self.handle(to, Event::Message { from: rank(from), bytes: &bytes }, random);
                }
            }
            Kind::Response => {
                if let Some(Response { tag, value, landing }) = self.connection(from, to).take_response() {
                    if let Some((place, bytes)) = landing {
                        self.nodes[to].memory.land(place, &bytes);
                    }
                    self.handle(to, Event::Done { tag, value }, random);
                }
            }
        }
    }

    fn place_piece(&mut self, from: usize, to: usize, random: &mut Random) {
        let page_bytes = self.config.page_bytes as usize;
        let Some(piece) = self.connection(from, to).take_piece(random, page_bytes) else { return };
        let bytes = match piece.data {
            PieceData::Bytes(bytes) => bytes,
            PieceData::HomeFrame(offset, bytes) => {
                self.nodes[from].memory.read(ddss_dsm_core::Area::HomeFrames, offset, bytes).to_vec()
            }
        };
        self.nodes[to].memory.write(piece.area, piece.offset, &bytes);
    }

    /// Takes a piece of a read, or executes a swap. The last piece sends the response.
    fn serve_read(&mut self, from: usize, to: usize, random: &mut Random) {
        let response = match self.connection(from, to).take_read() {
            Some(Transfer::Swap { tag, offset, word }) => {
                Response { tag, value: self.nodes[to].memory.swap(offset, word), landing: None }
            }
            Some(Transfer::Read { tag, area, offset, bytes, into, mut data }) => {
                let piece = 1 + random.below((bytes - data.len()) as u64) as usize;
                let start = offset + data.len() as u64;
                data.extend_from_slice(self.nodes[to].memory.read(area, start, piece));
                if data.len() < bytes {
                    let rest = Transfer::Read { tag, area, offset, bytes, into, data };
                    return self.connection(from, to).continue_read(rest);
                }
                Response { tag, value: 0, landing: Some((into, data)) }
            }
            _ => return,
        };
        self.connection(to, from).respond(response);
    }

    /// Ends a rank: its threads stop, and what it sent or was sent is lost.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].is_dead = true;
        self.nodes[node].calls.clear();
        for thread in self.threads.iter_mut().filter(|thread| thread.rank == node) {
            thread.state = ThreadState::Dead;
        }
        for ((from, to), connection) in &mut self.connections {
            if *from == node || *to == node {
                connection.clear();
            }
        }
    }
}
