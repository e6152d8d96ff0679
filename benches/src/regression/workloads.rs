//! Short deterministic runs on one thread, for instruction counting.

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::client_calls::{COUNTED, Caller, ClientCall};
use ddss::{NodeId, SegmentId, Strategy};
use ddss_core::{
    ArenaRange, ChannelId, ClientId, Completion, Entry, Header, Message, OpenedSegment, Operation, Outcome, Payload,
    Principal, PutConditions, ReadOptions, RemoteWindow, Request, RequestId, Shard, Timestamp,
};
use ddss_engine::{Action, Engine, EngineConfig, Fetch, MessageBody, Now, PeerAction, Reply, SegmentCommit, StepId};
use ddss_ipc::{
    Acceptor, AcceptorConfig, AttachOptions, Attachment, Channel, ClientEvent, IpcServer, SharedMemory, TracedRequest,
};
use ddss_verbs::{
    Event, Events, Fabric, Iwarp, IwarpConfig, LocalRange, PeerId, RegionId, RemoteRange, Rights, Trust, Window, Work,
};

const CLIENT: ClientId = ClientId { index: 0, generation: 1 };
const LANE: ChannelId = ChannelId { client: CLIENT, index: 0 };
const RANGE: ArenaRange = ArenaRange { slot: 0, bytes: 64 };
/// Registered bytes on each side of a fabric.
const REGION_BYTES: u64 = 1 << 20;
/// Polls after which an expected event counts as lost.
const LOOKS_MAX: u32 = 1_000_000;
/// Time limit for a client of the same process to attach.
const ATTACH_MAX: Duration = Duration::from_secs(20);

/// The workloads, with one round of each.
pub const WORKLOADS: [(&str, &str); 20] = [
    ("codec", "a request and a completion, encoded and decoded"),
    ("engine-null", "a question that asks for nothing, through the engine"),
    ("engine-small", "a put of 8 bytes at home, as its ring entry stands there"),
    ("engine-get", "a get of 64 bytes at home, through the engine"),
    ("engine-put", "a put of 64 bytes at home, through the engine"),
    ("engine-put-general", "the same put on the general path, which each call may take"),
    ("engine-get-far", "a get of 64 bytes from another node, through the engines of both"),
    ("rings-null", "a question through the rings of a client, and its answer back"),
    ("client-null", "a ping of a blocking client, without the wait for its answer"),
    ("client-get-8", "a get of 8 bytes of a blocking client, without the wait"),
    ("client-get-4096", "a get of 4096 bytes of a blocking client, without the wait"),
    ("client-put-8", "a put of 8 bytes of a blocking client, without the wait"),
    ("client-put-4096", "a put of 4096 bytes of a blocking client, without the wait"),
    ("client-local-get-8", "a get of 8 bytes in place, of a segment of the own node"),
    ("client-local-row-get-8", "a get of 8 bytes in place, of a row"),
    ("client-local-cell", "a get of a typed word in place"),
    ("client-local-row", "a get of a typed row of 64 bytes in place"),
    ("iwarp-read-8", "a read of 8 bytes between two fabrics over loopback, both ends"),
    ("iwarp-read-4096", "a read of 4096 bytes, with its checksum at both ends"),
    ("iwarp-write-8", "a write of 8 bytes, and the read behind it that proves it placed"),
];

/// Returns the options of callgrind for a workload.
pub fn callgrind_options(name: &str) -> &'static [&'static str] {
    if name.starts_with("client-") { &COUNTED } else { &[] }
}

/// Runs that many rounds of the workload.
pub type Workload = Box<dyn FnMut(u64)>;

