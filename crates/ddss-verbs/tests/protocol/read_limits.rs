//! Limit on local reads and atomics in flight: the minimum of the peer's limit and the configured one.

use std::collections::VecDeque;

use crate::common::{Memory, Node, OwnedEvent};
use crate::wire::accepting::{Home, config, tagged, untagged};
use crate::wire::connecting::{reached, until};
use crate::wire::{CRC, ENHANCED, Segment, Wire, number, start};
use ddss_verbs::{
    Fabric, Iwarp, IwarpConfig, LocalRange, PeerId, PostError, PostErrorKind, RegionId, RemoteRange, Revision,
    SendMode, Work,
};

/// Operations posted together.
const COUNT: usize = 9;
/// Polls without a request after which none is expected.
const SILENCE: usize = 200;

/// A connected fabric with a raw socket as peer.
struct Reader {
    node: Node<Iwarp>,
    peer: PeerId,
    wire: Wire,
    region: RegionId,
}

fn limited(reads_outbound: u16, revision: Revision) -> IwarpConfig {
    config(|config| {
        config.reads_outbound = reads_outbound;
        config.revision = revision;
    })
}

/// Encodes the read limits of revision 2: inbound, outbound, and the flags above them.
fn limits(ird: u16, ord: u16, flags: [u16; 2]) -> Vec<u8> {
    [(ird | flags[0]).to_be_bytes(), (ord | flags[1]).to_be_bytes()].concat()
}

const PEER_TO_PEER: u16 = 0x8000;
const BY_WRITE: u16 = 0x8000;

impl Reader {
    /// Connects to a raw socket.
    fn connects(config: IwarpConfig, answer: Vec<u8>) -> Self {
        let (mut node, peer, wire) = reached(config, answer);
        let region = node.register(&Memory::new(4096));
        Self { node, peer, wire, region }
    }

    /// Accepts a raw socket; also returns the reply.
    fn accepts(config: IwarpConfig, request: &[u8], first: &Segment) -> (Self, Vec<u8>) {
        let mut home = Home::new(config);
        let mut wire = Wire::connect(home.address);
        wire.send(request);
        let peer = home.asked();
        home.node.fabric.accept(peer, b"").unwrap();
        let (_, _, reply) = home.wait("the reply", |_| {
            wire.receive();
            wire.start(false)
        });
        wire.segment(first);
        home.wait("to be connected", |node| node.take(|seen| matches!(seen, OwnedEvent::Connected { .. })));
        if first.opcode() == 3 {
            home.wait("the message", Node::message);
        }
        (Self { node: home.node, peer, wire, region: home.region }, reply)
    }

    fn work(&self, kind: usize, tag: u64) -> Work<'static> {
        let (peer, remote) = (self.peer, RemoteRange { key: 7, address: 8 });
        match kind {
            0 => Work::FetchAdd { peer, tag, remote, add: 1 },
            1 => Work::CompareSwap { peer, tag, remote, compare: 1, swap: 2 },
            _ => Work::Read { peer, tag, local: LocalRange { region: self.region, offset: 0, bytes: 8 }, remote },
        }
    }

    /// Returns the next request of the fabric.
    fn request(&mut self) -> Segment {
        let wire = &mut self.wire;
        until(&mut self.node, "a request", |_| {
            wire.receive();
            wire.next()
        })
    }

    /// Answers a request; `atomics` counts the answered atomics.
    fn answer(&mut self, request: &Segment, atomics: &mut u32) {
        let body = request.payload();
        let answer = if request.opcode() == 1 {
            tagged(2, number(&body[..4]) as u32, number(&body[4..12]), &[1; 8])
        } else {
            *atomics += 1;
            untagged(11, 3, *atomics, &[&body[4..8], &[0; 8]].concat())
        };
        self.wire.segment(&answer);
    }

    /// Checks that `limit` of the posted operations are in flight and each answer releases exactly one more. `first`
    /// is the first kind in the rotation.
    fn holds_to(&mut self, what: &str, limit: usize, first: usize) {
        let works: Vec<Work<'_>> = (0..COUNT).map(|turn| self.work((first + turn) % 4, turn as u64)).collect();
        self.node.fabric.post(&works).unwrap();
        let mut open = VecDeque::new();
        let (mut asked, mut atomics) = (0, 0);
        for answered in 0..=COUNT {
            while asked < COUNT.min(limit + answered) {
                open.push_back(self.request());
                asked += 1;
            }
            for _ in 0..SILENCE {
                self.node.poll();
                self.wire.receive();
            }
            assert_eq!(self.wire.next(), None, "{what}: no more than {limit} after {answered} answers");
            let Some(request) = open.pop_front() else { break };
            self.answer(&request, &mut atomics);
            assert_eq!(until(&mut self.node, "the end of it", |node| node.done(answered as u64)), Ok(0), "{what}");
        }
        assert_eq!((asked, self.node.seen.len()), (COUNT, 0), "{what}");
    }
}

