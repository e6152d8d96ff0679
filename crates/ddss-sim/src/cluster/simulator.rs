//! The run: what is there, and what happens next.

use super::network::{Event, Network};
use super::node::Node;
use super::raft_stub::Council;
use crate::check::{History, Sections, Stamps, Step, What, explain};
use crate::load::permission_oracle::Rights;
use crate::load::scenario::{Plan, Report};
use crate::load::workload::{Asked, Client, Kind, Target};
use crate::random::Random;
use ddss_core::engine::{Now, StepId};
use ddss_core::{
    ArenaRange, ChannelId, Completion, Header, Model, NodeId, Operation, Record, Request, RequestId, SegmentId,
};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) struct World {
    pub(crate) plan: Plan,
    /// Whether the reads of one batch are under way together.
    pub(crate) reads_overlap: bool,
    pub(crate) now_us: u64,
    pub(crate) random: Random,
    pub(crate) nodes: Vec<Node>,
    pub(crate) network: Network,
    /// Fetches under way: node, its peer, step.
    pub(crate) fetches: BTreeSet<(usize, usize, StepId)>,
    /// Windows over segments: home, who may read, where.
    pub(crate) windows: BTreeMap<u32, (usize, usize, u64)>,
    pub(crate) keys: u32,
    /// The segments that are always there; the first one is a counter.
    pub(crate) targets: Vec<Target>,
    /// Those that come and go.
    pub(crate) temps: [Option<Target>; World::TEMPS],
    /// Those that are gone.
    pub(crate) gone: Vec<Target>,
    /// Where each segment's header is.
    pub(crate) places: BTreeMap<SegmentId, (usize, u64)>,
    /// What each segment's home has written down of it.
    pub(crate) records: BTreeMap<SegmentId, Record>,
    /// The last id of each index that is free, as its home has it written down.
    pub(crate) struck: BTreeMap<(usize, u16), SegmentId>,
    pub(crate) rights: Rights,
    /// The oldest version that a home can know of a segment that it found again.
    pub(crate) oldest: BTreeMap<SegmentId, u64>,
    /// Segments whose homes have taken them away.
    pub(crate) erased: BTreeSet<SegmentId>,
    /// Segments that everybody may know to be gone, and since when.
    pub(crate) lost: BTreeMap<SegmentId, u64>,
    pub(crate) council: Council,
    /// Who can reach whom: those of one number; the council is with 0.
    pub(crate) islands: Vec<u8>,
    /// Segments with a mirror that are there.
    pub(crate) mirrored: BTreeSet<SegmentId>,
    /// The node that has no room for a mirror.
    pub(crate) full: Option<usize>,
    /// Faults have ended.
    pub(crate) is_calm: bool,
    /// Targets that have to be made anew.
    pub(crate) to_make: BTreeSet<usize>,
    pub(crate) history: History,
    pub(crate) sections: Sections,
    pub(crate) stamps: Stamps,
    pub(crate) report: Report,
    pub(crate) marks: u64,
    pub(crate) requests: u64,
    /// When a connection or a node last had trouble.
    pub(crate) trouble_us: u64,
    /// When the last call was asked for.
    pub(crate) asked_us: u64,
    /// Of each segment: when a lock was granted, and the highest token that was given by then.
    pub(crate) tokens: BTreeMap<SegmentId, Vec<(u64, u64)>>,
    /// What additions found.
    pub(crate) additions: BTreeSet<u64>,
    /// The last call that ended, for who asks one after the other.
    pub(crate) last: Option<(Asked, Completion, u64)>,
}

/// Runs one seed.
pub fn run(seed: u64, plan: &Plan) -> Report {
    let mut world = World::new(seed, plan);
    for node in 0..plan.nodes {
        for client in 0..plan.clients {
            let soon = 1 + world.random.below(100);
            world.network.at(soon, Event::Ask { node, client });
        }
    }
    while world.report.operations < plan.operations as u64 || world.busy() {
        if !world.step() {
            break;
        }
    }
    world.restore_redundancy();
    world.finish()
}

