//! Received markers, built by the independent encoder, and frames of maximum length.

use std::collections::BTreeSet;

use crate::common::{ALL, Memory, Node, OwnedEvent, pattern};
use crate::wire::accepting::{Home, config, read_request, tagged, terminate, untagged};
use crate::wire::connecting::{reached, until};
use crate::wire::{CRC, MARKERS, Wire, crc32c, feed, number, start};
use ddss_verbs::{CloseReason, Fabric, Iwarp, LocalRange, PeerId, RemoteRange, Revision, TerminateCode, Window, Work};

/// Header lengths of a tagged and an untagged ULPDU.
const HEADERS: (usize, usize) = (14, 18);
/// Bytes of the longest ULPDU: its length has 16 bits.
const LONGEST: usize = 65_535;

/// Creates a home, a connected peer, and a window of all its memory.
fn meet(crc: bool, markers: bool, flags: u8) -> (Home, Wire, PeerId, Window) {
    let mut home = Home::new(config(|config| {
        config.crc = crc;
        config.markers = markers;
    }));
    let (wire, peer, _) = home.meet(flags | if crc { CRC } else { 0 });
    assert_eq!(wire.marks, markers, "the reply asks for what is configured");
    let window = home.node.fabric.expose(peer, home.region, 0, home.memory.bytes, ALL).unwrap();
    (home, wire, peer, window)
}

#[test]
fn markers_are_parsed_at_every_position() {
    // If this failed, we would request markers and then lose our place in the stream.
    for (crc, piece) in [(true, 1 << 20), (false, 1 << 20), (true, 61), (false, 61)] {
        let (mut home, mut wire, peer, window) = meet(crc, true, MARKERS);
        let mut places = BTreeSet::new();
        // One round for each word between two markers, each starting at another word.
        for turn in 1..=127_u32 {
            let (value, message) = (pattern(turn.into(), 5000), pattern(u64::from(turn) << 20, 100));
            let offset = u64::from(turn);
            let write = wire.frame(&tagged(0, window.key, window.base + offset, &value).bytes());
            let position = wire.sent;
            let said = wire.frame(&untagged(3, 0, turn, &message).bytes());
            places.extend((0..said.len()).filter(|at| (position + *at as u64).is_multiple_of(512)));
            feed(&mut home.node, &mut wire, &[write, said].concat(), piece);
            assert_eq!(home.wait("the message", Node::message), message, "round {turn}");
            assert!(home.memory.get(offset, 5000) == value, "round {turn}");
            assert_eq!(home.memory.get(offset + 5000, 8), [0; 8], "nothing behind it");
            wire.segment(&untagged(1, 1, turn, &read_request(5000, window.key, window.base + offset)));
            let answer = home.wait("the answer", |_| {
                wire.receive();
                wire.next()
            });
            assert!(answer.payload() == value, "round {turn}");
        }
        let everywhere: BTreeSet<usize> = (0..=2 + HEADERS.1 + 100).step_by(4).collect();
        assert_eq!(places, everywhere, "before the length, in the header, in the payload, before the sum");
        home.node.fabric.close(peer);
        assert_eq!(home.closed(peer), CloseReason::Local);
        home.assert_clean(Some(&mut wire));
    }
}

/// Returns the marker positions in a frame of this length that starts at `position`.
fn markers_in(position: u64, bytes: usize) -> Vec<usize> {
    (0..bytes).filter(|at| (position + *at as u64).is_multiple_of(512)).collect()
}

#[test]
fn bit_error_in_a_marked_frame_ends_the_stream() {
    // If this failed, a connection with checksums and markers would have no checksums: damaged bytes would land in
    // memory.
    let (first, second) = (384, 896);
    let end = 1032;
    let cases = [
        ("the length", 1, 0x01, TerminateCode::MPA_CRC),
        ("what it is", 3, 0x01, TerminateCode::MPA_CRC),
        ("the key", 6, 0x10, TerminateCode::MPA_CRC),
        ("the address", 15, 0x02, TerminateCode::MPA_CRC),
        ("the payload", 100, 0x80, TerminateCode::MPA_CRC),
        ("what is reserved in a marker", first, 0x40, TerminateCode::MPA_CRC),
        ("what is reserved in the other marker", second + 1, 0x01, TerminateCode::MPA_CRC),
        ("where a marker points", first + 2, 0x80, TerminateCode::MPA_FRAME),
        ("where the other marker points", second + 3, 0x04, TerminateCode::MPA_FRAME),
        ("the last of the payload", end - 8, 0x08, TerminateCode::MPA_CRC),
        ("the padding", end - 6, 0x20, TerminateCode::MPA_CRC),
        ("the sum", end - 4, 0x01, TerminateCode::MPA_CRC),
        ("the end of the sum", end - 1, 0x80, TerminateCode::MPA_CRC),
    ];
    for (what, at, bit, fault) in cases {
        let (mut home, mut wire, peer, window) = meet(true, true, 0);
        wire.segment(&untagged(3, 0, 1, &[1; 100]));
        assert_eq!(home.wait("the message", Node::message), [1; 100]);
        let position = wire.sent;
        let mut frame = wire.frame(&tagged(0, window.key, window.base, &[7; 1001]).bytes());
        assert_eq!((markers_in(position, frame.len()), frame.len()), (vec![first, second], end));
        frame[at] ^= bit;
        wire.send(&frame);
        let (layer, kind, code, payload) = terminate(what, &mut home, &mut wire);
        assert_eq!((TerminateCode { layer, kind, code }, payload.len()), (fault, 4), "{what}");
        assert_eq!(home.closed(peer), CloseReason::ProtocolViolation(fault), "{what}");
        home.assert_clean(Some(&mut wire));
        assert_eq!(home.memory.get(0, 1001), [0; 1001], "{what}");
    }
}

