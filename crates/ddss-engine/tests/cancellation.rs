//! Cancelled calls across two engines: events in, actions out.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss_core::{
    ArenaRange, AtomicOp, ChannelId, ClientId, Completion, Failure, LockRequest, LockToken, Message, NodeId, Operation,
    Outcome, Payload, Principal, PutConditions, Request, RequestId, SegmentId, Shard, Spec, Timestamp, Version,
};
use ddss_engine::{Action, Engine, EngineConfig, Now, PeerAction, Reply};

const CLIENT: ClientId = ClientId { index: 0, generation: 1 };
const OTHER: ClientId = ClientId { index: 1, generation: 1 };
const PRINCIPAL: Principal = Principal { uid: 1, gid: 1 };
const NOW: Now = Now { steady_us: 1, wall_us: 1 };
const LATE: Failure = Failure::TimedOut;

/// A home (node 1) with a segment, and another node.
struct Pair {
    engines: [Engine; 2],
    segment: SegmentId,
    /// Completions of clients: engine, client, request, outcome.
    told: Vec<(usize, ClientId, u64, Outcome)>,
    tokens: Vec<LockToken>,
}

impl Pair {
    fn new() -> Self {
        Self::with(Spec::new(64))
    }

    fn with(spec: Spec) -> Self {
        let engine = |node: u16| {
            let config = EngineConfig {
                node: NodeId(node),
                shard: Shard::ONLY,
                pool_bytes: 1 << 20,
                peers: vec![NodeId(3 - node)],
                first_generation: 0,
                reads_overlap: true,
            };
            let mut engine = Engine::new(&config);
            engine.attach(CLIENT, PRINCIPAL, 1 << 20);
            engine.attach(OTHER, PRINCIPAL, 1 << 20);
            engine
        };
        let mut engines = [engine(1), engine(2)];
        let text = [&spec.encode()[..], b"shared"].concat();
        let spec_and_name = ArenaRange { slot: 0, bytes: text.len() as u32 };
        let allocate = Request::new(RequestId(0), Operation::Allocate { spec_and_name });
        engines[0].request(NOW, ChannelId { client: OTHER, index: 0 }, &allocate, &text);
        let Some(Action::Format { record, .. }) = engines[0].next_action() else { panic!("nothing is made") };
        engines[0].on_formatted(NOW, record.segment, true);
        while engines[0].next_action().is_some() {}
        engines[0].on_peer_up(NOW, NodeId(2), Timestamp(0));
        engines[1].on_peer_up(NOW, NodeId(1), Timestamp(0));
        Self { engines, segment: record.segment, told: Vec::new(), tokens: Vec::new() }
    }

    /// Sends a client's request to a node (0: the home), and executes all that follows.
    fn ask(&mut self, at: usize, client: ClientId, id: u64, operation: Operation) {
        self.engines[at].request(NOW, ChannelId { client, index: 0 }, &Request::new(RequestId(id), operation), &[]);
        self.go_on();
    }

    /// Sends a wait that parks, or its cancel.
    fn park(&mut self, at: usize, client: ClientId, id: u64, operation: Operation) {
        let request = Request { parks: true, ..Request::new(RequestId(id), operation) };
        self.engines[at].request(NOW, ChannelId { client, index: 0 }, &request, &[]);
        self.go_on();
    }

    /// Offers a place at a node; returns the requests that ended without an action.
    fn collect(&mut self, at: usize, client: ClientId, id: u64) -> Vec<(u64, Outcome)> {
        self.ask(at, client, id, Operation::Collect);
        let told = self.heard();
        let parked = std::iter::from_fn(|| self.engines[at].next_parked()).map(|(_, completion)| completion);
        let told = told.into_iter().map(|(_, _, id, outcome)| (id, outcome));
        told.chain(parked.map(|completion| (completion.request.0, completion.outcome))).collect()
    }

    fn go_on(&mut self) {
        while let Some((at, action)) = (0..2).find_map(|at| Some((at, self.engines[at].next_action()?))) {
            match action {
                Action::Reply(Reply { channel, completion, .. }) => {
                    let Completion { request, outcome, data, .. } = completion;
                    self.tokens.push(LockToken(u64::from_le_bytes(data[..8].try_into().unwrap())));
                    self.told.push((at, channel.client, request.0, outcome));
                }
                Action::Peer(PeerAction::Send { message, .. }) => {
                    let from = NodeId(at as u16 + 1);
                    self.engines[1 - at].on_message(NOW, from, Timestamp(0), &message, &[]);
                }
                Action::ReadWord { .. } => self.engines[at].on_word_read(0),
                _ => {}
            }
        }
    }

    fn heard(&mut self) -> Vec<(usize, ClientId, u64, Outcome)> {
        std::mem::take(&mut self.told)
    }

