//! Valid messages that only other implementations send.

use std::time::Instant;

use crate::common;
use crate::common::{ALL, OwnedEvent, WAIT_MAX};
use crate::wire::accepting::{Home, config, read_request, tagged, terminate, untagged};
use crate::wire::{CRC, Segment, number};
use ddss_verbs::{CloseReason, Fabric, TerminateCode};

fn part(last: bool, number: u32, offset: u32, payload: &[u8]) -> Segment {
    Segment::Untagged { last, opcode: 3, word: 0, queue: 0, number, offset, payload: payload.to_vec() }
}

#[test]
fn message_may_arrive_in_segments_between_writes() {
    // If this failed, peers with small packets could send no message longer than one.
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
    home.assert_clean(Some(&mut wire));
}

#[test]
fn peer_may_invalidate_its_window() {
    // If this failed, a kernel client that invalidates its keys would lose its connection, or keep its access.
    for (opcode, solicited) in [(4, false), (6, true)] {
        let mut home = Home::new(config(|_| {}));
        let (mut wire, peer, window) = home.meet(CRC);
        let word = window.key;
        let payload = b"thanks".to_vec();
        wire.segment(&Segment::Untagged { last: true, opcode, word, queue: 0, number: 1, offset: 0, payload });
        let seen = home.wait("the message", |node| node.take(|seen| matches!(seen, OwnedEvent::Message { .. })));
        assert_eq!(seen, OwnedEvent::Message { peer, bytes: b"thanks".to_vec(), solicited, invalidated: Some(word) });
        wire.segment(&untagged(1, 1, 1, &read_request(8, word, 0)));
        let (layer, kind, code, _) = terminate("the refusal", &mut home, &mut wire);
        assert_eq!(TerminateCode { layer, kind, code }, TerminateCode::RDMAP_KEY);
        home.closed(peer);
        home.assert_clean(Some(&mut wire));
    }
}

#[test]
fn four_send_opcodes_are_distinguished() {
    // If this failed, a solicited event or an invalidation would be lost, or assumed without cause.
    let mut home = Home::new(config(|_| {}));
    let (mut wire, peer, _) = home.meet(CRC);
    let (mut number, mut open_keys) = (0, Vec::new());
    for (opcode, solicited, withdraws) in [(3, false, false), (4, false, true), (5, true, false), (6, true, true)] {
        for pieces in [&[&b"whole"[..]][..], &[b"in two ", b"pieces"]] {
            // Without an invalidation the word has no meaning.
            let word = home.node.fabric.expose(peer, home.region, 0, 4096, ALL).unwrap().key;
            number += 1;
            let mut offset = 0;
            for (index, piece) in pieces.iter().enumerate() {
                let (last, payload) = (index + 1 == pieces.len(), piece.to_vec());
                wire.segment(&Segment::Untagged { last, opcode, word, queue: 0, number, offset, payload });
                offset += piece.len() as u32;
            }
            let seen = home.wait("the message", |node| node.take(|seen| matches!(seen, OwnedEvent::Message { .. })));
            let invalidated = withdraws.then_some(word);
            assert_eq!(
                seen,
                OwnedEvent::Message { peer, bytes: pieces.concat(), solicited, invalidated },
                "opcode {opcode}"
            );
            if !withdraws {
                open_keys.push(word);
            }
        }
    }
    home.memory.set(0, b"8 bytes!");
    for (turn, key) in open_keys.into_iter().enumerate() {
        wire.segment(&untagged(1, 1, turn as u32 + 1, &read_request(8, key, 0)));
        let answer = home.wait("the answer", |_| {
            wire.receive();
            wire.next()
        });
        assert_eq!(answer, tagged(2, 7, 9, b"8 bytes!"), "a window that was not withdrawn");
    }
    home.node.fabric.close(peer);
    assert_eq!(home.closed(peer), CloseReason::Local);
    home.assert_clean(Some(&mut wire));
}

#[test]
fn write_into_a_withdrawn_window_is_discarded() {
    // If this failed, a home that withdraws a window would lose each peer that was just writing, or would let its last
    // bytes into memory with a new owner.
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
        let expect_message = |home: &mut Home, text: &[u8]| {
            assert_eq!(home.wait("the message", |node| node.message()), text);
        };
        wire.segment(&write(true, 0, b"before"));
        wire.segment(&message(1, b"one"));
        expect_message(&mut home, b"one");
        wire.segment(&write(false, 8, b"first"));
        let start = Instant::now();
        while home.memory.get(8, 5) != b"first" {
            assert!(start.elapsed() < WAIT_MAX, "the first segment does not arrive");
            home.node.poll();
        }
        home.node.fabric.withdraw(peer, window.key);
        wire.segment(&write(false, 13, b"second"));
        wire.segment(&write(true, 19, b"third"));
        wire.segment(&message(2, b"two"));
        expect_message(&mut home, b"two");
        assert_eq!(home.memory.get(0, 24), b"before\0\0first\0\0\0\0\0\0\0\0\0\0\0");
        // A new write is a violation.
        wire.segment(&write(true, 0, b"late"));
        terminate("the refusal", &mut home, &mut wire);
        home.closed(peer);
        home.assert_clean(Some(&mut wire));
    }
}

#[test]
fn atomic_masks_are_respected() {
    // If this failed, an adapter's masked atomics would change unrelated bits.
    let mut home = Home::new(config(|_| {}));
    let (mut wire, peer, window) = home.meet(CRC);
    let before = 0x00ff_00ff_1234_5678_u64;
    // Kind, operand, mask, compare, compare mask; then the resulting word.
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
    home.assert_clean(Some(&mut wire));
}