#[test]
fn reserved_bits_of_a_marker_are_ignored() {
    // If this failed, an adapter that uses the reserved bits of RFC 5044 could not talk to us. The receiver ignores
    // the first two bytes, and takes the last two bits of the distance as zero.
    let (mut home, mut wire, peer, _) = meet(true, true, 0);
    for (turn, reserved) in (1..).zip([[0xff, 0xff, 0, 0], [0, 0, 0, 3], [0x80, 1, 0, 1]]) {
        // The first frame starts with a marker; another one follows in each.
        let mut frame = wire.frame(&untagged(3, 0, turn, &pattern(turn.into(), 500)).bytes());
        let at = *markers_in(wire.sent - frame.len() as u64, frame.len()).last().unwrap();
        for (byte, bits) in frame[at..].iter_mut().zip(reserved) {
            *byte |= bits;
        }
        let sum = frame.len() - 4;
        let crc = crc32c(&frame[..sum]);
        frame[sum..].copy_from_slice(&crc.to_le_bytes());
        wire.send(&frame);
        assert_eq!(home.wait("the message", Node::message), pattern(turn.into(), 500));
    }
    home.node.fabric.close(peer);
    assert_eq!(home.closed(peer), CloseReason::Local);
    home.assert_clean(Some(&mut wire));
}

/// Iterates over CRC, markers, and the length of a piece.
fn ways() -> impl Iterator<Item = (bool, bool, usize)> {
    let kinds = [(true, true), (true, false), (false, true), (false, false)];
    kinds.into_iter().flat_map(|(crc, markers)| [4096, 1021].map(|piece| (crc, markers, piece)))
}

/// Sends all but the end in pieces, and the end byte by byte, so that the longest possible part of an incomplete frame
/// is buffered.
fn trickle(node: &mut Node<Iwarp>, wire: &mut Wire, frame: &[u8], piece: usize) {
    let (most, end) = frame.split_at(frame.len() - 9);
    feed(node, wire, most, piece);
    feed(node, wire, end, 1);
}

#[test]
fn longest_frame_may_arrive_in_pieces() {
    // If this failed, a single valid frame of any peer could end the daemon.
    for (crc, markers, piece) in ways() {
        let (mut home, mut wire, peer, window) = meet(crc, markers, 0);
        let value = pattern(piece as u64, LONGEST - HEADERS.0);
        let frame = wire.frame(&tagged(0, window.key, window.base + 3, &value).bytes());
        assert!(frame.len() > LONGEST + if markers { 500 } else { 0 });
        trickle(&mut home.node, &mut wire, &frame, piece);
        wire.segment(&untagged(3, 0, 1, b"and on"));
        assert_eq!(home.wait("the message", Node::message), b"and on");
        assert!(home.memory.get(3, value.len()) == value);
        assert_eq!(home.memory.get(3 + value.len() as u64, 8), [0; 8], "nothing behind it");
        // No message is that long.
        let frame = wire.frame(&untagged(3, 0, 2, &vec![7; LONGEST - HEADERS.1]).bytes());
        trickle(&mut home.node, &mut wire, &frame, piece);
        let (layer, kind, code, payload) = terminate("too long", &mut home, &mut wire);
        assert_eq!(TerminateCode { layer, kind, code }, TerminateCode::DDP_TOO_LONG);
        assert_eq!(number(&payload[4..6]) as usize, LONGEST, "it says how long it was");
        assert_eq!(home.closed(peer), CloseReason::ProtocolViolation(TerminateCode::DDP_TOO_LONG));
        home.assert_clean(Some(&mut wire));
    }
}

#[test]
fn longest_answer_may_arrive_in_pieces() {
    // If this failed, a home that answers in frames of maximum length would end the daemon that reads from it.
    for (crc, markers, piece) in ways() {
        let config = config(|config| {
            config.revision = Revision::One;
            config.crc = crc;
            config.markers = markers;
        });
        let (mut node, peer, mut wire) = reached(config, start(false, 0, 1, b""));
        let memory = Memory::new(1 << 20);
        let region = node.register(&memory);
        let value = pattern(piece as u64, LONGEST - HEADERS.0);
        let local = LocalRange { region, offset: 5, bytes: value.len() as u64 };
        node.fabric.post(&[Work::Read { peer, tag: 1, local, remote: RemoteRange { key: 7, address: 0 } }]).unwrap();
        let request = until(&mut node, "the request", |_| {
            wire.receive();
            wire.next()
        });
        let (stag, offset) = (number(&request.payload()[..4]) as u32, number(&request.payload()[4..12]));
        let frame = wire.frame(&tagged(2, stag, offset, &value).bytes());
        trickle(&mut node, &mut wire, &frame, piece);
        assert_eq!(until(&mut node, "the read", |node| node.done(1)), Ok(0));
        assert!(memory.get(5, value.len()) == value);
        assert_eq!((memory.get(0, 5), memory.get(5 + value.len() as u64, 8)), (vec![0; 5], vec![0; 8]));
        drop(wire);
        until(&mut node, "the end", |node| node.take(|seen| matches!(seen, OwnedEvent::Closed { .. })));
    }
}