    /// Returns one operation of each kind that may wait for another caller.
    fn waits(&self) -> [Operation; 6] {
        let segment = self.segment;
        let lock_request = LockRequest { shared: false, no_wait: false, lease_us: 1_000_000, row_offset: None };
        let (options, into) = (ddss_core::ReadOptions::default(), ArenaRange { slot: 0, bytes: 8 });
        let from = Payload::inline(&[1; 8]).unwrap();
        [
            Operation::Lock { segment, lock_request },
            Operation::Await { segment, offset: 0, above: Version(0) },
            Operation::Put { segment, offset: 0, from, conditions: PutConditions::default() },
            Operation::Atomic { segment, offset: 0, change: AtomicOp::Add(1), token: None },
            Operation::Get { segment, offset: 0, into, inline: true, options },
            Operation::Lock { segment, lock_request: LockRequest { shared: true, ..lock_request } },
        ]
    }
}

// If this failed, a dropped future would keep its queue entry, and its slot, until its deadline.
#[test]
fn cancelled_wait_ends_at_once_locally_and_at_home() {
    for at in 0..2 {
        let mut pair = Pair::new();
        let [lock, ..] = pair.waits();
        pair.ask(0, OTHER, 1, lock);
        assert_eq!(pair.heard(), [(0, OTHER, 1, Outcome::Done)]);
        let token = pair.tokens.pop().unwrap();
        let segment = pair.segment;
        for (number, wait) in pair.waits().into_iter().enumerate() {
            let id = 10 + number as u64;
            if matches!(wait, Operation::Get { .. }) && at == 1 {
                // A remote get begins with one-sided reads, which never wait.
                continue;
            }
            pair.ask(at, CLIENT, id, wait);
            assert_eq!(pair.heard(), [], "{wait:?} waits");
            // A cancel from another channel or with another number has no effect.
            pair.ask(at, OTHER, 2, Operation::Cancel { segment, request: RequestId(id) });
            pair.ask(at, CLIENT, 3, Operation::Cancel { segment, request: RequestId(99) });
            assert_eq!(pair.heard(), [(at, OTHER, 2, Outcome::Done), (at, CLIENT, 3, Outcome::Done)]);
            pair.ask(at, CLIENT, 4, Operation::Cancel { segment, request: RequestId(id) });
            let mut told = pair.heard();
            told.sort_by_key(|&(_, _, id, _)| id);
            let late = (at, CLIENT, id, Outcome::Failed(LATE));
            assert_eq!(told, [(at, CLIENT, 4, Outcome::Done), late], "{wait:?}");
            assert_eq!((pair.engines[at].pending(), pair.engines[0].locks()), (0, (1, 0)), "{wait:?}");
        }
        // The call had no effect, and the holder can still release the lock.
        pair.ask(0, OTHER, 5, Operation::Unlock { segment, token });
        assert_eq!(pair.heard(), [(0, OTHER, 5, Outcome::Done)]);
        assert!(pair.engines[0].locks() == (0, 0) && pair.engines[0].counters().commits == 0);
        // A request that ended meanwhile stays as it ended.
        pair.ask(at, CLIENT, 6, lock);
        pair.ask(at, CLIENT, 7, Operation::Cancel { segment, request: RequestId(6) });
        assert_eq!(pair.heard(), [(at, CLIENT, 6, Outcome::Done), (at, CLIENT, 7, Outcome::Done)]);
        assert_eq!(pair.engines[0].locks(), (1, 0));
    }
}

// If this failed, waiters behind a cancelled wait would wait for a holder that may share the lock with them.
#[test]
fn waiter_behind_cancelled_wait_proceeds() {
    for at in 0..2 {
        let mut pair = Pair::new();
        let (waits, segment) = (pair.waits(), pair.segment);
        let [alone, .., shared] = waits;
        pair.ask(0, OTHER, 1, shared);
        pair.ask(at, CLIENT, 2, alone);
        pair.ask(0, OTHER, 3, shared);
        assert_eq!(pair.heard(), [(0, OTHER, 1, Outcome::Done)]);
        pair.ask(at, CLIENT, 4, Operation::Cancel { segment, request: RequestId(2) });
        assert!(pair.heard().contains(&(0, OTHER, 3, Outcome::Done)));
        assert_eq!(pair.engines[0].locks(), (2, 0));
    }
}

// If this failed, a dead process would keep its queue entries at other nodes until their deadlines.
#[test]
fn waits_of_detached_client_end_at_remote_home() {
    let mut pair = Pair::new();
    let waits = pair.waits();
    let [lock, watch, ..] = waits;
    pair.ask(0, OTHER, 1, lock);
    pair.ask(1, CLIENT, 2, lock);
    pair.ask(1, CLIENT, 3, watch);
    pair.ask(1, OTHER, 4, lock);
    assert_eq!((pair.engines[0].locks(), pair.engines[1].pending()), ((1, 2), 3));
    pair.engines[1].detach(NOW, CLIENT);
    pair.go_on();
    // The other client of that node still waits.
    assert_eq!((pair.engines[0].locks(), pair.engines[1].pending()), ((1, 1), 1));
    assert_eq!(pair.heard(), [(0, OTHER, 1, Outcome::Done)]);
}