#[test]
fn accepting_side_respects_the_peers_read_limit() {
    // If this failed, a home that reads from a connecting peer would exceed its limit and lose the connection;
    // adapters accept few.
    let empty = tagged(0, 0, 0, b"");
    let hello = untagged(3, 0, 1, b"hello");
    let cases = [
        // Configured limit, peer's limit, resulting limit.
        ("the other side takes less", 256, 3, 3),
        ("the other side takes one", 256, 1, 1),
        ("we want less", 2, 5, 2),
        ("the other side does not say", 4, 0x3fff, 4),
    ];
    for (what, ours, theirs, limit) in cases {
        for (flags, first) in [([PEER_TO_PEER, BY_WRITE], &empty), ([0, 0], &hello)] {
            for kind in 0..4 {
                let request = start(true, CRC | ENHANCED, 2, &limits(theirs, 9, flags));
                let (mut reader, reply) = Reader::accepts(limited(ours, Revision::Two), &request, first);
                assert_eq!(reply, limits(256, limit, flags), "{what}: it says what it will hold to");
                reader.holds_to(what, limit.into(), kind);
            }
        }
    }
}

#[test]
fn connecting_side_respects_the_peers_read_limit() {
    // If this failed, atomics, which need the same room at the peer as reads, would be unlimited.
    for (ours, theirs, limit) in [(256, 3, 3), (2, 5, 2)] {
        for kind in 0..4 {
            let answer = start(false, CRC | ENHANCED, 2, &limits(theirs, 1, [0, 0]));
            let mut reader = Reader::connects(limited(ours, Revision::Two), answer);
            reader.holds_to("it connects", limit, kind);
        }
    }
}

#[test]
fn revision_one_uses_the_configured_read_limit() {
    // If this failed, requests would be unlimited to a peer that cannot state its limit: the kernel's iWARP, an old
    // adapter.
    for limit in [1, 3] {
        for revision in [Revision::One, Revision::Two] {
            let mut reader = Reader::connects(limited(limit, revision), start(false, CRC, 1, b""));
            reader.holds_to("it connects", limit.into(), 2);
        }
        let hello = untagged(3, 0, 1, b"hello");
        let (mut reader, reply) = Reader::accepts(limited(limit, Revision::Two), &start(true, CRC, 1, b"raw"), &hello);
        assert_eq!(reply, b"");
        reader.holds_to("it accepts", limit.into(), 0);
    }
}

/// Checks that reads and atomics are refused locally and operations without an answer continue.
fn takes_none(mut reader: Reader) {
    let peer = reader.peer;
    for kind in 0..3 {
        let send = Work::Send { peer, tag: 5, message: b"still here", mode: SendMode::default() };
        let refused = reader.node.fabric.post(&[send, reader.work(kind, 6), send]);
        assert_eq!(refused, Err(PostError { index: 1, kind: PostErrorKind::NoReads }));
        assert_eq!(reader.request().payload(), b"still here");
        assert_eq!(until(&mut reader.node, "the message to be gone", |node| node.done(5)), Ok(0));
    }
    let local = LocalRange { region: reader.region, offset: 0, bytes: 8 };
    let write = Work::Write { peer, tag: 7, local, remote: RemoteRange { key: 7, address: 0 } };
    reader.node.fabric.post(&[write]).unwrap();
    assert_eq!(reader.request(), tagged(0, 7, 0, &[0; 8]));
    assert_eq!(until(&mut reader.node, "the write to be gone", |node| node.done(7)), Ok(0));
    assert_eq!(reader.node.seen, []);
}

#[test]
fn reads_of_a_peer_without_inbound_reads_are_refused_locally() {
    // If this failed, a read of such a peer would wait forever, or break the connection. It has to be refused
    // immediately, without effect on other operations.
    let config = || limited(256, Revision::Two);
    let answer = start(false, CRC | ENHANCED, 2, &limits(0, 4, [0, 0]));
    takes_none(Reader::connects(config(), answer));
    let request = start(true, CRC | ENHANCED, 2, &limits(0, 4, [PEER_TO_PEER, BY_WRITE]));
    let (reader, reply) = Reader::accepts(config(), &request, &tagged(0, 0, 0, b""));
    assert_eq!(reply, limits(256, 0, [PEER_TO_PEER, BY_WRITE]));
    takes_none(reader);
    // The same if this side is configured for none.
    takes_none(Reader::connects(limited(0, Revision::One), start(false, CRC, 1, b"")));
}
