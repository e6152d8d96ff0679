//! State of a simulation run, and its event loop.

use super::decisions::{Decision, RaftStub};
use super::network::{Event, Network};
use super::node::Node;
use crate::load::calls::{Client, Kind, PendingCall, Target};
use crate::load::scenario::{Report, Scenario};
use crate::oracle::permission_oracle::PermissionOracle;
use crate::oracle::{History, MapChecker, MutexChecker, OperationKind, Step, TimestampChecker, find_linear_order};
use crate::random::Random;
use ddss_core::{Completion, Model, NodeId, Record, RequestId, SegmentId};
use ddss_engine::StepId;
use std::collections::{BTreeMap, BTreeSet};

/// Transfers between the nodes' memories.
#[derive(Default)]
pub(crate) struct Transfers {
    /// Fetches in flight: node, peer, step.
    pub(crate) fetches: BTreeSet<(usize, usize, StepId)>,
    /// Memory windows over segments: home, permitted reader, address.
    pub(crate) windows: BTreeMap<u32, (usize, usize, u64)>,
    pub(crate) keys: u32,
}

/// Segments as the simulation knows them.
#[derive(Default)]
pub(crate) struct KnownSegments {
    /// Permanent segments; the first one is a counter.
    pub(crate) targets: Vec<Target>,
    /// Temporary segments.
    pub(crate) temporary: [Option<Target>; Simulator::TEMPORARY_MAX],
    /// Released segments.
    pub(crate) gone: Vec<Target>,
    /// Node and address of each segment's header.
    pub(crate) header_locations: BTreeMap<SegmentId, (usize, u64)>,
    /// Record of each segment in the registry of its home.
    pub(crate) records: BTreeMap<SegmentId, Record>,
    /// Last id of each free index, as recorded by its home.
    pub(crate) last_free_ids: BTreeMap<(usize, u32), SegmentId>,
    /// Oldest version that a home can have of a recovered segment.
    pub(crate) oldest: BTreeMap<SegmentId, u64>,
    /// Segments that their homes have erased.
    pub(crate) erased: BTreeSet<SegmentId>,
    /// Lost segments, and the time of the loss.
    pub(crate) lost: BTreeMap<SegmentId, u64>,
    /// Existing segments with a replica.
    pub(crate) replicated: BTreeSet<SegmentId>,
    /// Permanent segments to allocate again.
    pub(crate) to_allocate: BTreeSet<usize>,
}

/// Faults of this run.
#[derive(Default)]
pub(crate) struct Faults {
    /// Partition of each node; nodes of one number reach each other, and the Raft stub is in 0.
    pub(crate) partitions: Vec<u8>,
    /// Node without room for replicas.
    pub(crate) full_node: Option<usize>,
    /// True after the end of all faults.
    pub(crate) have_ended: bool,
    /// Time of the last fault of a connection or a node.
    pub(crate) last_us: u64,
}

/// Checkers, asked during the run and at its end.
#[derive(Default)]
pub(crate) struct Checks {
    pub(crate) permissions: PermissionOracle,
    pub(crate) history: History,
    pub(crate) sections: MutexChecker,
    pub(crate) stamps: TimestampChecker,
    pub(crate) maps: MapChecker,
    /// Times of lock grants of each segment, with the highest token until then.
    pub(crate) tokens: BTreeMap<SegmentId, Vec<(u64, u64)>>,
    /// Values that additions found.
    pub(crate) additions: BTreeSet<u64>,
}

/// A cluster in virtual time.
pub(crate) struct Simulator {
    pub(crate) plan: Scenario,
    /// True if the reads of one batch are in flight together.
    pub(crate) reads_overlap: bool,
    pub(crate) now_us: u64,
    pub(crate) random: Random,
    pub(crate) nodes: Vec<Node>,
    pub(crate) network: Network,
    pub(crate) transfers: Transfers,
    pub(crate) segments: KnownSegments,
    pub(crate) raft: RaftStub,
    pub(crate) faults: Faults,
    pub(crate) checks: Checks,
    pub(crate) report: Report,
    pub(crate) marks: u64,
    pub(crate) requests: u64,
    /// Time of the last request.
    pub(crate) asked_us: u64,
    /// Last completed call, for tests with sequential calls.
    pub(crate) last: Option<(PendingCall, Completion, u64)>,
}

