//! Capacity model: the engines of [`ddss_core`] in virtual time, with measured costs of each step of a daemon. It projects
//! the scaling to more nodes than a test machine has cores. It has no faults and checks nothing.
//!
//! Each node has one progress thread. A get takes the time of its own daemon twice (for the request and the reply), that of
//! the home once, and two hops. Memory is not modelled: the engines decide without it.

use crate::random::Random;
use ddss_core::{
    ArenaRange, ChannelId, ClientId, Completion, Header, Message, NodeId, OpenedSegment, Operation, Outcome, Principal,
    ReadOptions, RemoteWindow, Request, RequestId, SegmentId, Shard, Spec, Timestamp,
};
use ddss_engine::{Action, Engine, EngineConfig, Fetch, FetchTarget, MessageBody, Now, PeerAction, Reply, StepId};
use std::collections::BTreeMap;

/// Costs of each step in virtual nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Time of the client between a reply and its next request.
    pub client_ns: u64,
    /// Time of the progress thread of the client's node for one get.
    pub own_ns: u64,
    /// Time of the progress thread of the home for one remote get.
    pub home_ns: u64,
    /// Mean delay from one node to another.
    pub hop_ns: u64,
}

/// Load of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of clients on each node but the first, each with one remote get in flight.
    pub clients: usize,
    /// True if the data of each client has its home on the next node; otherwise all data is on the first node.
    pub spread: bool,
    /// Number of measured gets of each client.
    pub gets: u64,
}

/// Result of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadResult {
    /// Gets per second of all clients.
    pub gets_per_s: f64,
    /// Sorted latencies of the gets in nanoseconds.
    pub times_ns: Vec<u64>,
    /// Utilization of the busiest progress thread.
    pub busiest: f64,
}

enum Event {
    Ask { node: usize, client: usize },
    Read { from: usize, home: usize, step: StepId, segment: SegmentId },
    Fetched { node: usize, step: StepId, segment: SegmentId },
    Deliver { from: usize, to: usize, message: Box<Message>, tail: Vec<u8> },
}

struct Client {
    segment: SegmentId,
    asked_ns: u64,
    done: u64,
}

struct CapacityModel {
    costs: Costs,
    load: Load,
    now_ns: u64,
    random: Random,
    events: BTreeMap<(u64, u64), Event>,
    count: u64,
    engines: Vec<Engine>,
    clients: Vec<Vec<Client>>,
    /// End of the present work of each progress thread, and its total busy time.
    busy: Vec<(u64, u64)>,
    made: Option<SegmentId>,
    times_ns: Vec<u64>,
    last_ns: u64,
}

const GENERATION: u32 = 1;
const BYTES: u64 = 64;
const POOL_BYTES: u64 = 64 << 20;
const TIMEOUT_US: u32 = 1_000_000_000;

fn id(client: usize) -> ClientId {
    ClientId { index: client as u32, generation: GENERATION }
}

/// Runs a load. The same seed gives the same answer.
pub fn simulate_load(seed: u64, costs: Costs, load: Load) -> LoadResult {
    let mut world = CapacityModel::new(seed, costs, load);
    // The remaining actions of the allocations are no part of the measurement.
    world.run();
    let begin_ns = world.busy.iter().map(|(until, _)| *until).max().unwrap_or(0).max(world.now_ns);
    world.busy.iter_mut().for_each(|(_, worked)| *worked = 0);
    for node in 1..load.nodes {
        for client in 0..load.clients {
            // Each client begins at a different time.
            let soon = world.random.below(costs.client_ns.max(1) + 2 * costs.hop_ns.max(1));
            world.at(begin_ns + soon, Event::Ask { node, client });
        }
    }
    world.run();
    world.times_ns.sort_unstable();
    let busiest = world.busy.iter().map(|(_, worked)| *worked).max().unwrap_or(0);
    let took_ns = world.last_ns.saturating_sub(begin_ns).max(1) as f64;
    LoadResult {
        gets_per_s: world.times_ns.len() as f64 * 1e9 / took_ns,
        busiest: busiest as f64 / took_ns,
        times_ns: world.times_ns,
    }
}