impl World {
    /// How long everything may take to come to its end after the last call was asked for.
    const LONGEST_US: u64 = 10_000_000;
    /// Requests from here on make the segments that are always there.
    pub(crate) const BEGINNING: u64 = 1 << 60;

    /// A world with its segments, and its nodes about to meet.
    pub(crate) fn new(seed: u64, plan: &Plan) -> Self {
        let mut random = Random::new(seed);
        let ids: Vec<NodeId> = (1..=plan.nodes as u16).map(NodeId).collect();
        let reads_overlap = plan.reads_overlap.unwrap_or(!seed.is_multiple_of(4));
        let node = |&id: &NodeId| Node::new(id, &ids, plan.clients, reads_overlap, &mut random);
        let nodes = ids.iter().map(node).collect();
        let mut network = Network::default();
        for a in 0..plan.nodes {
            for b in a + 1..plan.nodes {
                network.at(0, Event::Up { a, b });
            }
            network.at(1000, Event::Tick { node: a });
            network.at(1, Event::Beat { node: a });
        }
        network.at(1000, Event::Watch);
        let mut world = Self {
            plan: plan.clone(),
            reads_overlap,
            now_us: 0,
            random,
            nodes,
            network,
            fetches: BTreeSet::new(),
            windows: BTreeMap::new(),
            keys: 0,
            targets: Vec::new(),
            temps: [None; Self::TEMPS],
            gone: Vec::new(),
            places: BTreeMap::new(),
            records: BTreeMap::new(),
            struck: BTreeMap::new(),
            rights: Rights::default(),
            oldest: BTreeMap::new(),
            erased: BTreeSet::new(),
            lost: BTreeMap::new(),
            council: Council::new(plan.nodes),
            islands: vec![0; plan.nodes],
            mirrored: BTreeSet::new(),
            full: Self::full_node(seed, plan.nodes).filter(|_| plan.faults),
            is_calm: false,
            to_make: BTreeSet::new(),
            history: History::default(),
            sections: Sections::default(),
            stamps: Stamps::default(),
            report: Report { seed, ..Report::default() },
            marks: Self::FRESH,
            requests: 0,
            trouble_us: 0,
            asked_us: 0,
            tokens: BTreeMap::new(),
            additions: BTreeSet::new(),
            last: None,
        };
        world.plant();
        for index in 0..plan.segments + plan.mirrored {
            world.allocate(index, index % plan.nodes);
        }
        world
    }

    #[cfg(feature = "planted")]
    pub(crate) fn plant(&mut self) {
        for node in &mut self.nodes {
            node.engine.plant(self.plan.bug);
        }
    }

    #[cfg(not(feature = "planted"))]
    pub(crate) fn plant(&mut self) {}

    pub(crate) fn ids(&self) -> Vec<NodeId> {
        (1..=self.plan.nodes as u16).map(NodeId).collect()
    }

    pub(crate) fn trace(&mut self, value: u64) {
        self.report.trace = Random::new(self.report.trace ^ value).word();
    }

    fn busy(&self) -> bool {
        let busy = |node: &Node| {
            let waits = |client: &Client| client.asked.is_some() || client.lingering.is_some();
            node.dead || node.clients.iter().any(waits) || node.engine.pending() > 0
        };
        self.now_us < self.asked_us + Self::LONGEST_US && self.nodes.iter().any(busy)
    }

    pub(crate) fn now(&self, node: usize) -> Now {
        let Node { skew_us, uptime_us, .. } = self.nodes[node];
        Now { steady_us: self.now_us + uptime_us, wall_us: self.now_us + skew_us }
    }