/// Prepares the workload of this name; `None` if there is none.
pub fn workload(name: &str) -> Option<Workload> {
    let engines = |node: usize, operation: fn(SegmentId) -> Operation| -> Workload {
        let mut engines = Engines::new();
        Box::new(move |rounds| engines.repeat(node, rounds, operation))
    };
    let general = |operation: fn(SegmentId) -> Operation| -> Workload {
        let mut engines = Engines::new();
        engines.engines[0].set_slow_path(true);
        Box::new(move |rounds| engines.repeat(0, rounds, operation))
    };
    let fabrics = |bytes: u64, writes: bool| -> Workload {
        let mut fabrics = Fabrics::connect();
        Box::new(move |rounds| fabrics.repeat(rounds, bytes, writes))
    };
    let calls = |call: ClientCall| -> Workload {
        let mut caller = Caller::connect(call);
        Box::new(move |rounds| caller.repeat(call, rounds))
    };
    Some(match name {
        "codec" => Box::new(|rounds| (0..rounds).for_each(codec)),
        "engine-null" => engines(0, |_| Operation::Null),
        "engine-small" => {
            let mut engines = Engines::new();
            Box::new(move |rounds| engines.small(rounds))
        }
        "engine-get" => engines(0, get),
        "engine-put" => engines(0, put),
        "engine-put-general" => general(put),
        "engine-get-far" => engines(1, get),
        "rings-null" => rings(),
        "client-null" => calls(ClientCall::Null),
        "client-get-8" => calls(ClientCall::Get(8)),
        "client-get-4096" => calls(ClientCall::Get(4096)),
        "client-put-8" => calls(ClientCall::Put(8)),
        "client-put-4096" => calls(ClientCall::Put(4096)),
        "client-local-get-8" => calls(ClientCall::LocalGet),
        "client-local-row-get-8" => calls(ClientCall::LocalRowGet),
        "client-local-cell" => calls(ClientCall::LocalCellGet),
        "client-local-row" => calls(ClientCall::LocalRowValue),
        "iwarp-read-8" => fabrics(8, false),
        "iwarp-read-4096" => fabrics(4096, false),
        "iwarp-write-8" => fabrics(8, true),
        _ => return None,
    })
}

/// Prepares a workload and runs `rounds` rounds of it. Returns false if there is no workload of this name.
pub fn run_workload(name: &str, rounds: u64) -> bool {
    workload(name).map(|mut run| run(rounds)).is_some()
}

fn get(segment: SegmentId) -> Operation {
    Operation::Get { segment, offset: 0, into: RANGE, inline: false, options: ReadOptions::default() }
}

fn put(segment: SegmentId) -> Operation {
    let from = Payload::Arena(RANGE);
    Operation::Put { segment, offset: 0, from, conditions: PutConditions::default() }
}

fn codec(round: u64) {
    let request = Request::new(RequestId(round), get(SegmentId::from_bits(1 << 48)));
    let decoded = Request::decode(black_box(&request.encode())).expect("what was encoded is a request");
    let completion = Completion::bare(decoded.id, Outcome::Done);
    assert_eq!(Completion::decode(black_box(&completion.encode())).request, RequestId(round));
}

/// Two engines that are connected directly, without memory, so that only the engine is counted.
struct Engines {
    engines: [Engine; 2],
    now: Now,
    state: u64,
    segment: SegmentId,
    last: Option<Completion>,
}

impl Engines {
    fn new() -> Engines {
        let engine = |node| {
            let peers = vec![NodeId(1), NodeId(2)];
            let mut engine = Engine::new(&EngineConfig {
                node: NodeId(node),
                shard: Shard::ONLY,
                pool_bytes: 1 << 20,
                peers,
                first_generation: 9,
                reads_overlap: true,
            });
            engine.attach(CLIENT, Principal { uid: 7, gid: 7 }, 1 << 20);
            engine.on_peer_up(Now::default(), NodeId(3 - node), Timestamp::default());
            engine
        };
        let now = Now { steady_us: 1000, wall_us: 1000 };
        let segment = SegmentId::from_bits(0);
        let mut engines = Engines { engines: [engine(1), engine(2)], now, state: 0, segment, last: None };
        let text = [&ddss_core::Spec::new(64).encode()[..], b"guard"].concat();
        let spec_and_name = ArenaRange { slot: 0, bytes: text.len() as u32 };
        let made = engines.ask(0, Operation::Allocate { spec_and_name }, &text);
        engines.segment = OpenedSegment::decode(&made.data).segment;
        engines
    }

