//! Peers that are wrong, hostile, slow or gone. Each costs itself its connection, with the right words, and us nothing.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
mod wire;

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use common::{ALL, Memory, Node, PATIENCE, Seen, pattern};
use ddss_verbs::{
    CloseReason, Fabric, Fault, Iwarp, IwarpConfig, LocalRange, PeerId, RegionId, RemoteRange, Revision, SendMode,
    Window, Work, WorkError,
};
use wire::{CRC, ENHANCED, REJECT, Segment, Wire, frame, number, start};

fn config(change: impl FnOnce(&mut IwarpConfig)) -> IwarpConfig {
    let mut config = IwarpConfig::default();
    change(&mut config);
    config
}

/// A fabric that listens.
struct Home {
    node: Node<Iwarp>,
    address: SocketAddr,
    memory: Memory,
    region: RegionId,
}

impl Home {
    fn new(config: IwarpConfig) -> Self {
        let mut node = Node::new(Iwarp::new(config).unwrap());
        let address = node.fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let memory = Memory::new(1 << 20);
        let region = node.register(&memory);
        Self { node, address, memory, region }
    }

    fn wait<T>(&mut self, what: &str, mut wanted: impl FnMut(&mut Node<Iwarp>) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = wanted(&mut self.node) {
                return found;
            }
            assert!(start.elapsed() < PATIENCE, "waited in vain for {what}; saw {:?}", self.node.seen);
            self.node.poll();
            std::thread::yield_now();
        }
    }

    /// A raw connection of revision 1 that stands, and a window for it.
    fn meet(&mut self, flags: u8) -> (Wire, PeerId, Window) {
        let mut wire = Wire::connect(self.address);
        wire.send(&start(true, flags, 1, b"raw"));
        let peer = self.asked();
        let window = self.node.fabric.expose(peer, self.region, 0, 4096, ALL).unwrap();
        self.node.fabric.accept(peer, b"").unwrap();
        let reply = self.wait("the reply", |_| {
            wire.receive();
            wire.start(false)
        });
        wire.crc = reply.0 & CRC != 0;
        self.wait("to be connected", |node| node.take(|seen| matches!(seen, Seen::Connected { .. })));
        (wire, peer, window)
    }

    fn asked(&mut self) -> PeerId {
        match self.wait("being asked", |node| node.take(|seen| matches!(seen, Seen::Asked { .. }))) {
            Seen::Asked { peer, .. } => peer,
            _ => unreachable!(),
        }
    }

    fn closed(&mut self, peer: PeerId) -> CloseReason {
        self.wait("the end", |node| node.closed(peer))
    }

    /// Everything that a connection needed is given back.
    fn is_clean(&mut self, wire: Option<&mut Wire>) {
        if let Some(wire) = wire {
            self.wait("the end of the stream", |_| (!wire.receive()).then_some(()));
            wire.stream.shutdown(std::net::Shutdown::Both).ok();
        }
        self.wait("the sockets to be closed", |node| (node.fabric.sockets_open() == 0).then_some(()));
        assert_eq!(self.node.fabric.regions_mapped(), 1);
        assert_eq!(self.node.seen, [], "nothing is told after the end");
        assert_eq!(self.node.fabric.next_deadline(), None);
    }
}

fn untagged(opcode: u8, queue: u32, number: u32, payload: &[u8]) -> Segment {
    Segment::Untagged { last: true, opcode, word: 0, queue, number, offset: 0, payload: payload.to_vec() }
}

fn tagged(opcode: u8, stag: u32, offset: u64, payload: &[u8]) -> Segment {
    Segment::Tagged { last: true, opcode, stag, offset, payload: payload.to_vec() }
}

fn read_request(bytes: u32, stag: u32, offset: u64) -> Vec<u8> {
    [&7_u32.to_be_bytes()[..], &9_u64.to_be_bytes(), &bytes.to_be_bytes(), &stag.to_be_bytes(), &offset.to_be_bytes()]
        .concat()
}

fn atomic(kind: u32, stag: u32, offset: u64) -> Vec<u8> {
    let mut out = [kind.to_be_bytes(), 5_u32.to_be_bytes(), stag.to_be_bytes()].concat();
    out.extend(offset.to_be_bytes());
    out.extend([0; 32]);
    out
}

