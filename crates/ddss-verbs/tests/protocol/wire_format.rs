//! Wire format, byte for byte, checked by the independent decoder.

use std::net::TcpListener;
use std::time::Instant;

use crate::common::{ALL, Memory, Node, OwnedEvent, WAIT_MAX, pattern};
use crate::wire;
use crate::wire::accepting::{Home, read_request, untagged};
use crate::wire::{CRC, ENHANCED, MARKERS, Segment, Wire, number, start};
use ddss_verbs::{
    CloseReason, Fabric, Iwarp, IwarpConfig, LocalRange, PeerId, RegionId, RemoteRange, Revision, SendMode, Trust, Work,
};

/// A fabric, connected to a raw socket.
struct Rig {
    node: Node<Iwarp>,
    peer: PeerId,
    wire: Wire,
    memory: Memory,
    region: RegionId,
}

/// Connects a rig. `expected` holds flags, revision and private data of the request; `answer` is the reply to it.
fn rig(config: IwarpConfig, answer: &[u8], expected: (u8, u8, Vec<u8>), crc: bool, markers: bool) -> Rig {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut node = Node::new(Iwarp::new(config).unwrap());
    let memory = Memory::new(1 << 20);
    memory.set(0, &pattern(1, 1 << 20));
    let region = node.register(&memory);
    let peer = node.fabric.connect(listener.local_addr().unwrap(), b"hello").unwrap();
    let mut wire = Wire::accept(&listener);
    let request = wait(&mut node, |_| {
        wire.receive();
        wire.start(true)
    });
    assert_eq!(request, expected);
    wire.crc = crc;
    wire.markers = markers;
    wire.send(answer);
    let hello = wait(&mut node, |node| node.take(|seen| matches!(seen, OwnedEvent::Connected { .. })));
    assert_eq!(hello, OwnedEvent::Connected { peer, hello: b"welcome".to_vec() });
    Rig { node, peer, wire, memory, region }
}

fn wait<T>(node: &mut Node<Iwarp>, mut wanted: impl FnMut(&mut Node<Iwarp>) -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = wanted(node) {
            return found;
        }
        assert!(begin.elapsed() < WAIT_MAX, "waited in vain; saw {:?}", node.seen);
        node.poll();
        std::hint::spin_loop();
    }
}

impl Rig {
    fn next(&mut self) -> Segment {
        let wire = &mut self.wire;
        wait(&mut self.node, |_| {
            let segment = wire.next();
            if segment.is_none() {
                wire.receive();
            }
            segment
        })
    }

    fn done(&mut self, tag: u64) {
        assert_eq!(wait(&mut self.node, |node| node.done(tag)), Ok(0));
    }

    fn local(&self, offset: u64, bytes: u64) -> LocalRange {
        LocalRange { region: self.region, offset, bytes }
    }

    /// Posts every kind of work and checks it against the RFCs.
    fn everything(&mut self) {
        let peer = self.peer;
        self.messages(peer);
        self.writes(peer);
        self.reads(peer);
        self.atomics(peer);
    }

    fn messages(&mut self, peer: PeerId) {
        let modes = [(false, None, 3), (false, Some(0x1234_5678), 4), (true, None, 5), (true, Some(9), 6)];
        for (turn, (solicited, invalidate, opcode)) in modes.into_iter().enumerate() {
            let mode = SendMode { solicited, invalidate };
            let message = pattern(turn as u64, turn * 150 + 1);
            self.node.fabric.post(&[Work::Send { peer, tag: 1, message: &message, mode }]).unwrap();
            let expected = Segment::Untagged {
                last: true,
                opcode,
                word: invalidate.unwrap_or(0),
                queue: 0,
                number: turn as u32 + 1,
                offset: 0,
                payload: message.clone(),
            };
            assert_eq!(self.next(), expected);
            self.done(1);
        }
        for (turn, solicited) in [false, true].into_iter().enumerate() {
            let data = 0x0102_0304_0506_0708_u64.to_be_bytes();
            self.node.fabric.post(&[Work::Immediate { peer, tag: 1, data, solicited }]).unwrap();
            let expected = Segment::Untagged {
                last: true,
                opcode: 8 + turn as u8,
                word: 0,
                queue: 0,
                number: turn as u32 + 5,
                offset: 0,
                payload: data.to_vec(),
            };
            assert_eq!(self.next(), expected);
            self.done(1);
        }
    }

