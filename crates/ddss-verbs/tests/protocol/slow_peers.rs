//! Slow peers, and answers that end in the middle.

use std::io::Read;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::common::{Memory, Node, OwnedEvent, WAIT_MAX, pattern};
use crate::wire::accepting::{config, tagged};
use crate::wire::connecting::{reach_by, reached, until};
use crate::wire::{CRC, Wire, number, start};
use ddss_verbs::{CloseReason, Fabric, Iwarp, LocalRange, PeerId, RemoteRange, Revision, Work, WorkError};
use rustix::net::sockopt::set_socket_recv_buffer_size;

const REMOTE: RemoteRange = RemoteRange { key: 77, address: 0 };
/// Stall timeout.
const STALL: Duration = Duration::from_millis(200);
/// Bytes that the slow peer reads at a time, and its pause.
const LITTLE: usize = 1 << 10;
const PAUSE: Duration = Duration::from_millis(20);
/// Receive buffer, about the minimum. TCP announces room only when a good part of the buffer is free again, so the
/// sender learns of about one in three reads.
const HELD: usize = 2304;

/// Creates a fabric with much to send to a peer with a small buffer, once that buffer is full.
fn full() -> (Node<Iwarp>, PeerId, Wire) {
    let config = config(|config| {
        config.revision = Revision::One;
        config.stall_timeout = STALL;
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    set_socket_recv_buffer_size(&listener, HELD).unwrap();
    let (mut node, peer, wire) = reach_by(&listener, config, Some(start(false, CRC, 1, b"")));
    until(&mut node, "the connection", |node| node.take(|seen| matches!(seen, OwnedEvent::Connected { .. })));
    let region = node.register(&Memory::new(16 << 20));
    let local = LocalRange { region, offset: 0, bytes: 16 << 20 };
    node.fabric.post(&[Work::Write { peer, tag: 1, local, remote: REMOTE }]).unwrap();
    until(&mut node, "the socket to be full", |node| node.fabric.next_deadline().map(|_| ()));
    (node, peer, wire)
}

/// Reads a little now and then, for many times the stall timeout. Returns the longest pause, which the machine may
/// have caused.
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
fn slow_peer_is_kept_while_it_makes_progress() {
    // If this failed, a busy node or a narrow network would break the connection and everything in flight, again and
    // again.
    let begin = Instant::now();
    loop {
        let (mut node, peer, mut wire) = full();
        let longest = take_little(&mut node, &mut wire);
        if node.seen.is_empty() {
            assert!(node.fabric.next_deadline().is_some(), "all that time there was more to send than it took");
            // A peer that stops reading is given up.
            assert_eq!(until(&mut node, "giving up", |node| node.closed(peer)), CloseReason::TimedOut);
            assert_eq!(node.done(1), Some(Err(WorkError::Indeterminate)));
            return;
        }
        assert!(longest > 2 * PAUSE, "given up although it took something each {longest:?}: {:?}", node.seen);
        assert!(begin.elapsed() < WAIT_MAX, "this machine stood still again and again");
    }
}

#[test]
fn connection_cut_within_an_answer_completes_each_operation() {
    // If this failed, a home that dies while it answers would leave calls without an end, or with a wrong one, and
    // their memory mapped forever.
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
        // The first write is sent immediately, two reads are requested, one read and a write wait.
        node.fabric.post(&[write(0), read(1, 0), read(2, 8192), read(3, 16_384), write(4)]).unwrap();
        let mut requests = Vec::new();
        until(&mut node, "the requests", |_| {
            wire.receive();
            requests.extend(std::iter::from_fn(|| wire.next()));
            (requests.len() == 3).then_some(())
        });
        assert_eq!(node.seen, [OwnedEvent::Done { peer, tag: 0, outcome: Ok(0) }]);
        node.seen.clear();
        let body = requests[1].payload();
        let value = pattern(1, 5000);
        let answer = wire.frame(&tagged(2, number(&body[..4]) as u32, number(&body[4..12]), &value).bytes());
        wire.send(&answer[..3000]);
        // Payload is placed on arrival, in pieces of a cache line or more.
        until(&mut node, "the start of it", |_| (memory.get(0, 2048) == value[..2048]).then_some(()));
        node.fabric.deregister(region);
        assert_eq!(node.fabric.mapped_region_count(), 1, "four operations still need it");
        drop(wire);
        let reason = until(&mut node, "the end", |node| node.closed(peer));
        assert!(matches!(reason, CloseReason::ClosedByPeer | CloseReason::Lost(_)), "{reason:?}");
        let unknown = Some(Err(WorkError::Indeterminate));
        let not_done = Some(Err(WorkError::NotExecuted));
        assert_eq!([1, 2, 3, 4].map(|tag| node.done(tag)), [unknown, unknown, not_done, not_done]);
        assert_eq!(node.seen, [], "each completes once");
        assert_eq!(
            (node.fabric.mapped_region_count(), node.fabric.open_socket_count()),
            (0, 0),
            "nothing holds anything"
        );
        assert_eq!(memory.get(3000, 1 << 15), [6; 1 << 15], "nothing is touched that did not come");
    }
}
