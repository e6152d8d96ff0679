//! Faulty, hostile, slow or dead peers: each loses its own connection, with the right code, and costs nothing else.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::common::{Memory, Node, OwnedEvent, WAIT_MAX, pattern};
use crate::wire::accepting::{Home, config, tagged, untagged};
use crate::wire::connecting::{reach, until};
use crate::wire::{CRC, ENHANCED, REJECT, Segment, Wire, feed, frame, number, start};
use ddss_verbs::{
    CloseReason, Fabric, Iwarp, IwarpConfig, LocalRange, RemoteRange, Revision, SendMode, TerminateCode, Work,
    WorkError,
};

#[test]
fn malformed_requests_are_closed_without_a_leak() {
    // If this failed, any host that reaches the port could hang, confuse or fill the daemon before it is
    // authenticated.
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
        let seen = home.wait("the end", |node| node.take(|seen| matches!(seen, OwnedEvent::Closed { .. })));
        let OwnedEvent::Closed { reason, .. } = seen else { unreachable!() };
        assert_eq!(reason, CloseReason::ProtocolViolation(TerminateCode::MPA_START), "{what}");
        home.wait("the end of the stream", |_| (!wire.receive()).then_some(()));
        if answered {
            let (flags, revision, private) = wire.start(false).unwrap_or_else(|| panic!("{what}: no answer"));
            assert_eq!((flags & REJECT, private), (REJECT, vec![]), "{what}");
            assert!((1..=2).contains(&revision), "{what}");
        }
        assert_eq!(wire.inbox, b"", "{what}");
        home.assert_clean(None);
    }
}

#[test]
fn slow_handshake_succeeds_and_silent_peers_time_out() {
    // If this failed, a slow network would separate nodes, or 64 silent sockets would block all others.
    let mut home = Home::new(config(|config| config.handshake_timeout = Duration::from_millis(300)));
    let mut wire = Wire::connect(home.address);
    feed(&mut home.node, &mut wire, &start(true, CRC, 1, b"slowly"), 1);
    let peer = home.asked();
    home.node.fabric.accept(peer, b"").unwrap();
    home.wait("the reply", |_| {
        wire.receive();
        wire.start(false)
    });
    home.wait("to be connected", |node| node.take(|seen| matches!(seen, OwnedEvent::Connected { .. })));

    let mut silent: Vec<Wire> = (0..200).map(|_| Wire::connect(home.address)).collect();
    let half = start(true, CRC, 1, b"");
    for wire in &mut silent[..100] {
        wire.send(&half[..10]);
    }
    let start_of_wait = Instant::now();
    while start_of_wait.elapsed() < Duration::from_millis(100) {
        home.node.poll();
        assert!(home.node.fabric.open_socket_count() <= 65, "half-open connections are bounded");
    }
    home.wait("all but one to be closed", |node| (node.fabric.open_socket_count() == 1).then_some(()));
    assert!(home.node.seen.iter().all(|seen| matches!(
        seen,
        OwnedEvent::Closed { reason: CloseReason::TimedOut | CloseReason::ClosedByPeer, .. }
    )));
    home.node.seen.clear();
    drop(silent);
    wire.segment(&untagged(3, 0, 1, b"still here"));
    assert_eq!(home.wait("the message", Node::message), b"still here");
    home.node.fabric.close(peer);
    assert_eq!(home.closed(peer), CloseReason::Local);
    home.assert_clean(Some(&mut wire));
}

#[test]
fn frame_before_accept_is_a_violation() {
    // If this failed, a peer could read memory before it is authenticated.
    let mut home = Home::new(IwarpConfig::default());
    let mut wire = Wire::connect(home.address);
    wire.send(&[start(true, CRC, 1, b""), frame(&untagged(3, 0, 1, b"early").bytes(), true)].concat());
    let peer = home.asked();
    assert_eq!(home.closed(peer), CloseReason::ProtocolViolation(TerminateCode::MPA_START));
    assert!(home.node.fabric.accept(peer, b"").is_err());
    home.assert_clean(Some(&mut wire));
}

#[test]
fn connection_cut_within_a_frame_leaves_no_trace() {
    // If this failed, a node that dies during a write would leave half a value, or a hung reader.
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
        assert!(matches!(reason, CloseReason::ClosedByPeer | CloseReason::Lost(_)), "{reason:?}");
        if crc {
            assert_eq!(home.memory.get(0, 4096), [6; 4096], "nothing of a frame whose sum never came is placed");
        }
        home.assert_clean(None);
    }
}