    fn writes(&mut self, peer: PeerId) {
        for (offset, bytes) in [(0, 0), (5, 1), (8, 8), (3, 1001), (0, 16 << 10), (64, 100_000), (1, 300_000)] {
            let remote = RemoteRange { key: 0xcafe_0001, address: 0x1_0000_0007 };
            self.node.fabric.post(&[Work::Write { peer, tag: 2, local: self.local(offset, bytes), remote }]).unwrap();
            let mut arrived = Vec::new();
            loop {
                let Segment::Tagged { last, opcode: 0, stag: 0xcafe_0001, offset, payload } = self.next() else {
                    panic!("a write is made of writes");
                };
                assert_eq!(offset, remote.address + arrived.len() as u64);
                assert!(last || payload.len() % 8 == 0, "{} bytes: a word would be of two moments", payload.len());
                arrived.extend(payload);
                if last {
                    break;
                }
            }
            assert!(arrived == self.memory.get(offset, bytes as usize), "{bytes} bytes");
            self.done(2);
        }
    }

    fn reads(&mut self, peer: PeerId) {
        let bytes = 5000;
        let remote = RemoteRange { key: 0xcafe_0002, address: 0x2_0000_0003 };
        self.node.fabric.post(&[Work::Read { peer, tag: 3, local: self.local(9, bytes), remote }]).unwrap();
        let Segment::Untagged { last: true, opcode: 1, word: 0, queue: 1, number: turn, offset: 0, payload } =
            self.next()
        else {
            panic!("a read request");
        };
        assert_eq!(payload.len(), 28);
        assert_eq!(number(&payload[12..16]), bytes);
        assert_eq!(number(&payload[16..20]), 0xcafe_0002);
        assert_eq!(number(&payload[20..28]), 0x2_0000_0003);
        assert!(turn == 1 || turn == 2, "the ready message may have been the first");
        let (stag, offset) = (number(&payload[..4]) as u32, number(&payload[4..12]));
        let content = pattern(99, bytes as usize);
        let (first, second) = content.split_at(1999);
        self.answer(&Segment::Tagged { last: false, opcode: 2, stag, offset, payload: first.to_vec() });
        let offset = offset + first.len() as u64;
        self.answer(&Segment::Tagged { last: true, opcode: 2, stag, offset, payload: second.to_vec() });
        self.done(3);
        assert!(self.memory.get(9, bytes as usize) == content);
    }

    /// Sends to the fabric, which requests no markers in these tests (so that `wire` may use plain frames).
    fn answer(&mut self, segment: &Segment) {
        assert!(self.wire.segment(segment));
    }

    fn atomics(&mut self, peer: PeerId) {
        let remote = RemoteRange { key: 0xcafe_0003, address: 0x3_0000_0008 };
        let swap = Work::CompareSwap { peer, tag: 4, remote, compare: 0x1111, swap: 0x2222 };
        let add = Work::FetchAdd { peer, tag: 5, remote, add: 0x3333 };
        self.node.fabric.post(&[swap, add]).unwrap();
        let ones = [0xff; 8];
        for (turn, (kind, operands)) in [
            (2_u32, [0x2222_u64.to_be_bytes(), ones, 0x1111_u64.to_be_bytes(), ones]),
            (0, [0x3333_u64.to_be_bytes(), [0; 8], [0; 8], [0; 8]]),
        ]
        .into_iter()
        .enumerate()
        {
            let Segment::Untagged { last: true, opcode: 10, word: 0, queue: 1, offset: 0, payload, .. } = self.next()
            else {
                panic!("an atomic request");
            };
            assert_eq!(payload.len(), 52);
            assert_eq!(number(&payload[..4]), u64::from(kind));
            assert_eq!(number(&payload[8..12]), 0xcafe_0003);
            assert_eq!(number(&payload[12..20]), 0x3_0000_0008);
            assert_eq!(payload[20..], operands.concat());
            let mut reply = payload[4..8].to_vec();
            reply.extend((turn as u64 + 70).to_be_bytes());
            let number = turn as u32 + 1;
            self.answer(&Segment::Untagged {
                last: true,
                opcode: 11,
                word: 0,
                queue: 3,
                number,
                offset: 0,
                payload: reply,
            });
        }
        assert_eq!(wait(&mut self.node, |node| node.done(4)), Ok(70));
        assert_eq!(wait(&mut self.node, |node| node.done(5)), Ok(71));
    }
}

fn config(crc: bool, revision: Revision) -> IwarpConfig {
    let mut config = IwarpConfig::default();
    config.crc = crc;
    config.revision = revision;
    config.reads_inbound = 0x123;
    config.reads_outbound = 0x45;
    config
}

