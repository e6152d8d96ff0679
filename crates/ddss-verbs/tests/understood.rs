//! What other implementations may send and we never do, and still have to understand.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
mod wire;

use std::time::Instant;

use common::{ALL, PATIENCE, Seen};
use ddss_verbs::{CloseReason, Fabric, TerminateCode};
use wire::home::{Home, config, read_request, tagged, terminate, untagged};
use wire::{CRC, Segment, number};

fn part(last: bool, number: u32, offset: u32, payload: &[u8]) -> Segment {
    Segment::Untagged { last, opcode: 3, word: 0, queue: 0, number, offset, payload: payload.to_vec() }
}

#[test]
fn a_message_may_come_in_segments_with_writes_between_them() {
    // If this failed, peers with small packets could send us no message that is longer than one.
    let mut home = Home::new(config(|_| {}));
    let (mut wire, peer, window) = home.meet(CRC);
    for turn in 1..4 {
        wire.segment(&part(false, turn, 0, &[1; 200]));
        wire.segment(&tagged(0, window.key, 8, b"between"));
        wire.segment(&part(false, turn, 200, &[2; 300]));
        wire.segment(&part(true, turn, 500, &[3; 12]));
        let message = home.wait("the message", common::Node::message);
        assert_eq!(message, [&[1; 200][..], &[2; 300], &[3; 12]].concat());
        assert_eq!(home.memory.get(8, 7), b"between");
    }
    home.node.fabric.close(peer);
    assert_eq!(home.closed(peer), CloseReason::Local);
    home.is_clean(Some(&mut wire));
}

#[test]
fn a_peer_may_withdraw_what_it_was_given() {
    // If this failed, a kernel client that invalidates its keys would lose its connection, or keep its access.
    for (opcode, solicited) in [(4, false), (6, true)] {
        let mut home = Home::new(config(|_| {}));
        let (mut wire, peer, window) = home.meet(CRC);
        let word = window.key;
        let payload = b"thanks".to_vec();
        wire.segment(&Segment::Untagged { last: true, opcode, word, queue: 0, number: 1, offset: 0, payload });
        let seen = home.wait("the message", |node| node.take(|seen| matches!(seen, Seen::Message { .. })));
        assert_eq!(seen, Seen::Message { peer, bytes: b"thanks".to_vec(), solicited, invalidated: Some(word) });
        wire.segment(&untagged(1, 1, 1, &read_request(8, word, 0)));
        let (layer, kind, code, _) = terminate("the refusal", &mut home, &mut wire);
        assert_eq!(TerminateCode { layer, kind, code }, TerminateCode::RDMAP_KEY);
        home.closed(peer);
        home.is_clean(Some(&mut wire));
    }
}

#[test]
fn the_four_kinds_of_message_are_told_apart() {
    // If this failed, a peer's word to wake up or to take a window back would be lost, or heard where nobody said it.
    let mut home = Home::new(config(|_| {}));
    let (mut wire, peer, _) = home.meet(CRC);
    let (mut number, mut kept) = (0, Vec::new());
    for (opcode, solicited, withdraws) in [(3, false, false), (4, false, true), (5, true, false), (6, true, true)] {
        for pieces in [&[&b"whole"[..]][..], &[b"in two ", b"pieces"]] {
            // Where nothing is withdrawn the word means nothing, whatever it is.
            let word = home.node.fabric.expose(peer, home.region, 0, 4096, ALL).unwrap().key;
            number += 1;
            let mut offset = 0;
            for (index, piece) in pieces.iter().enumerate() {
                let (last, payload) = (index + 1 == pieces.len(), piece.to_vec());
                wire.segment(&Segment::Untagged { last, opcode, word, queue: 0, number, offset, payload });
                offset += piece.len() as u32;
            }
            let seen = home.wait("the message", |node| node.take(|seen| matches!(seen, Seen::Message { .. })));
            let invalidated = withdraws.then_some(word);
            assert_eq!(seen, Seen::Message { peer, bytes: pieces.concat(), solicited, invalidated }, "opcode {opcode}");
            if !withdraws {
                kept.push(word);
            }
        }
    }
    home.memory.set(0, b"8 bytes!");
    for (turn, key) in kept.into_iter().enumerate() {
        wire.segment(&untagged(1, 1, turn as u32 + 1, &read_request(8, key, 0)));
        let answer = home.wait("the answer", |_| {
            wire.receive();
            wire.next()
        });
        assert_eq!(answer, tagged(2, 7, 9, b"8 bytes!"), "a window that was not withdrawn");
    }
    home.node.fabric.close(peer);
    assert_eq!(home.closed(peer), CloseReason::Local);
    home.is_clean(Some(&mut wire));
}