/// Runs one seed.
pub fn run(seed: u64, plan: &Scenario) -> Report {
    let mut world = Simulator::new(seed, plan);
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
    world.check_row_watches();
    world.finish()
}

impl Simulator {
    /// Maximum time after the last request until all calls have ended.
    const DRAIN_TIME_MAX_US: u64 = 10_000_000;
    /// First id of the requests that allocate the permanent segments.
    pub(crate) const FIRST_SETUP_REQUEST: u64 = 1 << 60;
    /// Request that offers a slot for the completion of a parked wait.
    pub(crate) const COLLECT_REQUEST: RequestId = RequestId(u64::MAX);

    /// Creates the nodes and segments; the nodes are about to connect.
    pub(crate) fn new(seed: u64, plan: &Scenario) -> Self {
        let mut random = Random::new(seed);
        let ids: Vec<NodeId> = (1..=plan.nodes as u16).map(NodeId).collect();
        let reads_overlap = plan.reads_overlap.unwrap_or(!seed.is_multiple_of(4));
        let node = |&id: &NodeId| Node::new(id, &ids, plan, reads_overlap, &mut random);
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
            transfers: Transfers::default(),
            segments: KnownSegments::default(),
            raft: RaftStub::new(plan.nodes),
            faults: Faults {
                partitions: vec![0; plan.nodes],
                full_node: Self::full_node(seed, plan.nodes).filter(|_| plan.faults),
                ..Faults::default()
            },
            checks: Checks::default(),
            report: Report { seed, ..Report::default() },
            marks: Self::FRESH,
            requests: 0,
            asked_us: 0,
            last: None,
        };
        world.plant();
        for index in 0..plan.segments + plan.replicated + plan.tables {
            world.allocate(index, index % plan.nodes);
        }
        world
    }

    fn busy(&self) -> bool {
        let busy = |node: &Node| {
            let waits = |client: &Client| client.asked.is_some() || client.lingering.is_some();
            node.dead || node.clients.iter().any(waits) || node.engine.pending() > 0
        };
        self.now_us < self.asked_us + Self::DRAIN_TIME_MAX_US && self.nodes.iter().any(busy)
    }

    /// Handles the next event; returns false if there is none.
    pub(crate) fn step(&mut self) -> bool {
        let Some((key, event)) = self.network.next() else { return false };
        self.now_us = self.now_us.max(key.0);
        if self.is_averted(&event) {
            return true;
        }
        let needs = event.needs();
        let asleep = needs.into_iter().flatten().map(|node| self.nodes[node].paused_until_us).max().unwrap_or(0);
        if asleep > self.now_us {
            self.network.postpone(key, asleep, event);
            return true;
        }
        self.trace(key.0);
        let dead = needs.into_iter().flatten().any(|node| self.nodes[node].dead);
        match event {
            // A dead node handles no event, but its connections and its clock return with it.
            Event::Up { a, b } if dead => self.network.at(self.now_us + 1000, Event::Up { a, b }),
            Event::Up { a, b } if self.faults.partitions[a] != self.faults.partitions[b] => {
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
            Event::Fetched { from, to, life, fetch } => self.complete_read(from, to, life, &fetch),
            Event::Cut { a, b } => self.cut(a, b),
            Event::Down { node, peer } => {
                self.faults.last_us = self.now_us;
                self.down(node, peer);
            }
            Event::Up { a, b } => {
                self.network.connect(a, b);
                for (node, peer) in [(a, b), (b, a)] {
                    let clock = self.nodes[peer].engine.clock(self.now(peer));
                    let now = self.now(node);
                    self.nodes[node].engine.on_peer_up(now, NodeId(peer as u16 + 1), clock);
                    self.perform(node);
                }
            }
            Event::Tick { node } => {
                let now = self.now(node);
                self.nodes[node].engine.tick(now);
                self.perform(node);
                self.network.at(self.now_us + 1000, Event::Tick { node });
            }
            Event::CommitSlice { node, life } => self.commit_slice(node, life),
            Event::SweepSlice { node, life, segment } => self.sweep_slice(node, life, segment),
            Event::UndoReserved { node, life, segment, timestamp } => {
                self.undo_reserved(node, life, segment, timestamp);
            }
            Event::Beat { node } => self.beat(node),
            Event::AtCouncil { node, life, said } => self.receive_at_raft(node, life, said),
            Event::FromCouncil { node, life, upto, lease_until_us } => {
                self.receive_decisions(node, life, upto, lease_until_us);
            }
            Event::Watch => self.declare_dead_nodes(),
            Event::Isolate { first, second, until_us } => self.isolate(first, second, until_us),
            Event::Heal => self.heal(),
            Event::Crash { node } => self.crash(node),
            Event::Restart { node, forgets: true } => self.restart(node),
            Event::Restart { node, forgets: false } => self.recover(node),
            Event::Pause { node, until_us } => {
                self.report.pauses += 1;
                let node = &mut self.nodes[node];
                node.paused_until_us = node.paused_until_us.max(until_us);
            }
        }
    }

    /// Delivers decisions to a node.
    pub(crate) fn receive_decisions(&mut self, node: usize, life: u64, upto: usize, lease_until_us: u64) {
        if self.faults.partitions[node] != 0 || self.nodes[node].life != life {
            return;
        }
        let now = self.now(node);
        while self.raft.told[node] < upto {
            let news = self.raft.news[self.raft.told[node]];
            self.raft.told[node] += 1;
            let engine = &mut self.nodes[node].engine;
            match news {
                Decision::RoleAssigned(assignment) => engine.assign_role(now, &assignment),
                Decision::Gone(segment) => engine.remove_role(now, segment),
                Decision::Dead(dead) => engine.on_node_dead(now, NodeId(dead as u16 + 1)),
                Decision::Alive(alive) => engine.on_node_alive(NodeId(alive as u16 + 1)),
            }
            self.perform(node);
        }
        if lease_until_us > 0 {
            self.nodes[node].has_lease = true;
            let uptime_us = self.nodes[node].uptime_us;
            self.nodes[node].engine.lease(now, lease_until_us + uptime_us);
            self.perform(node);
        }
    }

    /// Handles the deadline of a client, which keeps its arena until the request ends.
    fn give_up(&mut self, node: usize, index: usize, request: u64) {
        let client = &mut self.nodes[node].clients[index];
        if let Some(asked) = client.asked.take_if(|asked| asked.request == request) {
            client.lingering = Some(request);
            (client.held, client.upload) = (None, None);
            let waited_us = self.now_us - asked.began_us;
            self.report.starved += u64::from(waited_us > 150_000 && !matches!(asked.kind, Kind::Await(_)));
            self.record_unknown(node, &asked);
        }
    }

    /// Searches a linear order for each Strict segment.
    fn search(&mut self) {
        let mut found = Vec::new();
        for (segment, seen) in self.checks.history.of_model(Model::Strict) {
            let mut first_seen = BTreeMap::new();
            for get in seen.iter().filter(|seen| seen.mark.is_some() && matches!(seen.what, OperationKind::Get(_))) {
                let ended_us = first_seen.entry(get.mark).or_insert(get.ended_us);
                *ended_us = get.ended_us.min(*ended_us);
            }
            let steps = seen.iter().filter_map(|seen| {
                let (put, value) = (matches!(seen.what, OperationKind::Put | OperationKind::PutIf(_)), seen.mark?);
                let is_named = matches!(seen.what, OperationKind::GetAt(_));
                // An unknown put that no client saw need not have happened; a seen one happened before that get.
                let ended_us = if seen.version.is_some() { seen.ended_us } else { *first_seen.get(&seen.mark)? };
                (!is_named).then_some(Step { began_us: seen.began_us, ended_us, put, value })
            });
            let steps: Vec<Step> = steps.collect();
            let (searched, result) = find_linear_order(&steps, Self::FRESH);
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
        let reserved = self.nodes.iter().map(|node| node.undo_reserved).sum::<usize>();
        if reserved > 0 {
            self.violation(format!("{reserved} reservations of memory for undo logs never ended"));
        }
        let counters: Vec<_> = self.nodes.iter().map(|node| node.engine.counters()).collect();
        self.report.torn_fetches = counters.iter().map(|counters| counters.torn_fetches).sum();
        self.report.handed = counters.iter().map(|counters| counters.served_gets).sum();
        self.report.copied = counters.iter().map(|counters| counters.cache_hits).sum();
        self.check_counter();
        self.report.violations.extend(self.checks.history.violations());
        self.report.violations.extend(self.checks.sections.violations());
        self.report.violations.extend(self.checks.stamps.violations());
        self.report.violations.extend(self.checks.maps.violations());
        self.search();
        self.report
    }
}