// If this failed, a peer could end an operation of another node, or crash an engine.
#[test]
fn peer_cancels_only_its_own_requests() {
    let mut pair = Pair::new();
    let waits = pair.waits();
    let [lock, ..] = waits;
    pair.ask(0, OTHER, 1, lock);
    pair.ask(0, CLIENT, 2, lock);
    for step in [0, 1, 2, u64::MAX] {
        for segment in [pair.segment, SegmentId::from_bits(step)] {
            let cancel = Operation::Cancel { segment, request: RequestId(step) };
            pair.engines[0].on_message(NOW, NodeId(2), Timestamp(0), &Message::call(0, PRINCIPAL, 0, cancel), &[]);
            pair.go_on();
        }
    }
    assert_eq!(pair.engines[0].locks(), (1, 1));
}

// If this failed, a parked wait would keep its queue entry, or its completion would go where no slot is offered.
#[test]
fn parked_wait_ends_by_cancel_event_and_detach_locally_and_at_home() {
    for at in 0..2 {
        let mut pair = Pair::new();
        let (segment, [lock, watch, put, ..]) = (pair.segment, pair.waits());
        pair.ask(0, OTHER, 1, lock);
        let token = pair.tokens.pop().unwrap();
        pair.heard();
        for (id, wait) in [(2, lock), (3, lock), (4, watch), (5, watch)] {
            pair.park(at, CLIENT, id, wait);
            assert_eq!(pair.heard(), [(at, CLIENT, id, Outcome::Done)], "it is parked");
        }
        assert_eq!((pair.engines[at].parked(), pair.engines[0].locks()), (4, (1, 2)));
        // A cancel names a parked wait only if it says so.
        for id in [2, 4] {
            pair.ask(at, CLIENT, 9, Operation::Cancel { segment, request: RequestId(id) });
        }
        assert_eq!(pair.engines[0].locks(), (1, 2));
        for id in [2, 4] {
            pair.park(at, CLIENT, 9, Operation::Cancel { segment, request: RequestId(id) });
        }
        pair.heard();
        assert_eq!(pair.engines[0].locks(), (1, 1));
        assert_eq!(pair.collect(at, CLIENT, 90), [(2, Outcome::Failed(LATE))]);
        assert_eq!(pair.collect(at, CLIENT, 91), [(4, Outcome::Failed(LATE))]);
        assert_eq!(pair.collect(at, CLIENT, 92), [], "the slot waits for a wait");
        // The release grants the lock, and the next put wakes the watcher.
        pair.ask(0, OTHER, 6, Operation::Unlock { segment, token });
        let granted = pair.engines[at].next_parked().map(|(_, completion)| completion);
        assert_eq!(granted.map(|completion| (completion.request.0, completion.outcome)), Some((3, Outcome::Done)));
        let token = LockToken(u64::from_le_bytes(granted.unwrap().data[..8].try_into().unwrap()));
        pair.ask(at, CLIENT, 7, Operation::Unlock { segment, token });
        pair.ask(0, OTHER, 8, put);
        pair.heard();
        assert_eq!(pair.collect(at, CLIENT, 93), [(5, Outcome::Done)]);
        assert_eq!((pair.engines[at].parked(), pair.engines[at].pending()), (0, 0));
        // A client that is gone leaves nothing, here and at the home.
        pair.ask(0, OTHER, 10, lock);
        for id in 20..120 {
            pair.park(
                at,
                CLIENT,
                id,
                if id % 2 == 0 { lock } else { Operation::Await { segment, offset: 0, above: Version(9) } },
            );
        }
        assert_eq!((pair.engines[at].parked(), pair.engines[0].locks()), (100, (1, 50)));
        pair.engines[at].detach(NOW, CLIENT);
        pair.go_on();
        assert_eq!((pair.engines[at].parked(), pair.engines[at].pending()), (0, 0));
        assert_eq!(pair.engines[0].locks(), (1, 0));
        assert!(pair.engines[at].next_parked().is_none());
    }
}

// If this failed, a home would go on with the sweep of a map for a caller that has given up.
#[test]
fn cancelled_sweep_ends_at_once_locally_and_at_home() {
    for at in 0..2 {
        let mut pair = Pair::with(Spec::table(9, 1024));
        let segment = pair.segment;
        let sweep = Operation::Sweep { segment, first: 0, buckets: 8 };
        pair.ask(at, CLIENT, 1, sweep);
        assert_eq!((pair.heard(), sweep.may_wait()), (vec![], true), "a client cancels only such calls");
        pair.ask(at, CLIENT, 2, Operation::Cancel { segment, request: RequestId(1) });
        let mut told = pair.heard();
        told.sort_by_key(|&(_, _, id, _)| id);
        let late = (at, CLIENT, 1, Outcome::Failed(LATE));
        assert_eq!((told, pair.engines[at].pending()), (vec![late, (at, CLIENT, 2, Outcome::Done)], 0));
    }
}
