//! The run: what clients ask for, what goes wrong, and what comes out.

use crate::history::{History, Observation};
use crate::network::{Event, Fetch, Network};
use crate::node::{ARENA_BYTES, Asked, Client, Kind, Node, Section, bytes_of, mark_of};
use crate::random::Random;
use ddss_core::engine::{Action, Now, StepId};
use ddss_core::{
    ArenaRange, Change, ClientId, Completion, Failure, Header, Identity, LaneId, LockToken, LockWish, Message, Model,
    Name, NodeId, Opened, Operation, Outcome, Payload, RemoteWindow, Request, RequestId, SegmentId, Spec, Terms,
};
use std::collections::BTreeSet;

/// Who all simulated clients are.
pub(crate) const USER: Identity = Identity { uid: 1000, gid: 1000 };

/// How long a simulated client may hold a lock.
const LEASE_US: u32 = 20_000;

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Nodes.
    pub nodes: usize,
    /// Clients on each.
    pub clients: usize,
    /// Segments, spread over the nodes.
    pub segments: usize,
    /// Gets and puts to ask for.
    pub operations: usize,
    /// Whether connections are cut and clients die.
    pub faults: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self { nodes: 3, clients: 3, segments: 4, operations: 5000, faults: true }
    }
}

/// What came out of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Gets and puts that were asked for.
    pub operations: u64,
    /// Of those, how many ended as done.
    pub done: u64,
    /// Connections cut.
    pub cuts: u64,
    /// Clients killed.
    pub client_kills: u64,
    /// Fetches that met a put and were done again.
    pub torn_fetches: u64,
    /// Puts made under a lock.
    pub sections: u64,
    /// Additions that nobody knows of.
    pub maybe_added: u64,
    /// A number that two equal runs share.
    pub trace: u64,
    /// Everything that must not be.
    pub violations: Vec<String>,
}

struct World {
    plan: Plan,
    now_us: u64,
    random: Random,
    nodes: Vec<Node>,
    network: Network,
    /// Fetches under way: node, its peer, step.
    fetches: BTreeSet<(usize, usize, StepId)>,
    segments: Vec<(SegmentId, usize)>,
    history: History,
    report: Report,
    marks: u64,
    requests: u64,
    /// What additions found, and where the counter is.
    additions: BTreeSet<u64>,
    counter_at: Option<u64>,
}

/// Runs one seed.
pub fn run(seed: u64, plan: &Plan) -> Report {
    let mut world = World::new(seed, plan);
    world.allocate_all();
    while world.report.operations < plan.operations as u64 || world.busy() {
        let Some((time_us, event)) = world.network.next() else { break };
        world.now_us = time_us;
        world.trace(time_us);
        world.handle(event);
    }
    world.finish()
}

impl World {
    const LONGEST_US: u64 = 1_000_000_000;

    fn new(seed: u64, plan: &Plan) -> Self {
        let mut random = Random::new(seed);
        let ids: Vec<NodeId> = (1..=plan.nodes as u16).map(NodeId).collect();
        let nodes = ids.iter().map(|&id| Node::new(id, &ids, plan.clients, &mut random)).collect();
        let mut network = Network::default();
        for a in 0..plan.nodes {
            for b in a + 1..plan.nodes {
                network.at(0, Event::Up { a, b });
            }
            network.at(1000, Event::Tick { node: a });
        }
        Self {
            plan: plan.clone(),
            now_us: 0,
            random,
            nodes,
            network,
            fetches: BTreeSet::new(),
            segments: Vec::new(),
            history: History::default(),
            report: Report { seed, ..Report::default() },
            marks: History::FRESH,
            requests: 0,
            additions: BTreeSet::new(),
            counter_at: None,
        }
    }

    fn trace(&mut self, value: u64) {
        self.report.trace = Random::new(self.report.trace ^ value).word();
    }