    fn repeat(&mut self, node: usize, rounds: u64, operation: fn(SegmentId) -> Operation) {
        let operation = operation(self.segment);
        for _ in 0..rounds {
            let completion = self.ask(node, operation, &[]);
            assert_eq!(completion.outcome, Outcome::Done);
        }
    }

    fn small(&mut self, rounds: u64) {
        let (segment, conditions) = (self.segment, PutConditions::default());
        let from = Payload::inline(b"8 bytes!").expect("they fit");
        let put = Request::new(RequestId(6), Operation::Put { segment, offset: 8, from, conditions }).encode();
        for _ in 0..rounds {
            let put = self.engines[0].inline_put(self.now, LANE, black_box(&put)).expect("no other request is pending");
            black_box(put);
        }
    }

    fn ask(&mut self, node: usize, operation: Operation, text: &[u8]) -> Completion {
        self.last = None;
        self.engines[node].request(self.now, LANE, &Request::new(RequestId(5), operation), text);
        while self.perform(0) + self.perform(1) > 0 {}
        self.now.steady_us += 10;
        self.last.expect("everything ends")
    }

    fn perform(&mut self, node: usize) -> usize {
        let mut count = 0;
        while let Some(action) = self.engines[node].next_action() {
            count += 1;
            match action {
                Action::Format { record, .. } => self.engines[node].on_formatted(self.now, record.segment, true),
                Action::ReadWord { .. } => self.engines[node].on_word_read(1),
                Action::Commit(SegmentCommit { version, .. }) => self.state = Header::committed(version),
                Action::Peer(PeerAction::Fetch(Fetch { step, .. })) => self.fetched(node, step),
                Action::Peer(PeerAction::Send { message, tail: MessageBody::None, .. }) => {
                    self.deliver(node, &message, &[])
                }
                Action::Peer(PeerAction::Send { message, tail: MessageBody::Buffer(buffer), .. }) => {
                    let tail = self.engines[node].buffer(buffer).to_vec();
                    self.deliver(node, &message, &tail);
                }
                Action::Peer(PeerAction::GrantWindow {
                    message: Message::Found { step, info, .. }, at, bytes, ..
                }) => {
                    let window = RemoteWindow { key: 1, base: at, bytes };
                    self.deliver(node, &Message::Found { step, info, window }, &[]);
                }
                Action::Reply(Reply { completion, .. }) => self.last = Some(completion),
                _ => {}
            }
        }
        count
    }

    fn fetched(&mut self, node: usize, step: StepId) {
        let header = Header { state: self.state, segment: self.segment.to_bits(), bytes: 64, ..Header::default() };
        self.engines[node].on_fetched(self.now, step, Ok((header, self.state)));
    }

    fn deliver(&mut self, from: usize, message: &Message, tail: &[u8]) {
        let node = NodeId(from as u16 + 1);
        self.engines[1 - from].on_message(self.now, node, Timestamp::default(), message, tail);
    }
}

/// A client and a server on one thread: without waiting and wake-ups.
fn rings() -> Workload {
    let folder = tempfile::tempdir().expect("a folder for a socket is to be had");
    let socket = folder.path().join("socket");
    let mut station = IpcServer::open(NodeId(1)).expect("a station needs nothing");
    let config = AcceptorConfig::new(&station);
    let reception = Acceptor::start(&socket, config, station.inbox().sink()).expect("a fresh folder takes it");
    let mut options = AttachOptions::default();
    (options.strategy, options.channels) = (Strategy::Rcq, 1);
    let attachment = Attachment::connect(&socket, &options).expect("the reception answers by itself");
    let mut channel = attachment.take_channel().expect("a fresh attachment has a channel");
    let mut engines = Engines::new();
    let client = adopt(&mut station);
    engines.engines[0].attach(client, Principal { uid: 7, gid: 7 }, 1 << 20);
    Box::new(move |rounds| {
        // The server's objects must live as long as the client.
        let _kept = (&folder, &reception, &attachment);
        for round in 0..rounds {
            question(&mut station, &mut engines, &mut channel, round);
        }
    })
}