#[test]
fn failing_connect_is_reported_in_time() {
    // If this failed, a node that is switched off would hang every caller of it.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let mut node = Node::new(Iwarp::new(IwarpConfig::default()).unwrap());
    let peer = node.fabric.connect(address, b"").unwrap();
    let reason = until(&mut node, "the refusal", |node| node.closed(peer));
    assert_eq!(reason, CloseReason::Unreachable(std::io::ErrorKind::ConnectionRefused));
    assert_eq!(node.fabric.open_socket_count(), 0);

    let short = || config(|config| config.handshake_timeout = Duration::from_millis(100));
    let (mut node, peer, _wire) = reach(short(), None);
    assert!(node.fabric.next_deadline().is_some());
    assert_eq!(until(&mut node, "the deadline", |node| node.closed(peer)), CloseReason::TimedOut);
    assert_eq!(node.fabric.open_socket_count(), 0);

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
        assert_eq!(reason, CloseReason::ProtocolViolation(TerminateCode::MPA_START), "{answer:?}");
    }

    // Inbound reads: the other side wants more in flight than this side accepts.
    let greedy = start(false, CRC | ENHANCED, 2, &[0x80, 16, 0x80 | 0x10, 0]);
    let (mut node, peer, _wire) = reach(short(), Some(greedy));
    let reason = until(&mut node, "the end", |node| node.closed(peer));
    assert_eq!(reason, CloseReason::ProtocolViolation(TerminateCode::MPA_IRD));
}

#[test]
fn terminate_names_the_refused_request() {
    // If this failed, an operation that never ran would be reported as indeterminate, or one that ran would be
    // retried.
    let one = config(|config| config.revision = Revision::One);
    let (mut node, peer, mut wire) = reach(one, Some(start(false, CRC, 1, b"")));
    until(&mut node, "the connection", |node| node.take(|seen| matches!(seen, OwnedEvent::Connected { .. })));
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
    // The terminate names the third request: access rights. It contains the header as received.
    let blamed = requests[2].bytes();
    let mut body = vec![0x01, 0x02, 0xe0, 0];
    body.extend((blamed.len() as u16).to_be_bytes());
    body.extend(&blamed);
    wire.segment(&untagged(7, 2, 1, &body));
    assert_eq!(
        until(&mut node, "the end", |node| node.closed(peer)),
        CloseReason::Terminated(TerminateCode::RDMAP_RIGHTS)
    );
    assert_eq!(node.done(1), Some(Err(WorkError::Indeterminate)));
    assert_eq!(node.done(2), Some(Err(WorkError::Indeterminate)));
    assert_eq!(node.done(3), Some(Err(WorkError::Refused(TerminateCode::RDMAP_RIGHTS))));
    assert_eq!(node.done(4), Some(Err(WorkError::NotExecuted)));
    assert_eq!(node.done(5), Some(Ok(0)), "the socket had taken it");
    assert_eq!(node.seen, []);
    drop(wire);
}

#[test]
fn peer_that_receives_nothing_times_out() {
    // If this failed, one stopped node would retain memory and operations of all others forever.
    let slow = config(|config| {
        config.revision = Revision::One;
        config.stall_timeout = Duration::from_millis(200);
    });
    let (mut node, peer, wire) = reach(slow, Some(start(false, CRC, 1, b"")));
    until(&mut node, "the connection", |node| node.take(|seen| matches!(seen, OwnedEvent::Connected { .. })));
    let memory = Memory::new(16 << 20);
    let region = node.register(&memory);
    let local = LocalRange { region, offset: 0, bytes: 16 << 20 };
    let remote = RemoteRange { key: 77, address: 0 };
    let writes: Vec<Work<'_>> = (0..4).map(|tag| Work::Write { peer, tag, local, remote }).collect();
    node.fabric.post(&writes).unwrap();
    node.fabric.deregister(region);
    assert_eq!(until(&mut node, "giving up", |node| node.closed(peer)), CloseReason::TimedOut);
    assert_eq!(node.done(0), Some(Err(WorkError::Indeterminate)));
    assert_eq!(node.done(3), Some(Err(WorkError::NotExecuted)));
    assert_eq!(node.fabric.open_socket_count(), 0);
    assert_eq!(node.fabric.mapped_region_count(), 0, "memory that waited for the peer is given back");
    drop(wire);
}

#[test]
fn answers_that_do_not_match_the_read_are_violations() {
    // If this failed, a hostile home could write past the memory of a get.
    type Answer = fn(u32, u64) -> Segment;
    let cases: [(&str, Answer, TerminateCode); 5] = [
        ("too long", |stag, offset| tagged(2, stag, offset, &[1; 9]), TerminateCode::DDP_BOUNDS),
        ("too short", |stag, offset| tagged(2, stag, offset, &[1; 7]), TerminateCode::DDP_BOUNDS),
        ("elsewhere", |stag, offset| tagged(2, stag, offset + 1, &[1; 8]), TerminateCode::DDP_BOUNDS),
        ("another key", |stag, offset| tagged(2, stag ^ 1, offset, &[1; 8]), TerminateCode::DDP_KEY),
        ("a write", |stag, offset| tagged(0, stag, offset, &[1; 8]), TerminateCode::DDP_KEY),
    ];
    for (what, answer, fault) in cases {
        let one = config(|config| config.revision = Revision::One);
        let (mut node, peer, mut wire) = reach(one, Some(start(false, CRC, 1, b"")));
        until(&mut node, "the connection", |node| node.take(|seen| matches!(seen, OwnedEvent::Connected { .. })));
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
        assert_eq!(
            until(&mut node, "the end", |node| node.closed(peer)),
            CloseReason::ProtocolViolation(fault),
            "{what}"
        );
        assert_eq!(node.done(1), Some(Err(WorkError::Indeterminate)), "{what}");
        assert_eq!(memory.get(0, 4096), [0; 4096], "{what}");
    }
}

