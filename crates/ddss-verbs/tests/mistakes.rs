//! Forty mistakes that a peer can make, one by one: each is named, and costs only the connection.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
mod wire;

use common::Node;
use ddss_verbs::{CloseReason, Fabric, PeerId, Rights, TerminateCode, Window};
use wire::home::{Home, atomic, config, read_request, tagged, terminate, untagged};
use wire::{CRC, Segment, Wire, feed, frame, number};

/// A mistake and what has to be said about it.
type Mistake = (&'static str, Box<dyn Fn(&Window) -> Vec<u8>>, TerminateCode);

fn mistake(what: &'static str, fault: TerminateCode, bytes: impl Fn(&Window) -> Vec<u8> + 'static) -> Mistake {
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
        mistake("a bad crc", TerminateCode::MPA_CRC, move |_| {
            let mut frame = of(hello());
            *frame.last_mut().unwrap() ^= 1;
            frame
        }),
        mistake("a bad crc under a large write", TerminateCode::MPA_CRC, |window| {
            let mut frame = of(tagged(0, window.key, 0, &[1; 4000]));
            frame[100] ^= 4;
            frame
        }),
        mistake("a frame of three bytes", TerminateCode::MPA_FRAME, |_| frame(&[0x41, 0x43, 0], true)),
        mistake("a frame of no bytes", TerminateCode::MPA_FRAME, |_| frame(&[], true)),
        mistake("half an untagged header", TerminateCode::MPA_FRAME, move |_| frame(&hello().bytes()[..17], true)),
        mistake("a wrong ddp version, tagged", TerminateCode::DDP_TAGGED_VERSION, |window| {
            changed(&tagged(0, window.key, 0, b"x"), 0, 0xc2)
        }),
        mistake("a wrong ddp version, untagged", TerminateCode::DDP_UNTAGGED_VERSION, move |_| {
            changed(&hello(), 0, 0x40)
        }),
        mistake("a wrong rdmap version", TerminateCode::RDMAP_VERSION, move |_| changed(&hello(), 1, 0x83)),
        mistake("an unknown opcode", TerminateCode::RDMAP_OPCODE, |_| of(untagged(13, 0, 1, b""))),
        mistake("an unknown opcode, tagged", TerminateCode::RDMAP_OPCODE, |_| of(tagged(12, 1, 1, b""))),
        mistake("a tagged message", TerminateCode::RDMAP_OPCODE, |window| of(tagged(3, window.key, 0, b"x"))),
        mistake("an untagged write", TerminateCode::RDMAP_OPCODE, |_| of(untagged(0, 0, 1, b"x"))),
        mistake("a read request among the messages", TerminateCode::RDMAP_OPCODE, |_| of(untagged(1, 0, 1, &[0; 28]))),
        mistake("an unknown queue", TerminateCode::DDP_QUEUE, |_| of(untagged(3, 4, 1, b"x"))),
        mistake("a message number that was not its turn", TerminateCode::DDP_SEQUENCE, |_| of(untagged(3, 0, 2, b"x"))),
        mistake("message number zero", TerminateCode::DDP_SEQUENCE, |_| of(untagged(3, 0, 0, b"x"))),
        mistake("a message that starts in its middle", TerminateCode::DDP_OFFSET, |_| {
            of(Segment::Untagged { last: true, opcode: 3, word: 0, queue: 0, number: 1, offset: 4, payload: vec![1] })
        }),
        mistake("a message that is too long", TerminateCode::DDP_TOO_LONG, |_| of(untagged(3, 0, 1, &[0; 513]))),
        mistake("a message that grows too long", TerminateCode::DDP_TOO_LONG, |_| {
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
        mistake("a message of endless nothing", TerminateCode::RDMAP_STREAM, |_| {
            of(Segment::Untagged { last: false, opcode: 3, word: 0, queue: 0, number: 1, offset: 0, payload: vec![] })
        }),
        mistake("a read request that is too short", TerminateCode::RDMAP_STREAM, |_| of(untagged(1, 1, 1, &[0; 27]))),
        mistake("a read request that is too long", TerminateCode::DDP_TOO_LONG, |_| of(untagged(1, 1, 1, &[0; 29]))),
        mistake("a read request that was not its turn", TerminateCode::DDP_SEQUENCE, |window| {
            of(untagged(1, 1, 3, &read_request(8, window.key, 0)))
        }),
        mistake("a read with a bad key", TerminateCode::RDMAP_KEY, |window| {
            of(untagged(1, 1, 1, &read_request(8, window.key ^ 1, 0)))
        }),
        mistake("a read out of bounds", TerminateCode::RDMAP_BOUNDS, |window| {
            of(untagged(1, 1, 1, &read_request(8, window.key, 4089)))
        }),
        mistake("a read of four gigabytes", TerminateCode::RDMAP_BOUNDS, |window| {
            of(untagged(1, 1, 1, &read_request(u32::MAX, window.key, 0)))
        }),
        mistake("a read that wraps around", TerminateCode::RDMAP_WRAP, |window| {
            of(untagged(1, 1, 1, &read_request(8, window.key, u64::MAX - 3)))
        }),
        mistake("a write with a bad key", TerminateCode::DDP_KEY, |window| of(tagged(0, window.key ^ 1, 0, b"x"))),
        mistake("a write out of bounds", TerminateCode::DDP_BOUNDS, |window| of(tagged(0, window.key, 4096, b"x"))),
        mistake("a write that wraps around", TerminateCode::DDP_WRAP, |window| {
            of(tagged(0, window.key, u64::MAX, b"xy"))
        }),
        mistake("an answer that nobody asked for", TerminateCode::DDP_KEY, |window| of(tagged(2, window.key, 0, b"x"))),
        mistake("an atomic answer that nobody asked for", TerminateCode::RDMAP_OPCODE, |_| {
            of(untagged(11, 3, 1, &[0; 12]))
        }),
        mistake("an atomic of an unknown kind", TerminateCode::RDMAP_OPCODE, |window| {
            of(untagged(10, 1, 1, &atomic(1, window.key, 0)))
        }),
        mistake("an unaligned atomic", TerminateCode::RDMAP_UNSPECIFIED, |window| {
            of(untagged(10, 1, 1, &atomic(0, window.key, 4)))
        }),
        mistake("an atomic with a bad key", TerminateCode::RDMAP_KEY, |window| {
            of(untagged(10, 1, 1, &atomic(0, window.key ^ 8, 0)))
        }),
        mistake("a key withdrawn that is not there", TerminateCode::RDMAP_INVALIDATE, |window| {
            let word = window.key ^ 1;
            of(Segment::Untagged { last: true, opcode: 4, word, queue: 0, number: 1, offset: 0, payload: vec![] })
        }),
        mistake("an immediate of nine bytes", TerminateCode::DDP_TOO_LONG, |_| of(untagged(8, 0, 1, &[0; 9]))),
        mistake("a terminate of three bytes", TerminateCode::RDMAP_STREAM, |_| of(untagged(7, 2, 1, &[0; 3]))),
        mistake("more reads than were agreed on", TerminateCode::DDP_NO_BUFFER, |window| {
            (1..=3).flat_map(|turn| of(untagged(1, 1, turn, &read_request(8, window.key, 0)))).collect()
        }),
    ]
}

/// The last of some frames, without what MPA puts around it.
fn last_ulpdu(frames: &[u8]) -> &[u8] {
    let end = 2 + number(&frames[..2]) as usize;
    match &frames[end.next_multiple_of(4) + 4..] {
        [] => &frames[2..end],
        more => last_ulpdu(more),
    }
}

/// What a terminate says behind its code: of the segment that it blames the length, the header, and all of a read request.
/// Of what MPA finds it says nothing.
fn blames(ulpdu: &[u8]) -> Vec<u8> {
    let header = if ulpdu[0] & 0x80 != 0 { 14 } else { 18 };
    let is_read = header == 18 && ulpdu[1] & 0xf == 1 && ulpdu.len() >= header + 28;
    let (flags, shown) = if is_read { (0xe0, header + 28) } else { (0xc0, header) };
    [&[flags, 0][..], &(ulpdu.len() as u16).to_be_bytes(), &ulpdu[..shown]].concat()
}

/// The last of some frames is a mistake: it is named and blamed, and costs the connection.
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
    assert_eq!(home.closed(peer), CloseReason::Broken(fault), "{what}");
    home.is_clean(Some(wire));
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

/// With and without CRC, and at once or byte by byte.
const WAYS: [(bool, bool); 4] = [(true, false), (true, true), (false, false), (false, true)];

#[test]
fn each_mistake_is_named_and_costs_only_the_connection() {
    // If this failed, a broken or hostile node would crash, confuse or outlast the daemon it talks to.
    for (what, bytes, fault) in mistakes() {
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
fn what_a_window_does_not_allow_is_refused_by_name() {
    // If this failed, whoever may only read could write, or would be cut off without a word about why. DDP knows no rights:
    // it is RDMAP that says it, of a write as well.
    type Use = fn(&Window) -> Segment;
    let uses: [(&str, Rights, Use); 4] = [
        ("a write", Rights::READ.and(Rights::ATOMIC), |window| tagged(0, window.key, window.base, b"x")),
        ("a read", Rights::WRITE.and(Rights::ATOMIC), |window| {
            untagged(1, 1, 1, &read_request(8, window.key, window.base))
        }),
        ("an addition", Rights::READ.and(Rights::WRITE), |window| {
            untagged(10, 1, 1, &atomic(0, window.key, window.base))
        }),
        ("a swap", Rights::READ.and(Rights::WRITE), |window| untagged(10, 1, 1, &atomic(2, window.key, window.base))),
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
            assert_eq!(TerminateCode { layer, kind, code }, TerminateCode::MPA_FRAME);
            assert_eq!(home.closed(peer), CloseReason::Broken(TerminateCode::MPA_FRAME));
        }
        home.is_clean(Some(&mut wire));
    }
}