#[test]
fn revision_one_follows_rfc_5044() {
    // If this failed, the kernel's iWARP and adapters would not understand us.
    let expected = (CRC, 1, b"hello".to_vec());
    rig(config(true, Revision::One), &start(false, CRC, 1, b"welcome"), expected, true, false).everything();
}

#[test]
fn either_side_can_request_the_crc() {
    // If this failed, a peer that insists on checksums would get none, or see each of ours as wrong.
    let expected = (0, 1, b"hello".to_vec());
    rig(config(false, Revision::One), &start(false, CRC, 1, b"welcome"), expected.clone(), true, false).everything();
    rig(config(false, Revision::One), &start(false, 0, 1, b"welcome"), expected, false, false).everything();
    let expected = (CRC, 1, b"hello".to_vec());
    rig(config(true, Revision::One), &start(false, 0, 1, b"welcome"), expected, true, false).everything();
}

#[test]
fn markers_are_inserted_at_the_peers_request() {
    // If this failed, adapters that insist on markers could not be peers.
    for crc in [true, false] {
        let expected = (if crc { CRC } else { 0 }, 1, b"hello".to_vec());
        let flags = MARKERS | expected.0;
        rig(config(crc, Revision::One), &start(false, flags, 1, b"welcome"), expected, crc, true).everything();
    }
}

#[test]
fn revision_two_negotiates_reads_and_ready_message() {
    // If this failed, peer-to-peer connections to adapters would hang, or more reads be sent than they accept.
    let private = |bits: [u8; 4], rest: &[u8]| [&bits[..], rest].concat();
    let expected = (CRC | ENHANCED, 2, private([0x81, 0x23, 0xc0, 0x45], b"hello"));
    for (bits, ready) in [([0x80, 4, 0x80, 4], Some(0)), ([0x80, 4, 0x40, 4], Some(1)), ([0, 4, 0, 4], None)] {
        let answer = start(false, CRC | ENHANCED, 2, &private(bits, b"welcome"));
        let mut rig = rig(config(true, Revision::Two), &answer, expected.clone(), true, false);
        match ready {
            Some(0) => {
                let empty = Segment::Tagged { last: true, opcode: 0, stag: 0, offset: 0, payload: vec![] };
                assert_eq!(rig.next(), empty, "ready by a write of nothing");
            }
            Some(_) => {
                let request = rig.next();
                assert!(matches!(request, Segment::Untagged { opcode: 1, queue: 1, number: 1, .. }));
                assert_eq!(number(&request.payload()[12..16]), 0, "ready by a read of nothing");
                let stag = number(&request.payload()[..4]) as u32;
                rig.answer(&Segment::Tagged { last: true, opcode: 2, stag, offset: 0, payload: vec![] });
            }
            None => {}
        }
        rig.everything();
        let peer = rig.peer;
        let remote = RemoteRange { key: 1, address: 0 };
        let reads: Vec<Work<'_>> = (0..7).map(|tag| Work::Read { peer, tag, local: rig.local(0, 8), remote }).collect();
        rig.node.fabric.post(&reads).unwrap();
        for _ in 0..4 {
            rig.next();
        }
        for _ in 0..200 {
            rig.node.poll();
            rig.wire.receive();
        }
        assert_eq!(rig.wire.next(), None, "no more reads under way than the peer takes");
    }
    // A peer that only knows revision 1 gets revision 1.
    let answer = start(false, CRC, 1, b"welcome");
    rig(config(true, Revision::Two), &answer, expected, true, false).everything();
}

