//! Allocation test: the engine allocates nothing on the data path once it is warm.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss_core::{
    ArenaRange, AtomicOp, ChannelId, ClientId, Completion, Header, LockRequest, LockToken, Message, Model, NodeId,
    OpenedSegment, Operation, Outcome, Payload, Principal, PutConditions, ReadOptions, RemoteWindow, Request,
    RequestId, SegmentId, Shard, Spec, Timestamp,
};
use ddss_engine::{
    Action, CommitSource, Engine, EngineConfig, Fetch, MessageBody, Now, PeerAction, Reply, SegmentCommit, StepId,
};

const CLIENT: ClientId = ClientId { index: 0, generation: 1 };
const LANE: ChannelId = ChannelId { client: CLIENT, index: 0 };
const PRINCIPAL: Principal = Principal { uid: 7, gid: 7 };
const RANGE: ArenaRange = ArenaRange { slot: 0, bytes: 4096 };

/// Two engines connected directly.
struct Pair {
    engines: [Engine; 2],
    now: Now,
    state: u64,
    last: Option<Completion>,
}

impl Pair {
    fn new() -> Self {
        let peers = vec![NodeId(1), NodeId(2)];
        let engine = |node| {
            let (pool_bytes, peers) = (64 << 20, peers.clone());
            Engine::new(&EngineConfig {
                node: NodeId(node),
                shard: Shard::ONLY,
                pool_bytes,
                peers,
                first_generation: 9,
                reads_overlap: true,
            })
        };
        let mut engines = [engine(1), engine(2)];
        for (index, engine) in engines.iter_mut().enumerate() {
            engine.attach(CLIENT, PRINCIPAL, 1 << 20);
            engine.on_peer_up(Now::default(), NodeId(2 - index as u16), Timestamp::default());
        }
        Self { engines, now: Now { steady_us: 1000, wall_us: 1000 }, state: 0, last: None }
    }

    fn ask(&mut self, node: usize, operation: Operation, text: &[u8]) -> Completion {
        self.last = None;
        let request = Request::new(RequestId(5), operation);
        self.engines[node].request(self.now, LANE, &request, text);
        while self.perform(0) + self.perform(1) > 0 {}
        self.now.steady_us += 10;
        self.last.expect("everything ends")
    }

    /// Executes all actions without memory: only the events that return to the engine matter here.
    fn perform(&mut self, node: usize) -> usize {
        let mut count = 0;
        while let Some(action) = self.engines[node].next_action() {
            count += 1;
            match action {
                Action::Format { record, .. } => self.engines[node].on_formatted(self.now, record.segment, true),
                Action::ReadWord { .. } => self.engines[node].on_word_read(1),
                Action::Commit(SegmentCommit { source, version, .. }) => {
                    self.state = Header::committed(version);
                    if let CommitSource::Buffer(kept) = source {
                        self.engines[node].consume_buffer(kept, |_| ());
                    }
                }
                Action::Peer(PeerAction::Fetch(Fetch { step, .. })) => self.fetched(node, step),
                Action::Peer(PeerAction::Send { message, tail, .. }) => self.deliver(node, message, &tail),
                Action::Peer(PeerAction::Stage { message, .. }) => self.deliver(node, message, &MessageBody::None),
                Action::Peer(PeerAction::SendStaged { served_get: hand, message, .. }) => {
                    self.engines[node].on_served_get_sent(hand);
                    self.deliver(node, message, &MessageBody::None);
                }
                Action::Peer(PeerAction::GrantWindow {
                    message: Message::Found { step, info, .. }, at, bytes, ..
                }) => {
                    let window = RemoteWindow { key: 1, base: at, bytes };
                    self.deliver(node, Message::Found { step, info, window }, &MessageBody::None);
                }
                Action::Reply(Reply { completion, .. }) => self.last = Some(completion),
                _ => {}
            }
        }
        count
    }

    fn fetched(&mut self, node: usize, step: StepId) {
        let header = Header { state: self.state, segment: self.segment(), bytes: 4096, ..Header::default() };
        self.engines[node].on_fetched(self.now, step, Ok((header, self.state)));
    }

    fn segment(&self) -> u64 {
        SegmentId::new(NodeId(1), 0, 10).to_bits()
    }

    fn deliver(&mut self, from: usize, message: Message, tail: &MessageBody) {
        let mut bytes = [0; Message::PUT_BYTES_MAX];
        let length = match tail {
            MessageBody::None => 0,
            MessageBody::Client(_, payload) => payload.length() as usize,
            MessageBody::Pool(_, parts) => parts.bytes() as usize,
            MessageBody::Buffer(kept) => {
                let kept = self.engines[from].buffer(*kept);
                bytes[..kept.len()].copy_from_slice(kept);
                kept.len()
            }
        };
        let (now, node) = (self.now, NodeId(from as u16 + 1));
        self.engines[1 - from].on_message(now, node, Timestamp::default(), &message, &bytes[..length]);
    }
}

/// One round of all repeated operations of a client.
fn round(pair: &mut Pair, node: usize, segment: SegmentId, turn: u64) {
    let done = |completion: Completion| assert_eq!(completion.outcome, Outcome::Done);
    let get = |options| Operation::Get { segment, offset: 0, into: RANGE, inline: false, options };
    let put = |bytes, conditions| {
        let from = Payload::Arena(ArenaRange { slot: 0, bytes });
        Operation::Put { segment, offset: 0, from, conditions }
    };
    done(pair.ask(node, get(ReadOptions::default()), &[]));
    // This get is served by the home.
    done(pair.ask(node, get(ReadOptions { requested_model: Some(Model::Read), version: None }), &[]));
    done(pair.ask(node, put(64, PutConditions::default()), &[]));
    done(pair.ask(node, put(4096, PutConditions::default()), &[]));
    let change = AtomicOp::Add(turn);
    done(pair.ask(node, Operation::Atomic { segment, offset: 8, change, token: None }, &[]));
    let lock_request = LockRequest { shared: false, no_wait: false, lease_us: 1_000_000, row_offset: None };
    let locked = pair.ask(node, Operation::Lock { segment, lock_request }, &[]);
    let token = LockToken(u64::from_le_bytes(std::array::from_fn(|i| locked.data[i])));
    done(locked);
    done(pair.ask(node, put(64, PutConditions { token: Some(token), ..PutConditions::default() }), &[]));
    done(pair.ask(node, Operation::Unlock { segment, token }, &[]));
    for engine in &mut pair.engines {
        engine.tick(pair.now);
    }
}

// If this failed, the progress thread would call the allocator now and then, and a busy node would jitter.
#[test]
fn warm_engine_allocates_nothing() {
    for node in [0, 1] {
        let mut pair = Pair::new();
        let spec = Spec { mode: 0o600, ..Spec::new(4096) };
        let text = [&spec.encode()[..], b"warm"].concat();
        let whole = ArenaRange { slot: 0, bytes: text.len() as u32 };
        let made = pair.ask(0, Operation::Allocate { spec_and_name: whole }, &text);
        let segment = OpenedSegment::decode(&made.data).segment;
        assert_eq!(segment.to_bits(), pair.segment());
        (0..100).for_each(|turn| round(&mut pair, node, segment, turn));
        let counted = allocation_counter::measure(|| (0..1000).for_each(|turn| round(&mut pair, node, segment, turn)));
        assert_eq!(counted.count_total, 0, "as {}: {counted:?}", if node == 0 { "the home" } else { "another node" });
    }
}