/// What the home says when it ends a stream: layer, type, code, and the header it blames.
fn terminate(what: &str, home: &mut Home, wire: &mut Wire) -> (u8, u8, u8, Vec<u8>) {
    let segment = home.wait(what, |_| {
        wire.receive();
        loop {
            match wire.next() {
                Some(segment) if segment.opcode() == 7 => return Some(segment),
                Some(_) => {}
                None => return None,
            }
        }
    });
    let Segment::Untagged { last: true, queue: 2, number: 1, offset: 0, payload, .. } = segment else {
        panic!("{segment:?} is no terminate")
    };
    (payload[0] >> 4, payload[0] & 0xf, payload[1], payload)
}

/// A mistake and what has to be said about it.
type Mistake = (&'static str, Box<dyn Fn(&Window) -> Vec<u8>>, Fault);

fn mistake(what: &'static str, fault: Fault, bytes: impl Fn(&Window) -> Vec<u8> + 'static) -> Mistake {
    (what, Box::new(bytes), fault)
}

fn of(segment: Segment) -> Vec<u8> {
    frame(&segment.bytes(), true)
}

fn changed(segment: &Segment, at: usize, value: u8) -> Vec<u8> {
    let mut ulpdu = segment.bytes();
    ulpdu[at] = value;
    frame(&ulpdu, true)
}

fn mistakes() -> Vec<Mistake> {
    let hello = || untagged(3, 0, 1, b"hello");
    vec![
        mistake("a bad crc", Fault::MPA_CRC, move |_| {
            let mut frame = of(hello());
            *frame.last_mut().unwrap() ^= 1;
            frame
        }),
        mistake("a bad crc under a large write", Fault::MPA_CRC, |window| {
            let mut frame = of(tagged(0, window.key, 0, &[1; 4000]));
            frame[100] ^= 4;
            frame
        }),
        mistake("a frame of three bytes", Fault::MPA_FRAME, |_| frame(&[0x41, 0x43, 0], true)),
        mistake("a frame of no bytes", Fault::MPA_FRAME, |_| frame(&[], true)),
        mistake("half an untagged header", Fault::MPA_FRAME, move |_| frame(&hello().bytes()[..17], true)),
        mistake("a wrong ddp version, tagged", Fault::DDP_TAGGED_VERSION, |window| {
            changed(&tagged(0, window.key, 0, b"x"), 0, 0xc2)
        }),
        mistake("a wrong ddp version, untagged", Fault::DDP_UNTAGGED_VERSION, move |_| changed(&hello(), 0, 0x40)),
        mistake("a wrong rdmap version", Fault::RDMAP_VERSION, move |_| changed(&hello(), 1, 0x83)),
        mistake("an unknown opcode", Fault::RDMAP_OPCODE, |_| of(untagged(13, 0, 1, b""))),
        mistake("an unknown opcode, tagged", Fault::RDMAP_OPCODE, |_| of(tagged(12, 1, 1, b""))),
        mistake("a tagged message", Fault::RDMAP_OPCODE, |window| of(tagged(3, window.key, 0, b"x"))),
        mistake("an untagged write", Fault::RDMAP_OPCODE, |_| of(untagged(0, 0, 1, b"x"))),
        mistake("a read request among the messages", Fault::RDMAP_OPCODE, |_| of(untagged(1, 0, 1, &[0; 28]))),
        mistake("an unknown queue", Fault::DDP_QUEUE, |_| of(untagged(3, 4, 1, b"x"))),
        mistake("a message number that was not its turn", Fault::DDP_SEQUENCE, |_| of(untagged(3, 0, 2, b"x"))),
        mistake("message number zero", Fault::DDP_SEQUENCE, |_| of(untagged(3, 0, 0, b"x"))),
        mistake("a message that starts in its middle", Fault::DDP_OFFSET, |_| {
            of(Segment::Untagged { last: true, opcode: 3, word: 0, queue: 0, number: 1, offset: 4, payload: vec![1] })
        }),
        mistake("a message that is too long", Fault::DDP_TOO_LONG, |_| of(untagged(3, 0, 1, &[0; 513]))),
        mistake("a message that grows too long", Fault::DDP_TOO_LONG, |_| {
            let part = |offset: u32| Segment::Untagged {
                last: false,
                opcode: 3,
                word: 0,
                queue: 0,
                number: 1,
                offset,
                payload: vec![7; 300],
            };
            [of(part(0)), of(part(300))].concat()
        }),
        mistake("a message of endless nothing", Fault::RDMAP_STREAM, |_| {
            of(Segment::Untagged { last: false, opcode: 3, word: 0, queue: 0, number: 1, offset: 0, payload: vec![] })
        }),
        mistake("a read request that is too short", Fault::RDMAP_STREAM, |_| of(untagged(1, 1, 1, &[0; 27]))),
        mistake("a read request that is too long", Fault::DDP_TOO_LONG, |_| of(untagged(1, 1, 1, &[0; 29]))),
        mistake("a read request that was not its turn", Fault::DDP_SEQUENCE, |window| {
            of(untagged(1, 1, 3, &read_request(8, window.key, 0)))
        }),
        mistake("a read with a bad key", Fault::RDMAP_KEY, |window| {
            of(untagged(1, 1, 1, &read_request(8, window.key ^ 1, 0)))
        }),
        mistake("a read out of bounds", Fault::RDMAP_BOUNDS, |window| {
            of(untagged(1, 1, 1, &read_request(8, window.key, 4089)))
        }),
        mistake("a read of four gigabytes", Fault::RDMAP_BOUNDS, |window| {
            of(untagged(1, 1, 1, &read_request(u32::MAX, window.key, 0)))
        }),
        mistake("a read that wraps around", Fault::RDMAP_WRAP, |window| {
            of(untagged(1, 1, 1, &read_request(8, window.key, u64::MAX - 3)))
        }),
        mistake("a write with a bad key", Fault::DDP_KEY, |window| of(tagged(0, window.key ^ 1, 0, b"x"))),
        mistake("a write out of bounds", Fault::DDP_BOUNDS, |window| of(tagged(0, window.key, 4096, b"x"))),
        mistake("a write that wraps around", Fault::DDP_WRAP, |window| of(tagged(0, window.key, u64::MAX, b"xy"))),
        mistake("an answer that nobody asked for", Fault::DDP_KEY, |window| of(tagged(2, window.key, 0, b"x"))),
        mistake("an atomic answer that nobody asked for", Fault::RDMAP_OPCODE, |_| of(untagged(11, 3, 1, &[0; 12]))),
        mistake("an atomic of an unknown kind", Fault::RDMAP_OPCODE, |window| {
            of(untagged(10, 1, 1, &atomic(1, window.key, 0)))
        }),
        mistake("an unaligned atomic", Fault::RDMAP_UNSPECIFIED, |window| {
            of(untagged(10, 1, 1, &atomic(0, window.key, 4)))
        }),
        mistake("an atomic with a bad key", Fault::RDMAP_KEY, |window| {
            of(untagged(10, 1, 1, &atomic(0, window.key ^ 8, 0)))
        }),
        mistake("a key withdrawn that is not there", Fault::RDMAP_INVALIDATE, |window| {
            let word = window.key ^ 1;
            of(Segment::Untagged { last: true, opcode: 4, word, queue: 0, number: 1, offset: 0, payload: vec![] })
        }),
        mistake("an immediate of nine bytes", Fault::DDP_TOO_LONG, |_| of(untagged(8, 0, 1, &[0; 9]))),
        mistake("a terminate of three bytes", Fault::RDMAP_STREAM, |_| of(untagged(7, 2, 1, &[0; 3]))),
        mistake("more reads than were agreed on", Fault::DDP_NO_BUFFER, |window| {
            (1..=3).flat_map(|turn| of(untagged(1, 1, turn, &read_request(8, window.key, 0)))).collect()
        }),
    ]
}

#[test]
fn each_mistake_is_named_and_costs_only_the_connection() {
    // If this failed, a broken or hostile node would crash, confuse or outlast the daemon it talks to.
    for (what, bytes, fault) in mistakes() {
        for one_by_one in [false, true] {
            let mut home = Home::new(config(|config| config.reads_inbound = 2));
            home.memory.set(0, &[6; 4096]);
            let (mut wire, peer, window) = home.meet(CRC);
            let bytes = bytes(&window);
            if one_by_one && bytes.len() < 150 {
                for byte in &bytes {
                    wire.send(&[*byte]);
                    home.node.poll();
                }
            } else {
                wire.send(&bytes);
            }
            let (layer, kind, code, payload) = terminate(what, &mut home, &mut wire);
            assert_eq!(Fault { layer, kind, code }, fault, "{what}");
            if layer < 2 && payload.len() > 4 {
                assert_eq!(payload[2] & 0xc0, 0xc0, "{what}: it shows the header");
                let header = if payload[6] & 0x80 != 0 { 14 } else { 18 };
                assert!(
                    bytes.windows(header).any(|window| *window == payload[6..6 + header]),
                    "{what}: the header that it shows is the one that was sent"
                );
                let read = payload[6] & 0x80 == 0 && payload[7] & 0xf == 1 && payload.len() > 6 + header;
                assert_eq!(payload[2] & 0x20 != 0, read, "{what}: a read request is shown whole");
            }
            assert_eq!(home.closed(peer), CloseReason::Broken(fault), "{what}");
            home.is_clean(Some(&mut wire));
            assert_eq!(home.memory.get(0, 4096), [6; 4096], "{what}");
        }
    }
}

#[test]
fn strangers_learn_nothing_and_leave_nothing() {
    // If this failed, whoever reaches the port could hang, confuse or fill the daemon before it says who it is.
    let cases: Vec<(&str, Vec<u8>, bool)> = vec![
        ("another protocol", b"GET / HTTP/1.1\r\n\r\n".to_vec(), false),
        ("a reply instead of a request", start(false, 0, 1, b""), false),
        ("revision 0", start(true, 0, 0, b""), true),
        ("revision 3", start(true, 0, 3, b""), true),
        ("a request that rejects", start(true, REJECT, 1, b""), true),
        ("513 bytes of private data", start(true, 0, 1, &[0; 513]), true),
        ("65535 bytes of private data", start(true, 0, 1, &vec![0; 65535]), true),
        ("a hello that is too long", start(true, 0, 1, &[0; 257]), true),
        ("an enhanced one that is too short", start(true, ENHANCED, 2, &[0; 3]), true),
    ];
    for (what, bytes, answered) in cases {
        let mut home = Home::new(IwarpConfig::default());
        let mut wire = Wire::connect(home.address);
        wire.send(&bytes);
        let seen = home.wait("the end", |node| node.take(|seen| matches!(seen, Seen::Closed { .. })));
        let Seen::Closed { reason, .. } = seen else { unreachable!() };
        assert_eq!(reason, CloseReason::Broken(Fault::MPA_START), "{what}");
        home.wait("the end of the stream", |_| (!wire.receive()).then_some(()));
        if answered {
            let (flags, revision, private) = wire.start(false).unwrap_or_else(|| panic!("{what}: no answer"));
            assert_eq!((flags & REJECT, private), (REJECT, vec![]), "{what}");
            assert!((1..=2).contains(&revision), "{what}");
        }
        assert_eq!(wire.inbox, b"", "{what}");
        home.is_clean(None);
    }
}

#[test]
fn a_handshake_may_come_byte_by_byte_but_must_come() {
    // If this failed, a slow network would keep nodes apart, or 64 silent sockets would keep everybody out.
    let mut home = Home::new(config(|config| config.handshake_timeout = Duration::from_millis(300)));
    let mut wire = Wire::connect(home.address);
    for byte in start(true, CRC, 1, b"slowly") {
        wire.send(&[byte]);
        home.node.poll();
    }
    let peer = home.asked();
    home.node.fabric.accept(peer, b"").unwrap();
    home.wait("the reply", |_| {
        wire.receive();
        wire.start(false)
    });
    home.wait("to be connected", |node| node.take(|seen| matches!(seen, Seen::Connected { .. })));

    let mut silent: Vec<Wire> = (0..200).map(|_| Wire::connect(home.address)).collect();
    let half = start(true, CRC, 1, b"");
    for wire in &mut silent[..100] {
        wire.send(&half[..10]);
    }
    let start_of_wait = Instant::now();
    while start_of_wait.elapsed() < Duration::from_millis(100) {
        home.node.poll();
        assert!(home.node.fabric.sockets_open() <= 65, "half-open connections are bounded");
    }
    home.wait("all but one to be closed", |node| (node.fabric.sockets_open() == 1).then_some(()));
    assert!(
        home.node
            .seen
            .iter()
            .all(|seen| matches!(seen, Seen::Closed { reason: CloseReason::Late | CloseReason::Gone, .. }))
    );
    home.node.seen.clear();
    drop(silent);
    wire.segment(&untagged(3, 0, 1, b"still here"));
    assert_eq!(home.wait("the message", Node::message), b"still here");
    home.node.fabric.close(peer);
    assert_eq!(home.closed(peer), CloseReason::Local);
    home.is_clean(Some(&mut wire));
}

#[test]
fn nobody_talks_before_it_was_accepted() {
    // If this failed, a peer could read memory before it has shown who it is.
    let mut home = Home::new(IwarpConfig::default());
    let mut wire = Wire::connect(home.address);
    wire.send(&[start(true, CRC, 1, b""), of(untagged(3, 0, 1, b"early"))].concat());
    let peer = home.asked();
    assert_eq!(home.closed(peer), CloseReason::Broken(Fault::MPA_START));
    assert!(home.node.fabric.accept(peer, b"").is_err());
    home.is_clean(Some(&mut wire));
}

#[test]
fn a_cut_in_the_middle_of_a_frame_leaves_no_trace() {
    // If this failed, a node that dies while it writes would leave half a value behind, or a hung reader.
    for crc in [true, false] {
        let mut home = Home::new(config(|config| config.crc = crc));
        home.memory.set(0, &[6; 4096]);
        let (mut wire, peer, window) = home.meet(if crc { CRC } else { 0 });
        let whole = frame(&tagged(0, window.key, 0, &[1; 4000]).bytes(), crc);
        wire.send(&whole[..3000]);
        for _ in 0..50 {
            home.node.poll();
        }
        drop(wire);
        let reason = home.closed(peer);
        assert!(matches!(reason, CloseReason::Gone | CloseReason::Lost(_)), "{reason:?}");
        if crc {
            assert_eq!(home.memory.get(0, 4096), [6; 4096], "nothing of a frame whose sum never came is placed");
        }
        home.is_clean(None);
    }
}

/// A fabric that connects to a raw listener, up to a point.
fn reach(config: IwarpConfig, answer: Option<Vec<u8>>) -> (Node<Iwarp>, PeerId, Wire) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut node = Node::new(Iwarp::new(config).unwrap());
    let peer = node.fabric.connect(listener.local_addr().unwrap(), b"hi").unwrap();
    let mut wire = Wire::accept(&listener);
    let begin = Instant::now();
    while wire.start(true).is_none() {
        assert!(begin.elapsed() < PATIENCE, "no request");
        node.poll();
        wire.receive();
    }
    if let Some(answer) = answer {
        wire.send(&answer);
    }
    (node, peer, wire)
}