#[test]
fn answers_follow_the_rfcs() {
    // If this failed, other implementations could not read from us. Exclusive memory is sent in place, summed or not.
    let kinds = [(true, false), (false, false), (true, true), (false, true)];
    for ((crc, markers), trust) in kinds.into_iter().flat_map(|kind| [(kind, Trust::Sealed), (kind, Trust::Exclusive)])
    {
        let mut config = IwarpConfig::default();
        config.crc = crc;
        let mut node = Node::new(Iwarp::new(config).unwrap());
        node.trust = trust;
        let address = node.fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let memory = Memory::new(1 << 20);
        memory.set(0, &pattern(3, 1 << 20));
        let region = node.register(&memory);
        let mut wire = Wire::connect(address);
        let flags = if crc { CRC } else { 0 } | if markers { MARKERS } else { 0 };
        let bits = [0xc0, 8, 0xc0, 8];
        wire.send(&start(true, flags | ENHANCED, 2, &[&bits[..], b"hey"].concat()));
        let asked = wait(&mut node, |node| node.take(|seen| matches!(seen, OwnedEvent::ConnectRequest { .. })));
        let OwnedEvent::ConnectRequest { peer, hello } = asked else { unreachable!() };
        assert_eq!(hello, b"hey");
        let window = node.fabric.expose(peer, region, 4096, 500_000, ALL).unwrap();
        node.fabric.accept(peer, b"ho").unwrap();
        let reply = wait(&mut node, |_| {
            wire.receive();
            wire.start(false)
        });
        let ours = if crc { CRC } else { 0 };
        // 256 inbound reads, 8 outbound as requested; peer to peer, ready by a write.
        assert_eq!(reply, (ours | ENHANCED, 2, [&[0x81, 0, 0x80, 8][..], b"ho"].concat()));
        wire.crc = crc;
        wire.markers = markers;
        node.fabric.post(&[Work::Immediate { peer, tag: 0, data: [0; 8], solicited: false }]).unwrap_err();
        wire.segment(&Segment::Tagged { last: true, opcode: 0, stag: 0, offset: 0, payload: vec![] });
        wait(&mut node, |node| node.take(|seen| matches!(seen, OwnedEvent::Connected { .. })));
        for (turn, bytes) in [8_u32, 0, 5000, 70_000, 400_001].into_iter().enumerate() {
            let sink = 0x77_u64 << 40;
            let mut body = 0xfeed_u32.to_be_bytes().to_vec();
            body.extend(sink.to_be_bytes());
            body.extend(bytes.to_be_bytes());
            body.extend(window.key.to_be_bytes());
            body.extend((window.base + 3).to_be_bytes());
            let turn = turn as u32 + 1;
            wire.segment(&Segment::Untagged {
                last: true,
                opcode: 1,
                word: 0,
                queue: 1,
                number: turn,
                offset: 0,
                payload: body,
            });
            let mut arrived = Vec::new();
            loop {
                let segment = wait(&mut node, |_| {
                    wire.receive();
                    wire.next()
                });
                let Segment::Tagged { last, opcode: 2, stag: 0xfeed, offset, payload } = segment else {
                    panic!("a read response is made of read responses");
                };
                assert_eq!(offset, sink + arrived.len() as u64);
                assert!(last || payload.len() % 8 == 0, "{} bytes: a word would be of two moments", payload.len());
                arrived.extend(payload);
                if last {
                    break;
                }
            }
            assert!(arrived == memory.get(4096 + 3, bytes as usize), "{bytes} bytes");
        }
    }
}

#[test]
fn empty_answer_may_arrive_in_two_pieces() {
    // If this failed, an empty read would never complete, and the next read would break the connection. Found by the
    // fuzzer: the header of an empty segment was parsed, but its completion went unnoticed.
    let expected = (0, 1, b"hello".to_vec());
    let answer = start(false, 0, 1, b"welcome");
    let mut rig = rig(config(false, Revision::One), &answer, expected, false, false);
    let peer = rig.peer;
    let remote = RemoteRange { key: 1, address: 0 };
    let reads = [0, 8].map(|bytes| Work::Read { peer, tag: bytes, local: rig.local(0, bytes), remote });
    rig.node.fabric.post(&reads).unwrap();
    for bytes in [0_usize, 8] {
        let request = rig.next();
        let (stag, offset) = (number(&request.payload()[..4]) as u32, number(&request.payload()[4..12]));
        let segment = Segment::Tagged { last: true, opcode: 2, stag, offset, payload: vec![1; bytes] };
        for piece in wire::frame(&segment.bytes(), false).chunks(16) {
            rig.wire.send(piece);
            for _ in 0..50 {
                rig.node.poll();
            }
        }
        rig.done(bytes as u64);
    }
}

/// Connects a rig with CRC and posts a read of `bytes` bytes to `offset`; returns the frame that answers it and its
/// payload.
fn asked_with_crc(offset: u64, bytes: usize) -> (Rig, Vec<u8>, Vec<u8>) {
    let expected = (CRC, 1, b"hello".to_vec());
    let answer = start(false, CRC, 1, b"welcome");
    let mut rig = rig(config(true, Revision::One), &answer, expected, true, false);
    let remote = RemoteRange { key: 1, address: 0 };
    let local = rig.local(offset, bytes as u64);
    rig.node.fabric.post(&[Work::Read { peer: rig.peer, tag: 1, local, remote }]).unwrap();
    let request = rig.next();
    let (stag, offset) = (number(&request.payload()[..4]) as u32, number(&request.payload()[4..12]));
    let payload = pattern(77, bytes);
    let segment = Segment::Tagged { last: true, opcode: 2, stag, offset, payload: payload.clone() };
    (rig, wire::frame(&segment.bytes(), true), payload)
}

