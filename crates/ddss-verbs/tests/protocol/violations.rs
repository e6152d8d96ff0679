//! Forty protocol violations, one by one: each is named, and costs only its connection.

use crate::common::Node;
use crate::wire;
use crate::wire::accepting::{Home, atomic, config, read_request, tagged, terminate, untagged};
use crate::wire::{CRC, Segment, Wire, feed, frame, number};
use ddss_verbs::{CloseReason, Fabric, PeerId, Rights, TerminateCode, Window};

/// A violation and the expected terminate code.
type Violation = (&'static str, Box<dyn Fn(&Window) -> Vec<u8>>, TerminateCode);

fn violation(what: &'static str, fault: TerminateCode, bytes: impl Fn(&Window) -> Vec<u8> + 'static) -> Violation {
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

fn violations() -> Vec<Violation> {
    let hello = || untagged(3, 0, 1, b"hello");
    vec![
        violation("a bad crc", TerminateCode::MPA_CRC, move |_| {
            let mut frame = of(hello());
            *frame.last_mut().unwrap() ^= 1;
            frame
        }),
        violation("a bad crc under a large write", TerminateCode::MPA_CRC, |window| {
            let mut frame = of(tagged(0, window.key, 0, &[1; 4000]));
            frame[100] ^= 4;
            frame
        }),
        violation("a frame of three bytes", TerminateCode::MPA_FRAME, |_| frame(&[0x41, 0x43, 0], true)),
        violation("a frame of no bytes", TerminateCode::MPA_FRAME, |_| frame(&[], true)),
        violation("half an untagged header", TerminateCode::MPA_FRAME, move |_| frame(&hello().bytes()[..17], true)),
        violation("a wrong ddp version, tagged", TerminateCode::DDP_TAGGED_VERSION, |window| {
            changed(&tagged(0, window.key, 0, b"x"), 0, 0xc2)
        }),
        violation("a wrong ddp version, untagged", TerminateCode::DDP_UNTAGGED_VERSION, move |_| {
            changed(&hello(), 0, 0x40)
        }),
        violation("a wrong rdmap version", TerminateCode::RDMAP_VERSION, move |_| changed(&hello(), 1, 0x83)),
        violation("an unknown opcode", TerminateCode::RDMAP_OPCODE, |_| of(untagged(13, 0, 1, b""))),
        violation("an unknown opcode, tagged", TerminateCode::RDMAP_OPCODE, |_| of(tagged(12, 1, 1, b""))),
        violation("a tagged message", TerminateCode::RDMAP_OPCODE, |window| of(tagged(3, window.key, 0, b"x"))),
        violation("an untagged write", TerminateCode::RDMAP_OPCODE, |_| of(untagged(0, 0, 1, b"x"))),
        violation("a read request among the messages", TerminateCode::RDMAP_OPCODE, |_| {
            of(untagged(1, 0, 1, &[0; 28]))
        }),
        violation("an unknown queue", TerminateCode::DDP_QUEUE, |_| of(untagged(3, 4, 1, b"x"))),
        violation("a message number that was not its turn", TerminateCode::DDP_SEQUENCE, |_| {
            of(untagged(3, 0, 2, b"x"))
        }),
        violation("message number zero", TerminateCode::DDP_SEQUENCE, |_| of(untagged(3, 0, 0, b"x"))),
        violation("a message that starts in its middle", TerminateCode::DDP_OFFSET, |_| {
            of(Segment::Untagged { last: true, opcode: 3, word: 0, queue: 0, number: 1, offset: 4, payload: vec![1] })
        }),
        violation("a message that is too long", TerminateCode::DDP_TOO_LONG, |_| of(untagged(3, 0, 1, &[0; 513]))),
        violation("a message that grows too long", TerminateCode::DDP_TOO_LONG, |_| {
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
        violation("a message of endless nothing", TerminateCode::RDMAP_STREAM, |_| {
            of(Segment::Untagged { last: false, opcode: 3, word: 0, queue: 0, number: 1, offset: 0, payload: vec![] })
        }),
        violation("a read request that is too short", TerminateCode::RDMAP_STREAM, |_| of(untagged(1, 1, 1, &[0; 27]))),
        violation("a read request that is too long", TerminateCode::DDP_TOO_LONG, |_| of(untagged(1, 1, 1, &[0; 29]))),
        violation("a read request that was not its turn", TerminateCode::DDP_SEQUENCE, |window| {
            of(untagged(1, 1, 3, &read_request(8, window.key, 0)))
        }),
        violation("a read with a bad key", TerminateCode::RDMAP_KEY, |window| {
            of(untagged(1, 1, 1, &read_request(8, window.key ^ 1, 0)))
        }),
        violation("a read out of bounds", TerminateCode::RDMAP_BOUNDS, |window| {
            of(untagged(1, 1, 1, &read_request(8, window.key, 4089)))
        }),
        violation("a read of four gigabytes", TerminateCode::RDMAP_BOUNDS, |window| {
            of(untagged(1, 1, 1, &read_request(u32::MAX, window.key, 0)))
        }),
        violation("a read that wraps around", TerminateCode::RDMAP_WRAP, |window| {
            of(untagged(1, 1, 1, &read_request(8, window.key, u64::MAX - 3)))
        }),
        violation("a write with a bad key", TerminateCode::DDP_KEY, |window| of(tagged(0, window.key ^ 1, 0, b"x"))),
        violation("a write out of bounds", TerminateCode::DDP_BOUNDS, |window| of(tagged(0, window.key, 4096, b"x"))),
        violation("a write that wraps around", TerminateCode::DDP_WRAP, |window| {
            of(tagged(0, window.key, u64::MAX, b"xy"))
        }),
        violation("an unrequested answer", TerminateCode::DDP_KEY, |window| of(tagged(2, window.key, 0, b"x"))),
        violation("an unrequested atomic answer", TerminateCode::RDMAP_OPCODE, |_| of(untagged(11, 3, 1, &[0; 12]))),
        violation("an atomic of an unknown kind", TerminateCode::RDMAP_OPCODE, |window| {
            of(untagged(10, 1, 1, &atomic(1, window.key, 0)))
        }),
        violation("an unaligned atomic", TerminateCode::RDMAP_UNSPECIFIED, |window| {
            of(untagged(10, 1, 1, &atomic(0, window.key, 4)))
        }),
        violation("an atomic with a bad key", TerminateCode::RDMAP_KEY, |window| {
            of(untagged(10, 1, 1, &atomic(0, window.key ^ 8, 0)))
        }),
        violation("a key withdrawn that is not there", TerminateCode::RDMAP_INVALIDATE, |window| {
            let word = window.key ^ 1;
            of(Segment::Untagged { last: true, opcode: 4, word, queue: 0, number: 1, offset: 0, payload: vec![] })
        }),
        violation("an immediate of nine bytes", TerminateCode::DDP_TOO_LONG, |_| of(untagged(8, 0, 1, &[0; 9]))),
        violation("a terminate of three bytes", TerminateCode::RDMAP_STREAM, |_| of(untagged(7, 2, 1, &[0; 3]))),
        violation("more reads than were agreed on", TerminateCode::DDP_NO_BUFFER, |window| {
            (1..=3).flat_map(|turn| of(untagged(1, 1, turn, &read_request(8, window.key, 0)))).collect()
        }),
    ]
}

/// Returns the ULPDU of the last of some frames.
fn last_ulpdu(frames: &[u8]) -> &[u8] {
    let end = 2 + number(&frames[..2]) as usize;
    match &frames[end.next_multiple_of(4) + 4..] {
        [] => &frames[2..end],
        more => last_ulpdu(more),
    }
}

/// Returns the terminate body after its code: length and header of the named segment, and all of a read request. For
/// errors of MPA it is empty.
fn blames(ulpdu: &[u8]) -> Vec<u8> {
    let header = if ulpdu[0] & 0x80 != 0 { 14 } else { 18 };
    let is_read = header == 18 && ulpdu[1] & 0xf == 1 && ulpdu.len() >= header + 28;
    let (flags, shown) = if is_read { (0xe0, header + 28) } else { (0xc0, header) };
    [&[flags, 0][..], &(ulpdu.len() as u16).to_be_bytes(), &ulpdu[..shown]].concat()
}

/// Checks that the last of some frames is named in the terminate and costs only the connection.
fn costs_the_connection(
    what: &str,
    home: &mut Home,
    wire: &mut Wire,
    peer: PeerId,
    frames: &[u8],
    fault: TerminateCode,
) {
    let (layer, kind, code, payload) = terminate(what, home, wire);
    assert_eq!(TerminateCode { layer, kind, code }, fault, "{what}");
    let blamed = if layer == 2 { vec![0, 0] } else { blames(last_ulpdu(frames)) };
    assert_eq!(payload[2..], blamed, "{what}: the segment that it shows is the one that was sent");
    assert_eq!(home.closed(peer), CloseReason::ProtocolViolation(fault), "{what}");
    home.assert_clean(Some(wire));
    assert_eq!(home.memory.get(0, 4096), [6; 4096], "{what}");
}

fn home(crc: bool) -> Home {
    let home = Home::new(config(|config| {
        config.crc = crc;
        config.reads_inbound = 2;
    }));
    home.memory.set(0, &[6; 4096]);
    home
}

/// CRC on or off, and all at once or byte by byte.
const WAYS: [(bool, bool); 4] = [(true, false), (true, true), (false, false), (false, true)];

#[test]
fn each_violation_is_named_and_costs_only_the_connection() {
    // If this failed, a faulty or hostile node would crash, confuse or outlast the daemon.
    for (what, bytes, fault) in violations() {
        for (crc, one_by_one) in WAYS {
            if !crc && fault == TerminateCode::MPA_CRC {
                continue;
            }
            let mut home = home(crc);
            let (mut wire, peer, window) = home.meet(if crc { CRC } else { 0 });
            let bytes = bytes(&window);
            let one_by_one = one_by_one && bytes.len() < 150;
            feed(&mut home.node, &mut wire, &bytes, if one_by_one { 1 } else { bytes.len() });
            costs_the_connection(what, &mut home, &mut wire, peer, &bytes, fault);
        }
    }
}

#[test]
fn missing_right_is_named_in_the_terminate() {
    // If this failed, a peer with read access could write, or would be closed without a reason. DDP knows no rights:
    // RDMAP reports this, for a write as well.
    type Use = fn(&Window) -> Segment;
    let uses: [(&str, Rights, Use); 4] = [
        ("a write", Rights::READ.union(Rights::ATOMIC), |window| tagged(0, window.key, window.base, b"x")),
        ("a read", Rights::WRITE.union(Rights::ATOMIC), |window| {
            untagged(1, 1, 1, &read_request(8, window.key, window.base))
        }),
        ("an addition", Rights::READ.union(Rights::WRITE), |window| {
            untagged(10, 1, 1, &atomic(0, window.key, window.base))
        }),
        ("a swap", Rights::READ.union(Rights::WRITE), |window| untagged(10, 1, 1, &atomic(2, window.key, window.base))),
    ];
    for (what, rights, segment) in uses {
        for (crc, one_by_one) in WAYS {
            let mut home = home(crc);
            let (mut wire, peer, _) = home.meet(if crc { CRC } else { 0 });
            let window = home.node.fabric.expose(peer, home.region, 0, 4096, rights).unwrap();
            let bytes = of(segment(&window));
            feed(&mut home.node, &mut wire, &bytes, if one_by_one { 1 } else { bytes.len() });
            costs_the_connection(
                what,
                &mut home,
                &mut wire,
                peer,
                &bytes,
                TerminateCode { layer: 0, kind: 1, code: 2 },
            );
        }
    }
}

#[test]
fn wrong_marker_ends_the_stream() {
    // If this failed, a stream that lost its place would be read from the wrong byte on.
    for (marker, good) in [([0, 0, 0, 0], true), ([0, 0, 0, 4], false)] {
        let mut home = Home::new(config(|config| config.markers = true));
        let (mut wire, peer, _) = home.meet(CRC);
        // A marker precedes the first frame and is covered by its checksum.
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
            assert_eq!(TerminateCode { layer, kind, code }, TerminateCode::MPA_FRAME);
            assert_eq!(home.closed(peer), CloseReason::ProtocolViolation(TerminateCode::MPA_FRAME));
        }
        home.assert_clean(Some(&mut wire));
    }
}
