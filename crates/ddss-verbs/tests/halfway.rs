//! Peers that take their time, and answers that end in the middle.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
mod wire;

use std::io::Read;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use common::{Memory, Node, PATIENCE, Seen, pattern};
use ddss_verbs::{CloseReason, Fabric, Iwarp, LocalRange, PeerId, RemoteRange, Revision, Work, WorkError};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use wire::away::{reach_by, reached, until};
use wire::home::{config, tagged};
use wire::{CRC, Wire, number, start};

const REMOTE: RemoteRange = RemoteRange { key: 77, address: 0 };
/// How long a peer may take nothing.
const STALL: Duration = Duration::from_millis(200);
/// What the slow peer takes at a time, and between two times.
const LITTLE: usize = 1 << 10;
const PAUSE: Duration = Duration::from_millis(20);
/// What it can hold, about as little as there is: TCP tells the sender of room only when a good part of that is free again, so
/// that it hears of one in some three of the times that something was taken.
const HELD: usize = 2304;

/// A fabric with much to send to a peer that holds few bytes, once there is no room for more of them.
fn full() -> (Node<Iwarp>, PeerId, Wire) {
    let config = config(|config| {
        config.revision = Revision::One;
        config.stall_timeout = STALL;
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    set_socket_recv_buffer_size(&listener, HELD).unwrap();
    let (mut node, peer, wire) = reach_by(&listener, config, Some(start(false, CRC, 1, b"")));
    until(&mut node, "the connection", |node| node.take(|seen| matches!(seen, Seen::Connected { .. })));
    let region = node.register(&Memory::new(16 << 20));
    let local = LocalRange { region, offset: 0, bytes: 16 << 20 };
    node.fabric.post(&[Work::Write { peer, tag: 1, local, remote: REMOTE }]).unwrap();
    until(&mut node, "the socket to be full", |node| node.fabric.next_deadline().map(|_| ()));
    (node, peer, wire)
}

/// Takes a little now and then, many times as long as it may take nothing. Returns the longest pause that there was in fact:
/// the machine may have had us wait as well.
fn take_little(node: &mut Node<Iwarp>, wire: &mut Wire) -> Duration {
    let begin = Instant::now();
    let (mut last, mut longest) = (begin, Duration::ZERO);
    let mut room = [0; LITTLE];
    while begin.elapsed() < 6 * STALL && node.seen.is_empty() {
        if last.elapsed() >= PAUSE && wire.stream.read(&mut room).is_ok_and(|count| count > 0) {
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        node.poll();
    }
    longest.max(last.elapsed())
}

#[test]
fn a_peer_that_takes_a_little_now_and_then_is_kept() {
    // If this failed, a busy node or a narrow network would cost the connection, and with it everything under way, again and
    // again.
    let begin = Instant::now();
    loop {
        let (mut node, peer, mut wire) = full();
        let longest = take_little(&mut node, &mut wire);
        if node.seen.is_empty() {
            assert!(node.fabric.next_deadline().is_some(), "all that time there was more to send than it took");
            // Once it takes nothing any more, it is given up.
            assert_eq!(until(&mut node, "giving up", |node| node.closed(peer)), CloseReason::Late);
            assert_eq!(node.done(1), Some(Err(WorkError::Unknown)));
            return;
        }
        assert!(longest > 2 * PAUSE, "given up although it took something each {longest:?}: {:?}", node.seen);
        assert!(begin.elapsed() < PATIENCE, "this machine stood still again and again");
    }
}

#[test]
fn a_cut_in_the_middle_of_an_answer_tells_each_operation_what_is_known_of_it() {
    // If this failed, a home that dies while it answers would leave calls without an end, or with the wrong one, and the
    // memory that they were for mapped for ever.
    for crc in [true, false] {
        let config = config(|config| {
            config.revision = Revision::One;
            config.crc = crc;
            config.reads_outbound = 2;
        });
        let (mut node, peer, mut wire) = reached(config, start(false, if crc { CRC } else { 0 }, 1, b""));
        let memory = Memory::new(1 << 16);
        memory.set(0, &[6; 1 << 16]);
        let region = node.register(&memory);
        let local = |offset, bytes| LocalRange { region, offset, bytes };
        let read = |tag, offset| Work::Read { peer, tag, local: local(offset, 5000), remote: REMOTE };
        let write = |tag| Work::Write { peer, tag, local: local(0, 8), remote: REMOTE };
        // The first write is taken at once, two reads are asked for, one waits for its turn and a write behind it.
        node.fabric.post(&[write(0), read(1, 0), read(2, 8192), read(3, 16_384), write(4)]).unwrap();
        let mut requests = Vec::new();
        until(&mut node, "the requests", |_| {
            wire.receive();
            requests.extend(std::iter::from_fn(|| wire.next()));
            (requests.len() == 3).then_some(())
        });
        assert_eq!(node.seen, [Seen::Done { peer, tag: 0, outcome: Ok(0) }]);
        node.seen.clear();
        let body = requests[1].payload();
        let value = pattern(1, 5000);
        let answer = wire.frame(&tagged(2, number(&body[..4]) as u32, number(&body[4..12]), &value).bytes());
        wire.send(&answer[..3000]);
        // What comes is placed as it comes, a cache line or more at a time.
        until(&mut node, "the start of it", |_| (memory.get(0, 2048) == value[..2048]).then_some(()));
        node.fabric.deregister(region);
        assert_eq!(node.fabric.regions_mapped(), 1, "four operations still need it");
        drop(wire);
        let reason = until(&mut node, "the end", |node| node.closed(peer));
        assert!(matches!(reason, CloseReason::Gone | CloseReason::Lost(_)), "{reason:?}");
        let unknown = Some(Err(WorkError::Unknown));
        let not_done = Some(Err(WorkError::NotDone));
        assert_eq!([1, 2, 3, 4].map(|tag| node.done(tag)), [unknown, unknown, not_done, not_done]);
        assert_eq!(node.seen, [], "each is told once");
        assert_eq!((node.fabric.regions_mapped(), node.fabric.sockets_open()), (0, 0), "nothing holds anything");
        assert_eq!(memory.get(3000, 1 << 15), [6; 1 << 15], "nothing is touched that did not come");
    }
}