impl Rig {
    fn deliver(&mut self, piece: &[u8]) {
        self.wire.send(piece);
        for _ in 0..50 {
            self.node.poll();
        }
    }
}

#[test]
fn answer_is_independent_of_stream_cuts() {
    // If this failed, a stream that the network cuts differently would deliver other bytes, or break the connection.
    for (offset, bytes) in [(0, 1200), (3, 5001), (64, 16_384)] {
        for piece in [7, 61, 500, 1021, 4096] {
            let (mut rig, frame, payload) = asked_with_crc(offset, bytes);
            let (all, trailer) = frame.split_at(frame.len() - 3);
            all.chunks(piece).for_each(|piece| rig.deliver(piece));
            assert_eq!(rig.node.done(1), None, "it is not done before its sum is right");
            rig.deliver(trailer);
            rig.done(1);
            assert!(rig.memory.get(offset, bytes) == payload, "{bytes} bytes at {offset} in pieces of {piece}");
            let behind = offset + bytes as u64;
            assert!(rig.memory.get(behind, 100) == pattern(1, 1 << 20)[behind as usize..][..100], "nothing behind it");
        }
    }
}

#[test]
fn damaged_answer_in_pieces_never_completes() {
    // If this failed, damaged bytes would be delivered to a client.
    let length = wire::frame(&[0; 14], true).len() - 4;
    for damaged in [length + 10, length + 3000, length + 5000, 5020] {
        let (mut rig, mut frame, _) = asked_with_crc(0, 5001);
        frame[damaged] ^= 0x10;
        frame.chunks(999).for_each(|piece| rig.deliver(piece));
        let peer = rig.peer;
        let reason = wait(&mut rig.node, |node| node.closed(peer));
        assert!(matches!(reason, CloseReason::ProtocolViolation(_)), "{reason:?}");
        assert!(matches!(rig.node.done(1), Some(Err(_))), "damaged at {damaged}");
    }
}

#[test]
fn read_abandoned_in_the_middle_stops_touching_memory() {
    // If this failed, a late answer would overwrite memory that a client has reused.
    let (mut rig, frame, payload) = asked_with_crc(0, 5000);
    let (begin, rest) = frame.split_at(2016);
    rig.deliver(begin);
    assert!(rig.node.fabric.abandon(rig.peer, 1));
    rig.memory.set(0, &vec![9; 5000]);
    rig.deliver(rest);
    assert!(rig.memory.get(0, 5000) == vec![9; 5000]);
    // The connection still works.
    let remote = RemoteRange { key: 1, address: 0 };
    let local = rig.local(8, 5000);
    rig.node.fabric.post(&[Work::Read { peer: rig.peer, tag: 2, local, remote }]).unwrap();
    let request = rig.next();
    let (stag, offset) = (number(&request.payload()[..4]) as u32, number(&request.payload()[4..12]));
    rig.answer(&Segment::Tagged { last: true, opcode: 2, stag, offset, payload: payload.clone() });
    rig.done(2);
    assert!(rig.memory.get(8, 5000) == payload);
}

#[test]
fn answering_a_read_counts_as_activity() {
    // If this failed, a home that other nodes read from would fall asleep between their reads, and each read would
    // have to wake it: half as long again for large ones.
    let mut home = Home::new(wire::accepting::config(|_| {}));
    let (mut wire, _, window) = home.meet(CRC);
    let poll = |home: &mut Home| {
        assert_eq!(home.node.poll(), 0, "a peer's read causes no event");
        home.node.fabric.has_moved_bytes()
    };
    home.wait("silence", |node| {
        node.poll();
        (!node.fabric.has_moved_bytes()).then_some(())
    });
    wire.segment(&untagged(1, 1, 1, &read_request(100, window.key, window.base)));
    let begin = Instant::now();
    while !poll(&mut home) {
        assert!(begin.elapsed() < WAIT_MAX, "it never looks");
        std::hint::spin_loop();
    }
    let answer = home.wait("the answer", |_| {
        wire.receive();
        wire.next()
    });
    assert_eq!((answer.opcode(), answer.payload().len()), (2, 100));
    for _ in 0..3 {
        poll(&mut home);
    }
    assert!(!poll(&mut home), "nothing comes any more");
}