fn until<T>(node: &mut Node<Iwarp>, what: &str, mut wanted: impl FnMut(&mut Node<Iwarp>) -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = wanted(node) {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}; saw {:?}", node.seen);
        node.poll();
        std::thread::yield_now();
    }
}

#[test]
fn a_connect_that_cannot_succeed_says_so_in_time() {
    // If this failed, a node that was switched off would hang everybody who wants something of it.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let mut node = Node::new(Iwarp::new(IwarpConfig::default()).unwrap());
    let peer = node.fabric.connect(address, b"").unwrap();
    let reason = until(&mut node, "the refusal", |node| node.closed(peer));
    assert_eq!(reason, CloseReason::Unreachable(std::io::ErrorKind::ConnectionRefused));
    assert_eq!(node.fabric.sockets_open(), 0);

    let short = || config(|config| config.handshake_timeout = Duration::from_millis(100));
    let (mut node, peer, _wire) = reach(short(), None);
    assert!(node.fabric.next_deadline().is_some());
    assert_eq!(until(&mut node, "the deadline", |node| node.closed(peer)), CloseReason::Late);
    assert_eq!(node.fabric.sockets_open(), 0);

    for answer in [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        start(true, 0, 1, b""),
        start(false, 0, 3, b""),
        start(false, 0, 0, b""),
        start(false, 0, 1, &[0; 600]),
        start(false, 0, 1, &[0; 300]),
    ] {
        let (mut node, peer, _wire) = reach(short(), Some(answer.clone()));
        let reason = until(&mut node, "the end", |node| node.closed(peer));
        assert_eq!(reason, CloseReason::Broken(Fault::MPA_START), "{answer:?}");
    }

    // Inbound reads: the other side wants to have more under way than we said we take.
    let greedy = start(false, CRC | ENHANCED, 2, &[0x80, 16, 0x80 | 0x10, 0]);
    let (mut node, peer, _wire) = reach(short(), Some(greedy));
    let reason = until(&mut node, "the end", |node| node.closed(peer));
    assert_eq!(reason, CloseReason::Broken(Fault::MPA_IRD));
}