impl CapacityModel {
    fn new(seed: u64, costs: Costs, load: Load) -> CapacityModel {
        let peers: Vec<NodeId> = (1..=load.nodes as u16).map(NodeId).collect();
        let engine = |node: &NodeId| {
            let config = EngineConfig {
                node: *node,
                shard: Shard::ONLY,
                pool_bytes: POOL_BYTES,
                peers: peers.clone(),
                first_generation: 9,
                reads_overlap: true,
            };
            let mut engine = Engine::new(&config);
            peers
                .iter()
                .filter(|peer| *peer != node)
                .for_each(|peer| engine.on_peer_up(Now::default(), *peer, Timestamp::default()));
            (0..load.clients).for_each(|client| engine.attach(id(client), Principal { uid: 7, gid: 7 }, 1 << 20));
            engine
        };
        let mut world = CapacityModel {
            costs,
            load,
            now_ns: 0,
            random: Random::new(seed),
            events: BTreeMap::new(),
            count: 0,
            engines: peers.iter().map(engine).collect(),
            clients: Vec::new(),
            busy: vec![(0, 0); load.nodes],
            made: None,
            times_ns: Vec::new(),
            last_ns: 0,
        };
        for node in 0..load.nodes {
            let home = if load.spread { (node + 1) % load.nodes } else { 0 };
            let clients = (0..load.clients).map(|client| Client {
                segment: world.make(home, &format!("{node}-{client}")),
                asked_ns: 0,
                done: 0,
            });
            let clients = clients.collect();
            world.clients.push(clients);
        }
        world
    }

    /// Runs until no event is left.
    fn run(&mut self) {
        while let Some(((time_ns, _), event)) = self.events.pop_first() {
            self.now_ns = time_ns;
            self.handle(event);
        }
    }

    /// Allocates a segment at its home before the measurement.
    fn make(&mut self, home: usize, name: &str) -> SegmentId {
        let text = [&Spec { mode: 0o600, ..Spec::new(BYTES) }.encode()[..], name.as_bytes()].concat();
        let spec_and_name = ArenaRange { slot: 0, bytes: text.len() as u32 };
        let request = Request::new(RequestId(0), Operation::Allocate { spec_and_name });
        let (now, channel) = (self.now(), ChannelId { client: id(0), index: 0 });
        self.made = None;
        self.engines[home].request(now, channel, &request, &text);
        self.perform(home, 0);
        // The engine may have to ask the other nodes for the name.
        while self.made.is_none() {
            let ((time_ns, _), event) = self.events.pop_first().expect("the pool is large enough");
            self.now_ns = time_ns;
            self.handle(event);
        }
        self.made.take().expect("it was waited for")
    }

    fn now(&self) -> Now {
        let us = 1000 + self.now_ns / 1000;
        Now { steady_us: us, wall_us: us }
    }

    fn at(&mut self, time_ns: u64, event: Event) {
        self.count += 1;
        self.events.insert((time_ns, self.count), event);
    }

    /// Occupies the progress thread of a node after its earlier work; returns the end time.
    fn work(&mut self, node: usize, cost_ns: u64) -> u64 {
        let (until, worked) = &mut self.busy[node];
        *until = (*until).max(self.now_ns) + cost_ns;
        *worked += cost_ns;
        *until
    }