#[test]
fn message_completes_after_the_socket_accepted_it() {
    // If this failed, a message would be reported as sent although its end is lost when the connection breaks.
    let one = config(|config| config.revision = Revision::One);
    let (mut node, peer, mut wire) = reach(one, Some(start(false, CRC, 1, b"")));
    until(&mut node, "the connection", |node| node.take(|seen| matches!(seen, OwnedEvent::Connected { .. })));
    let message = pattern(1, 501);
    let mut idle = 0;
    while idle < 2000 {
        let work = Work::Send { peer, tag: 1, message: &message, mode: SendMode::default() };
        let posted = node.fabric.post(&[work; 8]).is_ok();
        idle = if posted || node.poll() > 0 { 0 } else { idle + 1 };
    }
    let reported = node.seen.iter().filter(|seen| matches!(seen, OwnedEvent::Done { outcome: Ok(0), .. })).count();
    assert!(reported > 100, "{reported} messages were sent before the socket was full");
    // The fabric is not polled from here on: every message that was reported as sent has to be there already.
    let begin = Instant::now();
    let mut arrived = 0;
    while arrived < reported {
        wire.receive();
        while let Some(segment) = wire.next() {
            assert_eq!(segment.payload(), message);
            arrived += 1;
        }
        assert!(begin.elapsed() < WAIT_MAX, "{reported} were reported as sent, {arrived} arrived");
    }
}

#[test]
fn large_answer_with_a_bad_crc_is_rejected() {
    // If this failed, bytes that the network damaged would reach a client as a valid get.
    let one = config(|config| config.revision = Revision::One);
    let (mut node, peer, mut wire) = reach(one, Some(start(false, CRC, 1, b"")));
    until(&mut node, "the connection", |node| node.take(|seen| matches!(seen, OwnedEvent::Connected { .. })));
    let memory = Memory::new(1 << 16);
    let region = node.register(&memory);
    let local = LocalRange { region, offset: 0, bytes: 8000 };
    let remote = RemoteRange { key: 7, address: 0 };
    node.fabric.post(&[Work::Read { peer, tag: 1, local, remote }]).unwrap();
    let request = until(&mut node, "the request", |_| {
        wire.receive();
        wire.next()
    });
    let stag = number(&request.payload()[..4]) as u32;
    let mut answer = frame(&tagged(2, stag, 0, &pattern(1, 8000)).bytes(), true);
    answer[5000] ^= 0x10;
    wire.send(&answer);
    assert_eq!(
        until(&mut node, "the end", |node| node.closed(peer)),
        CloseReason::ProtocolViolation(TerminateCode::MPA_CRC)
    );
    assert_eq!(node.done(1), Some(Err(WorkError::Indeterminate)));
    assert_eq!(memory.get(8000, 4096), [0; 4096], "nothing beyond the read is touched");
}

#[test]
fn abandoned_read_releases_its_memory_at_once() {
    // If this failed, the memory of each client that died during a get would stay mapped.
    let one = config(|config| {
        config.revision = Revision::One;
        config.reads_outbound = 1;
    });
    let (mut node, peer, wire) = reach(one, Some(start(false, CRC, 1, b"")));
    until(&mut node, "the connection", |node| node.take(|seen| matches!(seen, OwnedEvent::Connected { .. })));
    let region = node.register(&Memory::new(4096));
    let local = LocalRange { region, offset: 0, bytes: 8 };
    let remote = RemoteRange { key: 7, address: 0 };
    // The first read is requested, the second one waits for its turn.
    let reads = [1, 2].map(|tag| Work::Read { peer, tag, local, remote });
    node.fabric.post(&reads).unwrap();
    node.fabric.deregister(region);
    assert_eq!(node.fabric.mapped_region_count(), 1);
    assert!(node.fabric.abandon(peer, 1) && node.fabric.abandon(peer, 2));
    assert_eq!(node.fabric.mapped_region_count(), 0);
    node.poll();
    assert_eq!([1, 2].map(|tag| node.done(tag)), [Some(Err(WorkError::Abandoned)); 2]);
    drop(wire);
}