fn adopt(station: &mut IpcServer) -> ClientId {
    let begin = Instant::now();
    while begin.elapsed() < ATTACH_MAX {
        if let Some(ClientEvent::Attached(session)) = station.next_event() {
            return station.add_client(session).expect("its memory is fine");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the client does not arrive");
}

fn question(station: &mut IpcServer, engines: &mut Engines, channel: &mut Channel, round: u64) {
    let request = Request::new(RequestId(round), Operation::Null);
    channel.submit(request.encode()).expect("one fits");
    channel.ring_doorbell();
    // A channel that was idle for a while is polled only rarely.
    let served = (0..LOOKS_MAX).any(|_| {
        let served = station.serve(16, &mut |_: ChannelId, entry: &Entry, _: Option<TracedRequest>| {
            // The server answers as a daemon does.
            assert!(Request::is_null(entry));
            engines.engines[0].note_null();
            Some(Completion::bare(RequestId(entry[1]), Outcome::Done).encode())
        });
        served == 1
    });
    station.flush();
    assert!(served, "the request is seen when it was submitted");
    let answer = channel.reap().expect("the answer is there when it was published");
    assert_eq!(Completion::decode(&answer).request, RequestId(round));
}

/// Two fabrics on one thread, with a connection over loopback.
struct Fabrics {
    here: Iwarp,
    there: Iwarp,
    events: [Events; 2],
    peer: PeerId,
    window: Window,
    region: RegionId,
}

impl Fabrics {
    fn connect() -> Fabrics {
        let fabric = || {
            let mut fabric = Iwarp::new(IwarpConfig::default()).expect("a fabric needs no more than an epoll");
            let memory = SharedMemory::create("ddss-guard", REGION_BYTES as usize).expect("a MiB is to be had");
            let region = fabric.register(memory.descriptor(), Trust::Sealed, 0, REGION_BYTES);
            (fabric, region.expect("sealed memory can be registered"))
        };
        let ((mut here, region), (mut there, home)) = (fabric(), fabric());
        let address = there.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("loopback listens");
        let peer = here.connect(address, b"").expect("loopback connects");
        let mut window = None;
        let mut events = [Events::new(), Events::new()];
        for _ in 0..LOOKS_MAX {
            there.poll(&mut events[1]);
            for event in events[1].iter() {
                if let Event::ConnectRequest { peer, .. } = event {
                    let rights = Rights::READ.union(Rights::WRITE);
                    window = there.expose(peer, home, 0, REGION_BYTES, rights).ok();
                    there.accept(peer, b"").expect("it asked");
                }
            }
            events[1].clear();
            here.poll(&mut events[0]);
            let connected = events[0].iter().any(|event| matches!(event, Event::Connected { .. }));
            events[0].clear();
            if let (true, Some(window)) = (connected, window) {
                return Fabrics { here, there, events, peer, window, region };
            }
        }
        panic!("two ends of a loopback connection do not meet");
    }

    fn repeat(&mut self, rounds: u64, bytes: u64, writes: bool) {
        let (peer, local) = (self.peer, LocalRange { region: self.region, offset: 0, bytes });
        let remote = RemoteRange { key: self.window.key, address: self.window.base };
        let read = Work::Read { peer, tag: 1, local, remote };
        let batch = if writes { vec![Work::Write { peer, tag: 0, local, remote }, read] } else { vec![read] };
        for _ in 0..rounds {
            self.here.post(&batch).expect("a batch fits");
            let mut left = batch.len();
            for _ in 0..LOOKS_MAX {
                self.here.poll(&mut self.events[0]);
                for event in self.events[0].iter() {
                    let Event::Done { outcome, .. } = event else { panic!("the connection is gone: {event:?}") };
                    outcome.expect("the other side does what it is asked");
                    left -= 1;
                }
                self.events[0].clear();
                if left == 0 {
                    break;
                }
                self.there.poll(&mut self.events[1]);
                self.events[1].clear();
            }
            assert_eq!(left, 0, "no answer");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, the guard would count the instructions of a workload that does not do its work.
    #[test]
    fn every_workload_completes_its_rounds() {
        for (name, _) in WORKLOADS {
            assert!(run_workload(name, 20), "{name}");
        }
        assert!(!run_workload("nothing", 1));
    }
}