#[test]
fn a_write_whose_window_is_withdrawn_meanwhile_ends_in_nothing() {
    // If this failed, a home that takes a window back would lose each peer that was just writing, or would let its last
    // bytes into memory that belongs to somebody else by now.
    for crc in [CRC, 0] {
        let mut home = Home::new(config(|config| config.crc = crc != 0));
        let (mut wire, peer, window) = home.meet(crc);
        let message = |number, text: &[u8]| untagged(3, 0, number, text);
        let write = |last, offset: u64, payload: &[u8]| Segment::Tagged {
            last,
            opcode: 0,
            stag: window.key,
            offset: window.base + offset,
            payload: payload.to_vec(),
        };
        let told = |home: &mut Home, text: &[u8]| {
            assert_eq!(home.wait("the message", |node| node.message()), text);
        };
        wire.segment(&write(true, 0, b"before"));
        wire.segment(&message(1, b"one"));
        told(&mut home, b"one");
        wire.segment(&write(false, 8, b"first"));
        let start = Instant::now();
        while home.memory.get(8, 5) != b"first" {
            assert!(start.elapsed() < PATIENCE, "the first segment does not arrive");
            home.node.poll();
        }
        home.node.fabric.withdraw(peer, window.key);
        wire.segment(&write(false, 13, b"second"));
        wire.segment(&write(true, 19, b"third"));
        wire.segment(&message(2, b"two"));
        told(&mut home, b"two");
        assert_eq!(home.memory.get(0, 24), b"before\0\0first\0\0\0\0\0\0\0\0\0\0\0");
        // Another one is a mistake.
        wire.segment(&write(true, 0, b"late"));
        terminate("the refusal", &mut home, &mut wire);
        home.closed(peer);
        home.is_clean(Some(&mut wire));
    }
}

#[test]
fn masks_of_atomics_are_respected() {
    // If this failed, an adapter's masked atomics would change bits that belong to somebody else.
    let mut home = Home::new(config(|_| {}));
    let (mut wire, peer, window) = home.meet(CRC);
    let before = 0x00ff_00ff_1234_5678_u64;
    // Kind, operand, mask, compare, compare mask; then what is there after it.
    let cases: [(u32, [u64; 4], u64); 6] = [
        (0, [1, 0, 0, 0], before + 1),
        // Four fields of sixteen bits: no carry from one into the next.
        (0, [0x0001_ff01_0001_ffff, 0x8000_8000_8000_8000, 0, 0], 0x0100_0000_1235_5677),
        (0, [u64::MAX, u64::MAX, 0, 0], !before),
        (2, [0xaaaa, 0xffff, 0x5678, 0xffff], 0x00ff_00ff_1234_aaaa),
        (2, [0xaaaa, 0x00ff, 0x00ff << 48, 0xffff << 48], 0x00ff_00ff_1234_56aa),
        (2, [0xaaaa, u64::MAX, 0x5679, 0xffff], before),
    ];
    for (turn, (kind, operands, after)) in cases.into_iter().enumerate() {
        home.memory.set(16, &before.to_ne_bytes());
        let turn = turn as u32 + 1;
        let mut body = [kind.to_be_bytes(), (70 + turn).to_be_bytes(), window.key.to_be_bytes()].concat();
        body.extend(16_u64.to_be_bytes());
        body.extend(operands.iter().flat_map(|operand| operand.to_be_bytes()));
        wire.segment(&untagged(10, 1, turn, &body));
        let reply = home.wait("the old value", |_| {
            wire.receive();
            wire.next()
        });
        let Segment::Untagged { opcode: 11, queue: 3, number: replied, payload, .. } = reply else {
            panic!("{reply:?}")
        };
        assert_eq!((replied, number(&payload[..4]), number(&payload[4..])), (turn, u64::from(70 + turn), before));
        assert_eq!(home.memory.word(16), after, "kind {kind} with {operands:x?}");
    }
    home.node.fabric.close(peer);
    home.closed(peer);
    home.is_clean(Some(&mut wire));
}
