//! A raw socket that listens, and a fabric that connects to it.

use std::net::TcpListener;
use std::time::Instant;

use ddss_verbs::{Fabric, Iwarp, IwarpConfig, PeerId};

use super::{CRC, MARKERS, Wire};
use crate::common::{Node, OwnedEvent, WAIT_MAX};

/// Connects a fabric to a raw listener, which optionally answers the request.
pub(crate) fn reach(config: IwarpConfig, answer: Option<Vec<u8>>) -> (Node<Iwarp>, PeerId, Wire) {
    reach_by(&TcpListener::bind("127.0.0.1:0").unwrap(), config, answer)
}

/// Connects to a listener of the caller.
pub(crate) fn reach_by(
    listener: &TcpListener,
    config: IwarpConfig,
    answer: Option<Vec<u8>>,
) -> (Node<Iwarp>, PeerId, Wire) {
    let mut node = Node::new(Iwarp::new(config).unwrap());
    let peer = node.fabric.connect(listener.local_addr().unwrap(), b"hi").unwrap();
    let mut wire = Wire::accept(listener);
    let (asked, _, _) = until(&mut node, "the request", |_| {
        wire.receive();
        wire.start(true)
    });
    if let Some(answer) = answer {
        wire.crc = (asked | answer[16]) & CRC != 0;
        wire.markers = answer[16] & MARKERS != 0;
        wire.marks = asked & MARKERS != 0;
        wire.send(&answer);
    }
    (node, peer, wire)
}

/// Connects and waits until the fabric is connected.
pub(crate) fn reached(config: IwarpConfig, answer: Vec<u8>) -> (Node<Iwarp>, PeerId, Wire) {
    let (mut node, peer, wire) = reach(config, Some(answer));
    until(&mut node, "the connection", |node| node.take(|seen| matches!(seen, OwnedEvent::Connected { .. })));
    (node, peer, wire)
}

pub(crate) fn until<T>(node: &mut Node<Iwarp>, what: &str, mut wanted: impl FnMut(&mut Node<Iwarp>) -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = wanted(node) {
            return found;
        }
        assert!(begin.elapsed() < WAIT_MAX, "waited in vain for {what}; saw {:?}", node.seen);
        node.poll();
        std::hint::spin_loop();
    }
}
