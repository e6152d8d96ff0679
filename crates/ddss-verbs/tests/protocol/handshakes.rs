//! Rejected handshakes, byte for byte, and the first frame after an accept.

use crate::common::OwnedEvent;
use crate::wire::accepting::{Home, tagged, untagged};
use crate::wire::connecting::{reach, until};
use crate::wire::{CRC, ENHANCED, REJECT, Segment, Wire, start};
use ddss_verbs::{CloseReason, Fabric, IwarpConfig, TerminateCode};

/// Peer to peer, four reads each way, and the ready-to-receive messages of the connecting side.
const BY_NOTHING: [u8; 4] = [0x80, 4, 0, 4];
const BY_SEND: [u8; 4] = [0xc0, 4, 0, 4];
const BY_WRITE: [u8; 4] = [0x80, 4, 0x80, 4];

/// Returns everything that the home still sends.
fn rest(home: &mut Home, wire: &mut Wire) -> Vec<u8> {
    home.wait("the end of the stream", |_| (!wire.receive()).then_some(()));
    std::mem::take(&mut wire.inbox)
}

#[test]
fn reject_uses_the_revision_of_the_request() {
    // If this failed, a foreign node would see a broken connection instead of the reason for its rejection.
    let longest = [b'x'; 256];
    for reason in [&b"wrong cluster"[..], b"", &longest] {
        let requests = [
            (1, start(true, CRC, 1, b"raw")),
            (2, start(true, CRC, 2, b"raw")),
            (2, start(true, CRC | ENHANCED, 2, &[&BY_WRITE[..], b"raw"].concat())),
        ];
        for (revision, request) in requests {
            let mut home = Home::new(IwarpConfig::default());
            let mut wire = Wire::connect(home.address);
            wire.send(&request);
            let peer = home.asked();
            home.node.fabric.reject(peer, reason).unwrap();
            let expected =
                [&b"MPA ID Rep Frame"[..], &[0x20, revision, (reason.len() >> 8) as u8, reason.len() as u8], reason];
            assert_eq!(rest(&mut home, &mut wire), expected.concat());
            assert_eq!(home.closed(peer), CloseReason::Local);
            assert!(home.node.fabric.accept(peer, b"").is_err());
            home.assert_clean(Some(&mut wire));
        }
    }
}

#[test]
fn request_without_ready_message_is_rejected() {
    // If this failed, both sides would wait for each other's first message, until the deadline.
    let mut home = Home::new(IwarpConfig::default());
    let mut wire = Wire::connect(home.address);
    wire.send(&start(true, CRC | ENHANCED, 2, &[&BY_NOTHING[..], b"raw"].concat()));
    let peer = home.asked();
    // The owner accepts, and receives *closed*.
    home.node.fabric.accept(peer, b"welcome").unwrap();
    assert_eq!(rest(&mut home, &mut wire), start(false, REJECT, 2, b""));
    assert_eq!(home.closed(peer), CloseReason::Local);
    home.assert_clean(Some(&mut wire));
}

#[test]
fn reply_without_an_offered_ready_message_is_a_violation() {
    // If this failed, this side would be connected to a peer that waits for a message that is never sent. It offers a
    // write and a read: a send would use up one of the peer's buffers.
    for bits in [BY_NOTHING, BY_SEND] {
        let answer = start(false, CRC | ENHANCED, 2, &[&bits[..], b"welcome"].concat());
        let (mut node, peer, mut wire) = reach(IwarpConfig::default(), Some(answer));
        let reason = until(&mut node, "the end", |node| node.closed(peer));
        assert_eq!(reason, CloseReason::ProtocolViolation(TerminateCode::MPA_RTR));
        let said = until(&mut node, "the terminate", |_| {
            wire.receive();
            wire.next()
        });
        assert_eq!(said, untagged(7, 2, 1, &[0x20, 7, 0, 0]));
        until(&mut node, "the end of the stream", |_| (!wire.receive()).then_some(()));
        assert_eq!((wire.next(), &node.seen[..]), (None, &[][..]), "nothing else is sent or reported");
        drop(wire);
        until(&mut node, "the socket to be closed", |node| (node.fabric.open_socket_count() == 0).then_some(()));
    }
}

#[test]
fn connected_precedes_the_first_message() {
    // If this failed, the owner of a fabric would receive a message of a peer that is not connected yet. The
    // connecting side sends its ready-to-receive message and its first message in one go.
    let hello = untagged(3, 0, 1, b"hello");
    let cases: [(&str, [u8; 4], Vec<Segment>); 3] = [
        ("ready by a write", BY_WRITE, vec![tagged(0, 0, 0, b""), hello.clone()]),
        ("ready by a write, and it says hello at once", BY_WRITE, vec![hello.clone()]),
        ("ready by a send", BY_SEND, vec![hello.clone()]),
    ];
    for (what, bits, segments) in cases {
        let mut home = Home::new(IwarpConfig::default());
        let mut wire = Wire::connect(home.address);
        wire.send(&start(true, CRC | ENHANCED, 2, &bits));
        let peer = home.asked();
        home.node.fabric.accept(peer, b"").unwrap();
        let (flags, revision, reply) = home.wait("the reply", |_| {
            wire.receive();
            wire.start(false)
        });
        // It accepts 256 reads, and the offered ready-to-receive message.
        let expected = vec![bits[0] | 1, 0, bits[2], 4];
        assert_eq!((flags, revision, reply), (CRC | ENHANCED, 2, expected), "{what}");
        let frames: Vec<Vec<u8>> = segments.iter().map(|segment| wire.frame(&segment.bytes())).collect();
        wire.send(&frames.concat());
        home.wait("two events", |node| (node.seen.len() >= 2).then_some(()));
        let expected = [
            OwnedEvent::Connected { peer, hello: vec![] },
            OwnedEvent::Message { peer, bytes: b"hello".to_vec(), solicited: false, invalidated: None },
        ];
        assert_eq!(std::mem::take(&mut home.node.seen), expected, "{what}");
        home.node.fabric.close(peer);
        assert_eq!(home.closed(peer), CloseReason::Local);
        home.assert_clean(Some(&mut wire));
    }
}