    /// One of the segments that are always there is made, by a client of its home.
    pub(crate) fn allocate(&mut self, index: usize, node: usize) {
        let words = match index {
            0 => 1,
            // One whose copy takes a while.
            _ if index == self.plan.segments => 700,
            _ => [1, 2, 5, 40, 700][self.random.below(5) as usize],
        };
        let text = Self::allocation(&self.spec_of(index, words), &format!("segment-{index}"));
        let lane = ChannelId { client: self.nodes[node].clients[0].id, index: 0 };
        let spec_and_name = ArenaRange { slot: 0, bytes: text.len() as u32 };
        let request = Request::new(RequestId(Self::BEGINNING + index as u64), Operation::Allocate { spec_and_name });
        let now = self.now(node);
        self.nodes[node].engine.request(now, lane, &request, &text);
        self.perform(node);
    }

    /// The next thing that happens; `false` if nothing does.
    pub(crate) fn step(&mut self) -> bool {
        let Some((key, event)) = self.network.next() else { return false };
        self.now_us = self.now_us.max(key.0);
        if self.is_averted(&event) {
            return true;
        }
        let needs = event.needs();
        let asleep = needs.into_iter().flatten().map(|node| self.nodes[node].paused_until_us).max().unwrap_or(0);
        if asleep > self.now_us {
            self.network.put_off(key, asleep, event);
            return true;
        }
        self.trace(key.0);
        let dead = needs.into_iter().flatten().any(|node| self.nodes[node].dead);
        match event {
            // Who is dead does nothing, but its connections and its clock come back with it.
            Event::Up { a, b } if dead => self.network.at(self.now_us + 1000, Event::Up { a, b }),
            Event::Up { a, b } if self.islands[a] != self.islands[b] => {
                self.network.at(self.now_us + 1000, Event::Up { a, b });
            }
            Event::Tick { node } if dead => self.network.at(self.now_us + 1000, Event::Tick { node }),
            Event::Beat { node } if dead => self.network.at(self.now_us + 1000, Event::Beat { node }),
            Event::Deliver { from, to, life, staged, bytes } => self.deliver(from, to, life, staged, &bytes),
            _ if dead => {}
            event => self.handle(event),
        }
        true
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Ask { node, client } => self.ask(node, client),
            Event::Kill { node, client } => self.kill(node, client),
            Event::GiveUp { node, client, request } => self.give_up(node, client, request),
            Event::Deliver { .. } => unreachable!("messages are delivered before"),
            Event::Read { from, to, life, fetch, piece } => self.read(from, to, life, fetch, piece),
            Event::Fetched { from, to, life, fetch } => self.read_is_back(from, to, life, &fetch),
            Event::Cut { a, b } => self.cut(a, b),
            Event::Down { node, peer } => {
                self.trouble_us = self.now_us;
                self.down(node, peer);
            }
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
            Event::Beat { node } => self.beat(node),
            Event::AtCouncil { node, life, said } => self.at_council(node, life, said),
            Event::FromCouncil { node, life, upto, lease_until_us } => {
                self.hear_council(node, life, upto, lease_until_us);
            }
            Event::Watch => self.watch_lives(),
            Event::Isolate { first, second, until_us } => self.isolate(first, second, until_us),
            Event::Heal => self.heal(),
            Event::Crash { node } => self.crash(node),
            Event::Restart { node, forgets: true } => self.restart(node),
            Event::Restart { node, forgets: false } => self.go_on_again(node),
            Event::Pause { node, until_us } => {
                self.report.pauses += 1;
                let node = &mut self.nodes[node];
                node.paused_until_us = node.paused_until_us.max(until_us);
            }
        }
    }

    /// The deadline of a client passed: it keeps its arena until the end of the request comes.
    fn give_up(&mut self, node: usize, index: usize, request: u64) {
        let client = &mut self.nodes[node].clients[index];
        if let Some(asked) = client.asked.take_if(|asked| asked.request == request) {
            client.lingering = Some(request);
            client.held = None;
            let waited_us = self.now_us - asked.began_us;
            self.report.starved += u64::from(waited_us > 150_000 && !matches!(asked.kind, Kind::Await(_)));
            self.note_lost(node, &asked);
        }
    }

    /// The newest version of a segment, as its home's memory has it.
    pub(crate) fn newest(&self, id: SegmentId) -> u64 {
        if self.mirrored.contains(&id) {
            return self.newest_mirrored(id);
        }
        self.places.get(&id).map_or(0, |&(node, at)| self.nodes[node].header(at).state >> 1)
    }

    /// Whether a segment may be gone by now.
    pub(crate) fn is_gone(&self, id: SegmentId) -> bool {
        self.erased.contains(&id) || self.lost.contains_key(&id)
    }

    /// What the counter says now lies between the additions that happened and those that may have.
    pub(crate) fn check_counter(&mut self) {
        let Some(&(node, at)) = self.places.get(&self.targets[0].id) else { return };
        if self.nodes[node].dead {
            return;
        }
        let word = self.nodes[node].word(at + Header::DATA_OFFSET);
        let (sure, maybe) = (self.additions.len() as u64, self.report.maybe_added);
        let open = self.nodes.iter().flat_map(|node| &node.clients).filter_map(|client| client.asked.as_ref());
        let open = open.filter(|asked| asked.adds()).count() as u64;
        if word < sure || word > sure + maybe + open {
            self.violation(format!("the counter is {word} after {sure} additions and {maybe} unsure ones"));
        }
    }

    /// The second opinion: one order for all of a Strict segment.
    fn search(&mut self) {
        let mut found = Vec::new();
        for (segment, seen) in self.history.of_model(Model::Strict) {
            let mut first_seen = BTreeMap::new();
            for get in seen.iter().filter(|seen| seen.mark.is_some() && matches!(seen.what, What::Get(_))) {
                let ended_us = first_seen.entry(get.mark).or_insert(get.ended_us);
                *ended_us = get.ended_us.min(*ended_us);
            }
            let steps = seen.iter().filter_map(|seen| {
                let (put, value) = (matches!(seen.what, What::Put | What::PutIf(_)), seen.mark?);
                let is_named = matches!(seen.what, What::GetAt(_));
                // What nobody knows of and nobody saw did not have to happen; what was seen had happened by then.
                let ended_us = if seen.version.is_some() { seen.ended_us } else { *first_seen.get(&seen.mark)? };
                (!is_named).then_some(Step { began_us: seen.began_us, ended_us, put, value })
            });
            let steps: Vec<Step> = steps.collect();
            let (searched, result) = explain(&steps, Self::FRESH);
            self.report.searched += searched as u64;
            if let Err(window) = result {
                found.push(format!("segment {segment}: no order explains {window:?}"));
            }
        }
        self.report.violations.extend(found);
    }

    pub(crate) fn finish(mut self) -> Report {
        let clients = self.nodes.iter().flat_map(|node| &node.clients);
        let endless = clients.filter(|client| client.lingering.is_some() || client.asked.is_some()).count();
        if endless > 0 {
            self.violation(format!("{endless} calls never came to an end"));
        }
        let stuck = self.nodes.iter().map(|node| node.engine.pending()).sum::<usize>();
        if stuck > 0 {
            self.violation(format!("{stuck} operations never ended"));
        }
        let counters: Vec<_> = self.nodes.iter().map(|node| node.engine.counters()).collect();
        self.report.torn_fetches = counters.iter().map(|counters| counters.torn_fetches).sum();
        self.report.handed = counters.iter().map(|counters| counters.served_gets).sum();
        self.report.copied = counters.iter().map(|counters| counters.cache_hits).sum();
        self.check_counter();
        self.report.violations.extend(self.history.violations());
        self.report.violations.extend(self.sections.violations());
        self.report.violations.extend(self.stamps.violations());
        self.search();
        self.report
    }
}