    /// Returns a delay between 0.5 and 1.5 times the mean.
    fn hop(&mut self) -> u64 {
        self.costs.hop_ns / 2 + self.random.below(self.costs.hop_ns.max(1))
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Ask { node, client } => {
                self.clients[node][client].asked_ns = self.now_ns;
                let segment = self.clients[node][client].segment;
                let into = ArenaRange { slot: 0, bytes: BYTES as u32 };
                let operation =
                    Operation::Get { segment, offset: 0, into, inline: false, options: ReadOptions::default() };
                let request = Request { timeout_us: TIMEOUT_US, ..Request::new(RequestId(client as u64), operation) };
                let done = self.work(node, self.costs.own_ns / 2);
                let (now, channel) = (self.now(), ChannelId { client: id(client), index: 0 });
                self.engines[node].request(now, channel, &request, &[]);
                self.perform(node, done);
            }
            Event::Read { from, home, step, segment } => {
                let back = self.work(home, self.costs.home_ns) + self.hop();
                self.at(back, Event::Fetched { node: from, step, segment });
            }
            Event::Fetched { node, step, segment } => {
                let done = self.work(node, self.costs.own_ns - self.costs.own_ns / 2);
                let header = Header { segment: segment.to_bits(), bytes: BYTES, ..Header::default() };
                let now = self.now();
                self.engines[node].on_fetched(now, step, Ok((header, header.state)));
                self.perform(node, done);
            }
            Event::Deliver { from, to, message, tail } => {
                let done = self.work(to, self.costs.home_ns);
                let now = self.now();
                self.engines[to].on_message(now, NodeId(from as u16 + 1), Timestamp::default(), &message, &tail);
                self.perform(to, done);
            }
        }
    }

    /// Executes the actions of an engine.
    fn perform(&mut self, node: usize, time_ns: u64) {
        while let Some(action) = self.engines[node].next_action() {
            match action {
                Action::Format { record, .. } => {
                    let now = self.now();
                    self.engines[node].on_formatted(now, record.segment, true);
                }
                Action::Peer(PeerAction::Fetch(Fetch {
                    node: home,
                    step,
                    target: FetchTarget::Arena(client, _),
                    ..
                })) => {
                    let there = time_ns + self.hop();
                    let segment = self.clients[node][client.index as usize].segment;
                    self.at(there, Event::Read { from: node, home: usize::from(home.0) - 1, step, segment });
                }
                Action::Peer(PeerAction::Send { node: to, message, tail: MessageBody::None }) => {
                    self.send(node, to, (message, Vec::new()), time_ns);
                }
                Action::Peer(PeerAction::Send { node: to, message, tail: MessageBody::Buffer(buffer) }) => {
                    let tail = self.engines[node].buffer(buffer).to_vec();
                    self.send(node, to, (message, tail), time_ns);
                }
                Action::Peer(PeerAction::GrantWindow {
                    node: to,
                    message: Message::Found { step, info, .. },
                    at,
                    bytes,
                }) => {
                    let window = RemoteWindow { key: 1, base: at, bytes };
                    self.send(node, to, (Message::Found { step, info, window }, Vec::new()), time_ns);
                }
                Action::Reply(Reply { channel, completion, .. }) => self.answer(node, channel, &completion, time_ns),
                _ => {}
            }
        }
    }

    fn send(&mut self, from: usize, to: NodeId, (message, tail): (Message, Vec<u8>), time_ns: u64) {
        let there = time_ns + self.hop();
        self.at(there, Event::Deliver { from, to: usize::from(to.0) - 1, message: Box::new(message), tail });
    }

    fn answer(&mut self, node: usize, channel: ChannelId, completion: &Completion, time_ns: u64) {
        assert_eq!(completion.outcome, Outcome::Done, "nothing goes wrong here");
        if self.clients.len() < self.load.nodes {
            self.made = Some(OpenedSegment::decode(&completion.data).segment);
            return;
        }
        let index = channel.client.index as usize;
        let ready = time_ns + self.costs.client_ns;
        let client = &mut self.clients[node][index];
        client.done += 1;
        let (done, took) = (client.done, ready - client.asked_ns);
        // The first get of each client fetches the metadata of its segment.
        if done > 1 {
            self.times_ns.push(took);
            self.last_ns = self.last_ns.max(ready);
        }
        if done <= self.load.gets {
            self.at(ready, Event::Ask { node, client: index });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs { client_ns: 500, own_ns: 1000, home_ns: 500, hop_ns: 5000 };

    fn run(nodes: usize, clients: usize, spread: bool) -> LoadResult {
        simulate_load(1, COSTS, Load { nodes, clients, spread, gets: 100 })
    }

    #[test]
    fn one_home_saturates_and_spread_data_scales() {
        let (one, many) = (run(4, 4, false), run(24, 4, false));
        assert!(many.busiest > 0.95, "24 nodes fill one home: {}", many.busiest);
        // A saturated home serves 1 / home_ns gets per second.
        assert!((1.8e6..2.1e6).contains(&many.gets_per_s), "{}", many.gets_per_s);
        assert!(many.gets_per_s < 3.5 * one.gets_per_s, "{}", one.gets_per_s);
        let (few, all) = (run(4, 4, true), run(24, 4, true));
        let gain = all.gets_per_s / few.gets_per_s;
        assert!((7.0..8.3).contains(&gain), "{gain} for 23 nodes with clients instead of 3");
    }

    #[test]
    fn latency_of_a_single_get_is_the_sum_of_its_steps() {
        let LoadResult { times_ns, .. } = run(2, 1, true);
        let (least, most) = (times_ns[0], times_ns[times_ns.len() - 1]);
        // Client, daemon and home take 2 µs; two hops take 5 to 15 µs.
        assert!((7000..9500).contains(&least), "{least}");
        assert!((14_000..=17_000).contains(&most), "{most}");
        assert_eq!(run(2, 1, true), run(2, 1, true), "the same seed gives the same answer");
    }
}