#[test]
fn what_a_terminate_names_is_refused_and_the_rest_is_told_apart() {
    // If this failed, an operation that never ran would be called uncertain, or one that ran would be retried.
    let one = config(|config| config.revision = Revision::One);
    let (mut node, peer, mut wire) = reach(one, Some(start(false, CRC, 1, b"")));
    until(&mut node, "the connection", |node| node.take(|seen| matches!(seen, Seen::Connected { .. })));
    let memory = Memory::new(4096);
    let region = node.register(&memory);
    let remote = RemoteRange { key: 77, address: 0 };
    let local = LocalRange { region, offset: 0, bytes: 8 };
    node.fabric
        .post(&[
            Work::Read { peer, tag: 1, local, remote },
            Work::FetchAdd { peer, tag: 2, remote, add: 1 },
            Work::Read { peer, tag: 3, local, remote },
            Work::FetchAdd { peer, tag: 4, remote, add: 1 },
            Work::Send { peer, tag: 5, message: b"after", mode: SendMode::default() },
        ])
        .unwrap();
    let mut requests = Vec::new();
    until(&mut node, "the requests", |_| {
        wire.receive();
        requests.extend(std::iter::from_fn(|| wire.next()));
        (requests.len() == 5).then_some(())
    });
    let numbers: Vec<u32> = requests[..4]
        .iter()
        .map(|request| match request {
            Segment::Untagged { queue: 1, number, .. } => *number,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    // The third is blamed: access rights. The header as it was received stands in the terminate.
    let blamed = requests[2].bytes();
    let mut body = vec![0x01, 0x02, 0xe0, 0];
    body.extend((blamed.len() as u16).to_be_bytes());
    body.extend(&blamed);
    wire.segment(&untagged(7, 2, 1, &body));
    assert_eq!(until(&mut node, "the end", |node| node.closed(peer)), CloseReason::Terminated(Fault::RDMAP_RIGHTS));
    assert_eq!(node.done(1), Some(Err(WorkError::Unknown)));
    assert_eq!(node.done(2), Some(Err(WorkError::Unknown)));
    assert_eq!(node.done(3), Some(Err(WorkError::Refused(Fault::RDMAP_RIGHTS))));
    assert_eq!(node.done(4), Some(Err(WorkError::NotDone)));
    assert_eq!(node.done(5), Some(Ok(0)), "the socket had taken it");
    assert_eq!(node.seen, []);
    drop(wire);
}

#[test]
fn a_peer_that_takes_nothing_is_given_up() {
    // If this failed, one stopped node would hold memory and operations of all others for ever.
    let slow = config(|config| {
        config.revision = Revision::One;
        config.stall_timeout = Duration::from_millis(200);
    });
    let (mut node, peer, wire) = reach(slow, Some(start(false, CRC, 1, b"")));
    until(&mut node, "the connection", |node| node.take(|seen| matches!(seen, Seen::Connected { .. })));
    let memory = Memory::new(16 << 20);
    let region = node.register(&memory);
    let local = LocalRange { region, offset: 0, bytes: 16 << 20 };
    let remote = RemoteRange { key: 77, address: 0 };
    let writes: Vec<Work<'_>> = (0..4).map(|tag| Work::Write { peer, tag, local, remote }).collect();
    node.fabric.post(&writes).unwrap();
    node.fabric.deregister(region);
    assert_eq!(until(&mut node, "giving up", |node| node.closed(peer)), CloseReason::Late);
    assert_eq!(node.done(0), Some(Err(WorkError::Unknown)));
    assert_eq!(node.done(3), Some(Err(WorkError::NotDone)));
    assert_eq!(node.fabric.sockets_open(), 0);
    assert_eq!(node.fabric.regions_mapped(), 0, "memory that waited for the peer is given back");
    drop(wire);
}

#[test]
fn answers_that_do_not_fit_the_read_are_refused() {
    // If this failed, a hostile home could write past the memory that a client wanted filled.
    type Answer = fn(u32, u64) -> Segment;
    let cases: [(&str, Answer, Fault); 5] = [
        ("too long", |stag, offset| tagged(2, stag, offset, &[1; 9]), Fault::DDP_BOUNDS),
        ("too short", |stag, offset| tagged(2, stag, offset, &[1; 7]), Fault::DDP_BOUNDS),
        ("elsewhere", |stag, offset| tagged(2, stag, offset + 1, &[1; 8]), Fault::DDP_BOUNDS),
        ("another key", |stag, offset| tagged(2, stag ^ 1, offset, &[1; 8]), Fault::DDP_KEY),
        ("a write", |stag, offset| tagged(0, stag, offset, &[1; 8]), Fault::DDP_KEY),
    ];
    for (what, answer, fault) in cases {
        let one = config(|config| config.revision = Revision::One);
        let (mut node, peer, mut wire) = reach(one, Some(start(false, CRC, 1, b"")));
        until(&mut node, "the connection", |node| node.take(|seen| matches!(seen, Seen::Connected { .. })));
        let memory = Memory::new(4096);
        let region = node.register(&memory);
        let local = LocalRange { region, offset: 8, bytes: 8 };
        node.fabric.post(&[Work::Read { peer, tag: 1, local, remote: RemoteRange { key: 7, address: 0 } }]).unwrap();
        let request = until(&mut node, "the request", |_| {
            wire.receive();
            wire.next()
        });
        let body = request.payload();
        wire.segment(&answer(number(&body[..4]) as u32, number(&body[4..12])));
        assert_eq!(until(&mut node, "the end", |node| node.closed(peer)), CloseReason::Broken(fault), "{what}");
        assert_eq!(node.done(1), Some(Err(WorkError::Unknown)), "{what}");
        assert_eq!(memory.get(0, 4096), [0; 4096], "{what}");
    }
}

#[test]
fn descriptors_come_back() {
    // If this failed, a node that flaps would use up the daemon's descriptors within a day.
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut home = Home::new(IwarpConfig::default());
    let mut rounds = |count: usize| {
        for round in 0..count {
            let (mut wire, peer, _) = home.meet(CRC);
            if round % 2 == 0 {
                wire.segment(&untagged(3, 0, 1, &pattern(1, 100)));
                home.wait("the message", Node::message);
                home.node.fabric.close(peer);
            } else {
                wire.segment(&untagged(13, 0, 1, b""));
            }
            home.closed(peer);
            home.is_clean(Some(&mut wire));
        }
    };
    rounds(4);
    let before = open();
    rounds(60);
    let after = open();
    // Other tests of this binary open and close descriptors of their own meanwhile.
    assert!(after < before + 40, "{before} descriptors before, {after} after");
}

#[test]
fn a_marker_that_points_elsewhere_ends_the_stream() {
    // If this failed, a stream that lost its place would be read from the wrong byte on.
    for (marker, good) in [([0, 0, 0, 0], true), ([0, 0, 0, 4], false)] {
        let mut home = Home::new(config(|config| config.markers = true));
        let (mut wire, peer, _) = home.meet(CRC);
        // A marker stands before the first frame and is covered by its sum.
        let plain = frame(&untagged(3, 0, 1, b"hello").bytes(), true);
        let mut marked = [&marker[..], &plain[..plain.len() - 4]].concat();
        marked.extend(wire::crc32c(&marked).to_le_bytes());
        wire.send(&marked);
        if good {
            assert_eq!(home.wait("the message", Node::message), b"hello");
            home.node.fabric.close(peer);
            assert_eq!(home.closed(peer), CloseReason::Local);
        } else {
            let (layer, kind, code, _) = terminate("a bad marker", &mut home, &mut wire);
            assert_eq!(Fault { layer, kind, code }, Fault::MPA_FRAME);
            assert_eq!(home.closed(peer), CloseReason::Broken(Fault::MPA_FRAME));
        }
        home.is_clean(Some(&mut wire));
    }
}