    fn busy(&self) -> bool {
        self.now_us < Self::LONGEST_US
            && self
                .nodes
                .iter()
                .any(|node| node.clients.iter().any(|client| client.asked.is_some()) || node.engine.pending() > 0)
    }

    fn now(&self, node: usize) -> Now {
        Now { steady_us: self.now_us, wall_us: self.now_us + self.nodes[node].skew_us }
    }

    fn allocate_all(&mut self) {
        for index in 0..self.plan.segments {
            let node = index % self.plan.nodes;
            let words = if index == 0 { 1 } else { [1, 2, 5, 40, 700][self.random.below(5) as usize] };
            let name = Name::new(&format!("segment-{index}")).expect("a good name");
            let spec = Spec { model: Model::Strict, ..Spec::new(words * 8) };
            let mut text = spec.encode().to_vec();
            text.extend_from_slice(name.as_str().as_bytes());
            let lane = LaneId { client: self.nodes[node].clients[0].id, index: 0 };
            let spec_and_name = ArenaRange { slot: 0, bytes: text.len() as u32 };
            let request = Request::new(RequestId(u64::MAX), Operation::Allocate { spec_and_name });
            let now = self.now(node);
            self.nodes[node].engine.request(now, lane, &request, &text);
            self.perform(node);
        }
        for node in 0..self.plan.nodes {
            for client in 0..self.plan.clients {
                self.network.at(1 + self.random.below(100), Event::Ask { node, client });
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Ask { node, client } => self.ask(node, client),
            Event::Kill { node, client } => self.kill(node, client),
            Event::GiveUp { node, client, request } => self.give_up(node, client, request),
            Event::Deliver { from, to, life, staged, bytes } => {
                if self.network.life(from, to) == Some(life) {
                    if let Some((at, data)) = staged {
                        let from = NodeId(from as u16 + 1);
                        self.nodes[to].staging_of(from)[at as usize..at as usize + data.len()].copy_from_slice(&data);
                    }
                    let (message, tail) = Message::decode(&bytes).expect("engines write what engines read");
                    let now = self.now(to);
                    self.nodes[to].engine.message(now, NodeId(from as u16 + 1), &message, tail);
                    self.perform(to);
                }
            }
            Event::Read { from, to, life, fetch, piece } => self.read(from, to, life, fetch, piece),
            Event::Fetched { from, to, life, fetch } => {
                if self.network.life(from, to) == Some(life) && self.fetches.remove(&(to, from, fetch.step)) {
                    let (start, end) = (fetch.into.offset() as usize, fetch.into.bytes as usize);
                    if let Some(client) = self.nodes[to].client(fetch.client) {
                        client.arena[start..start + end].copy_from_slice(&fetch.bytes);
                    }
                    self.fetched(to, fetch.step, Ok((fetch.header, fetch.state_after)));
                }
            }
            Event::Cut { a, b } => self.cut(a, b),
            Event::Down { node, peer } => self.down(node, peer),
            Event::Up { a, b } => {
                self.network.connect(a, b);
                for (node, peer) in [(a, b), (b, a)] {
                    self.nodes[node].engine.peer_up(NodeId(peer as u16 + 1));
                    self.perform(node);
                }
            }
            Event::Tick { node } => {
                let now = self.now(node);
                self.nodes[node].engine.tick(now);
                self.perform(node);
                self.network.at(self.now_us + 1000, Event::Tick { node });
            }
        }
    }

    fn ask(&mut self, node: usize, index: usize) {
        let waits = &self.nodes[node].clients[index];
        // A client that was killed left its next thought in the queue; its successor has its own.
        if self.report.operations >= self.plan.operations as u64 || waits.asked.is_some() || waits.lingering.is_some() {
            return;
        }
        self.report.operations += 1;
        self.requests += 1;
        let kind = self.choose(node, index);
        let held = self.nodes[node].clients[index].section;
        let segment = match (kind, held) {
            (Kind::GetHeld | Kind::PutHeld | Kind::Unlock, Some(section)) => section.segment,
            (Kind::Add, _) => 0,
            _ => 1 + self.random.below(self.segments.len() as u64 - 1) as usize,
        };
        let (id, length) = self.segments[segment];
        let range = ArenaRange { slot: 0, bytes: length as u32 };
        let token = held.map(|section| section.token);
        let mark = matches!(kind, Kind::Put | Kind::PutHeld).then(|| {
            self.marks += 1;
            self.marks
        });
        let client = &mut self.nodes[node].clients[index];
        if let Some(mark) = mark {
            client.arena[..length].copy_from_slice(&bytes_of(mark, length));
        }
        let put = |token| Operation::Put {
            segment: id,
            offset: 0,
            from: Payload::Arena(range),
            terms: Terms { version: None, token },
        };
        let operation = match kind {
            Kind::Get | Kind::GetHeld => Operation::Get { segment: id, offset: 0, into: range, inline: false },
            Kind::Put => put(None),
            Kind::PutHeld => put(token),
            Kind::Add => Operation::Atomic { segment: id, offset: 0, change: Change::Add(1) },
            Kind::Lock => {
                let wish = LockWish { shared: false, no_wait: false, lease_us: LEASE_US };
                Operation::Lock { segment: id, wish }
            }
            Kind::Unlock => Operation::Unlock { segment: id, token: token.unwrap_or_default() },
        };
        client.asked = Some(Asked { kind, request: self.requests, began_us: self.now_us, segment, mark, range });
        let lane = LaneId { client: client.id, index: 0 };
        let timeout_us = if self.random.one_in(40) { 60 } else { 200_000 };
        let request = Request { timeout_us, ..Request::new(RequestId(self.requests), operation) };
        let deadline_us = self.now_us + u64::from(timeout_us);
        self.network.at(deadline_us, Event::GiveUp { node, client: index, request: self.requests });
        let entry = Request::decode(&request.encode()).expect("a good request");
        let now = self.now(node);
        self.nodes[node].engine.request(now, lane, &entry, &[]);
        self.perform(node);
        self.misfortune(node, index);
    }

    /// A client that holds a lock does what it took it for; another one does anything.
    fn choose(&mut self, node: usize, index: usize) -> Kind {
        match self.nodes[node].clients[index].section {
            Some(Section { version: u64::MAX, .. }) => Kind::GetHeld,
            Some(Section { version, .. }) if version < u64::MAX - 1 => Kind::PutHeld,
            Some(_) => Kind::Unlock,
            None => match self.random.below(10) {
                0 => Kind::Lock,
                1 => Kind::Add,
                2..=4 => Kind::Put,
                _ => Kind::Get,
            },
        }
    }

    /// The deadline of a client passed: it keeps its arena until the end of the request comes.
    fn give_up(&mut self, node: usize, index: usize, request: u64) {
        let client = &mut self.nodes[node].clients[index];
        if let Some(asked) = client.asked.take_if(|asked| asked.request == request) {
            client.lingering = Some(request);
            client.section = None;
            self.report.maybe_added += u64::from(asked.kind == Kind::Add);
            self.note(&asked, u64::MAX, None, asked.mark);
        }
    }

    fn misfortune(&mut self, node: usize, client: usize) {
        if !self.plan.faults {
            return;
        }
        if self.random.one_in(200) {
            let after = self.random.below(200);
            self.network.at(self.now_us + after, Event::Kill { node, client });
        }
        if self.random.one_in(300) && self.plan.nodes > 1 {
            let peer = (node + 1 + self.random.below(self.plan.nodes as u64 - 1) as usize) % self.plan.nodes;
            let after = self.random.below(200);
            self.network.at(self.now_us + after, Event::Cut { a: node, b: peer });
        }
    }

    fn kill(&mut self, node: usize, index: usize) {
        self.report.client_kills += 1;
        let client = &mut self.nodes[node].clients[index];
        let old = client.id;
        let asked = client.asked.take();
        *client = Client::new(ClientId { index: old.index, generation: old.generation + 1 });
        let fresh = client.id;
        if let Some(asked) = asked {
            self.report.maybe_added += u64::from(asked.kind == Kind::Add);
            self.note(&asked, u64::MAX, None, asked.mark);
        }
        let now = self.now(node);
        self.nodes[node].engine.detach(now, old);
        self.nodes[node].engine.attach(fresh, USER, ARENA_BYTES as u64);
        self.perform(node);
        self.network.at(self.now_us + 1 + self.random.below(100), Event::Ask { node, client: index });
    }

    fn note(&mut self, asked: &Asked, ended_us: u64, version: Option<u64>, mark: Option<u64>) {
        let put = asked.mark.is_some();
        if asked.kind != Kind::Add && (put || version.is_some()) {
            let segment = self.segments[asked.segment].0.to_bits();
            self.history.note(Observation { segment, began_us: asked.began_us, ended_us, put, version, mark });
        }
    }

    fn cut(&mut self, a: usize, b: usize) {
        if !self.network.cut(a, b) {
            return;
        }
        self.report.cuts += 1;
        let (first, second) = (self.random.below(500), self.random.below(500));
        self.network.at(self.now_us + first, Event::Down { node: a, peer: b });
        self.network.at(self.now_us + second, Event::Down { node: b, peer: a });
        self.network.at(self.now_us + first.max(second) + 1 + self.random.below(5000), Event::Up { a, b });
    }

    fn down(&mut self, node: usize, peer: usize) {
        let lost: Vec<_> = self.fetches.iter().copied().filter(|&(from, to, _)| from == node && to == peer).collect();
        let fetches_first = self.random.one_in(2);
        for turn in [true, false] {
            if turn == fetches_first {
                for key in &lost {
                    self.fetches.remove(key);
                    self.fetched(node, key.2, Err(Failure::NodeDown));
                }
            } else {
                let now = self.now(node);
                self.nodes[node].engine.peer_down(now, NodeId(peer as u16 + 1));
                self.perform(node);
            }
        }
    }

    fn fetched(&mut self, node: usize, step: StepId, result: Result<(Header, u64), Failure>) {
        let now = self.now(node);
        self.nodes[node].engine.fetched(now, step, result);
        self.perform(node);
    }

    /// The adapter of `to` reads for `from`: the header, the bytes in pieces, the state word again.
    fn read(&mut self, from: usize, to: usize, life: u64, mut fetch: Box<Fetch>, piece: usize) {
        if self.network.life(from, to) != Some(life) {
            return;
        }
        const PIECE: usize = 64;
        let home = &self.nodes[to];
        let data = (fetch.window.base + Header::DATA_OFFSET + fetch.offset) as usize;
        let wanted = fetch.into.bytes as usize;
        if piece == 0 {
            fetch.header = home.header(fetch.window.base);
        } else if fetch.bytes.len() < wanted {
            let (start, end) = (fetch.bytes.len(), (fetch.bytes.len() + PIECE).min(wanted));
            fetch.bytes.extend_from_slice(&home.pool[data + start..data + end]);
        } else {
            fetch.state_after = home.header(fetch.window.base).state;
            let time_us = self.network.arrival(self.now_us, to, from, &mut self.random);
            self.network.at(time_us, Event::Fetched { from: to, to: from, life, fetch });
            return;
        }
        let longest = if self.random.one_in(4) { 60 } else { 2 };
        let pause = self.random.below(longest);
        self.network.occupy(from, to, self.now_us + pause);
        self.network.at(self.now_us + pause, Event::Read { from, to, life, fetch, piece: piece + 1 });
    }

    /// Does what an engine wants done.
    fn perform(&mut self, node: usize) {
        while let Some(action) = self.nodes[node].engine.next_action() {
            let here = &mut self.nodes[node];
            match action {
                Action::Format { record, header } => {
                    here.format(record.at, &header);
                    // The first segment of all is the counter.
                    self.counter_at.get_or_insert(record.at + Header::DATA_OFFSET);
                    let now = self.now(node);
                    self.nodes[node].engine.formatted(now, record.segment, true);
                }
                Action::Erase { at, .. } => here.erase(at),
                Action::Clear { at, bytes } => {
                    here.pool[at as usize..(at + bytes) as usize].fill(0);
                    here.engine.cleared(at, bytes);
                }
                Action::Withdraw { .. } => {}
                Action::Look { at } => {
                    let word = here.word(at);
                    here.engine.looked(word);
                }
                Action::Mark { at, locked } => here.mark(at, locked),
                Action::CopyOut { at, client, into } => {
                    let bytes = here.pool[at as usize..at as usize + into.bytes as usize].to_vec();
                    if let Some(client) = here.client(client) {
                        client.arena[into.offset() as usize..][..bytes.len()].copy_from_slice(&bytes);
                    }
                }
                Action::Commit { at, offset, length, source, version, timestamp } => {
                    let bytes = here.source(&source, length);
                    here.commit(at, offset, &bytes, version, timestamp);
                }
                Action::Fetch { node: home, step, window, offset, client, into } => {
                    let (header, bytes) = (Header::default(), Vec::new());
                    let fetch = Fetch { step, window, offset, client, into, header, state_after: 0, bytes };
                    self.begin_fetch(node, usize::from(home.0) - 1, fetch);
                }
                Action::Stage { node: home, at, client, from, message, .. } => {
                    let bytes = here.payload(client, &Payload::Arena(from));
                    self.send(node, home, Some((at, bytes)), &message, &[]);
                }
                Action::Send { node: peer, message, tail } => {
                    let bytes = tail.map(|(client, payload)| here.payload(client, &payload)).unwrap_or_default();
                    self.send(node, peer, None, &message, &bytes);
                }
                Action::Introduce { node: peer, message, at, bytes } => {
                    let Message::Found { step, facts, .. } = message else { continue };
                    let window = RemoteWindow { key: 1, base: at, bytes };
                    self.send(node, peer, None, &Message::Found { step, facts, window }, &[]);
                }
                Action::Claim { .. } | Action::Disclaim { .. } | Action::Confirm { .. } => {
                    unreachable!("no engine here was told to share its names")
                }
                Action::Cut { node: peer } => {
                    self.report.violations.push(format!("node {} cut {peer} for no reason", node + 1));
                }
                Action::Reply { lane, completion, .. } => self.reply(node, lane.client, &completion),
            }
        }
    }

    fn begin_fetch(&mut self, node: usize, home: usize, fetch: Fetch) {
        let step = fetch.step;
        self.fetches.insert((node, home, step));
        // Posted on a dead connection, it ends when its node notices.
        if let Some(life) = self.network.life(node, home) {
            let time_us = self.network.arrival(self.now_us, node, home, &mut self.random);
            let fetch = Box::new(fetch);
            self.network.at(time_us, Event::Read { from: node, to: home, life, fetch, piece: 0 });
        }
    }

    fn send(&mut self, from: usize, to: NodeId, staged: Option<(u64, Vec<u8>)>, message: &Message, tail: &[u8]) {
        let to = usize::from(to.0) - 1;
        let Some(life) = self.network.life(from, to) else { return };
        let time_us = self.network.arrival(self.now_us, from, to, &mut self.random);
        let bytes = message.encode(tail).to_vec();
        self.network.at(time_us, Event::Deliver { from, to, life, staged, bytes });
    }

    fn reply(&mut self, node: usize, client: ClientId, completion: &Completion) {
        if completion.request.0 == u64::MAX {
            let opened = Opened::decode(&completion.data);
            assert_eq!(completion.outcome, Outcome::Done, "the run begins with its segments");
            self.segments.push((opened.segment, opened.bytes as usize));
            return;
        }
        self.trace(completion.encode().iter().fold(0, |sum, word| sum.rotate_left(7) ^ word));
        let now_us = self.now_us;
        let Some(client) = self.nodes[node].client(client) else { return };
        let index = client.id.index as usize;
        if client.lingering.take_if(|request| *request == completion.request.0).is_some() {
            self.network.at(now_us + 1, Event::Ask { node, client: index });
            return;
        }
        let Some(asked) = client.asked.take_if(|asked| asked.request == completion.request.0) else {
            let what = format!("node {}: a completion for no request: {completion:?}", node + 1);
            self.report.violations.push(what);
            return;
        };
        let mark = match asked.kind {
            Kind::Get | Kind::GetHeld => mark_of(&client.arena[..asked.range.bytes as usize]),
            _ => asked.mark,
        };
        let section = client.section;
        client.section = Self::next_section(section, &asked, completion, now_us);
        self.report.done += u64::from(completion.outcome == Outcome::Done);
        let version = completion.version.0;
        match (asked.kind, completion.outcome) {
            (Kind::Get | Kind::GetHeld | Kind::Put | Kind::PutHeld, Outcome::Done) => {
                self.note(&asked, now_us, Some(version), mark);
            }
            (Kind::Add, Outcome::Done) => self.added(u64::from_le_bytes(std::array::from_fn(|i| completion.data[i]))),
            (Kind::Add, Outcome::Indeterminate(_)) => self.report.maybe_added += 1,
            (_, Outcome::Indeterminate(_)) => self.note(&asked, u64::MAX, None, mark),
            _ => {}
        }
        if let (Kind::PutHeld, Outcome::Done, Some(section)) = (asked.kind, completion.outcome, section) {
            self.report.sections += 1;
            if version != section.version + 1 {
                let what = format!("version {version} was put under a lock that saw {}", section.version);
                self.report.violations.push(what);
            }
        }
        let pause = 1 + self.random.below(60);
        self.network.at(now_us + pause, Event::Ask { node, client: index });
    }

    /// What a client does next under the lock that it holds, if it holds one.
    fn next_section(section: Option<Section>, asked: &Asked, completion: &Completion, now_us: u64) -> Option<Section> {
        if completion.outcome != Outcome::Done {
            return None;
        }
        match asked.kind {
            Kind::Lock => {
                let token = LockToken(u64::from_le_bytes(std::array::from_fn(|i| completion.data[i])));
                let until_us = now_us + u64::from(LEASE_US);
                Some(Section { segment: asked.segment, token, version: u64::MAX, until_us })
            }
            Kind::GetHeld => section.map(|section| Section { version: completion.version.0, ..section }),
            Kind::PutHeld => section.map(|section| Section { version: u64::MAX - 1, ..section }),
            Kind::Unlock => None,
            _ => section,
        }
    }

    /// An addition found that number: each is found once.
    fn added(&mut self, found: u64) {
        if !self.additions.insert(found) {
            self.report.violations.push(format!("two additions found the same number {found}"));
        }
    }

    /// What the counter says now lies between the additions that happened and those that may have.
    fn check_counter(&mut self) {
        let (id, _) = self.segments[0];
        let node = usize::from(id.home().0) - 1;
        let Some(at) = self.counter_at else { return };
        let word = self.nodes[node].word(at);
        let sure = self.additions.len() as u64;
        if word < sure || word > sure + self.report.maybe_added {
            let maybe = self.report.maybe_added;
            self.report
                .violations
                .push(format!("the counter is {word} after {sure} additions and {maybe} unsure ones"));
        }
    }

    fn finish(mut self) -> Report {
        let stuck = self.nodes.iter().map(|node| node.engine.pending()).sum::<usize>();
        if stuck > 0 {
            self.report.violations.push(format!("{stuck} operations never ended"));
        }
        self.report.torn_fetches = self.nodes.iter().map(|node| node.engine.counters().torn_fetches).sum();
        self.check_counter();
        self.report.violations.extend(self.history.violations());
        self.report
    }
}
