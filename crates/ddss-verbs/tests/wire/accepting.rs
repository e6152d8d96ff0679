//! A home, and a raw socket that connects to it.

use std::net::SocketAddr;
use std::time::Instant;

use ddss_verbs::{CloseReason, Fabric, Iwarp, IwarpConfig, PeerId, RegionId, Window};

use super::{CRC, MARKERS, Segment, Wire, start};
use crate::common::{ALL, Memory, Node, OwnedEvent, WAIT_MAX};

pub(crate) fn config(change: impl FnOnce(&mut IwarpConfig)) -> IwarpConfig {
    let mut config = IwarpConfig::default();
    change(&mut config);
    config
}

/// A fabric that listens.
pub(crate) struct Home {
    pub(crate) node: Node<Iwarp>,
    pub(crate) address: SocketAddr,
    pub(crate) memory: Memory,
    pub(crate) region: RegionId,
}

impl Home {
    pub(crate) fn new(config: IwarpConfig) -> Self {
        let mut node = Node::new(Iwarp::new(config).unwrap());
        let address = node.fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let memory = Memory::new(1 << 20);
        let region = node.register(&memory);
        Self { node, address, memory, region }
    }

    pub(crate) fn wait<T>(&mut self, what: &str, mut wanted: impl FnMut(&mut Node<Iwarp>) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = wanted(&mut self.node) {
                return found;
            }
            assert!(start.elapsed() < WAIT_MAX, "waited in vain for {what}; saw {:?}", self.node.seen);
            self.node.poll();
            std::hint::spin_loop();
        }
    }

    /// Connects a raw socket with revision 1, and exposes a window to it.
    pub(crate) fn meet(&mut self, flags: u8) -> (Wire, PeerId, Window) {
        let mut wire = Wire::connect(self.address);
        wire.send(&start(true, flags, 1, b"raw"));
        let peer = self.asked();
        let window = self.node.fabric.expose(peer, self.region, 0, 4096, ALL).unwrap();
        self.node.fabric.accept(peer, b"").unwrap();
        let reply = self.wait("the reply", |_| {
            wire.receive();
            wire.start(false)
        });
        wire.crc = reply.0 & CRC != 0;
        wire.markers = flags & MARKERS != 0;
        wire.marks = reply.0 & MARKERS != 0;
        self.wait("to be connected", |node| node.take(|seen| matches!(seen, OwnedEvent::Connected { .. })));
        (wire, peer, window)
    }

    pub(crate) fn asked(&mut self) -> PeerId {
        match self.wait("being asked", |node| node.take(|seen| matches!(seen, OwnedEvent::ConnectRequest { .. }))) {
            OwnedEvent::ConnectRequest { peer, .. } => peer,
            _ => unreachable!(),
        }
    }

    pub(crate) fn closed(&mut self, peer: PeerId) -> CloseReason {
        self.wait("the end", |node| node.closed(peer))
    }

    /// Checks that every resource of a connection was released.
    pub(crate) fn assert_clean(&mut self, wire: Option<&mut Wire>) {
        if let Some(wire) = wire {
            self.wait("the end of the stream", |_| (!wire.receive()).then_some(()));
            wire.stream.shutdown(std::net::Shutdown::Both).ok();
        }
        self.wait("the sockets to be closed", |node| (node.fabric.open_socket_count() == 0).then_some(()));
        // Memory with a hold would stay mapped after its deregistration.
        self.node.fabric.deregister(self.region);
        assert_eq!(self.node.fabric.mapped_region_count(), 0, "its memory is still held");
        self.region = self.node.register(&self.memory);
        assert_eq!(self.node.seen, [], "no event follows the end");
        assert_eq!(self.node.fabric.next_deadline(), None);
    }
}

pub(crate) fn untagged(opcode: u8, queue: u32, number: u32, payload: &[u8]) -> Segment {
    Segment::Untagged { last: true, opcode, word: 0, queue, number, offset: 0, payload: payload.to_vec() }
}

pub(crate) fn tagged(opcode: u8, stag: u32, offset: u64, payload: &[u8]) -> Segment {
    Segment::Tagged { last: true, opcode, stag, offset, payload: payload.to_vec() }
}

pub(crate) fn read_request(bytes: u32, stag: u32, offset: u64) -> Vec<u8> {
    [&7_u32.to_be_bytes()[..], &9_u64.to_be_bytes(), &bytes.to_be_bytes(), &stag.to_be_bytes(), &offset.to_be_bytes()]
        .concat()
}

pub(crate) fn atomic(kind: u32, stag: u32, offset: u64) -> Vec<u8> {
    let mut out = [kind.to_be_bytes(), 5_u32.to_be_bytes(), stag.to_be_bytes()].concat();
    out.extend(offset.to_be_bytes());
    out.extend([0; 32]);
    out
}

/// Returns the home's terminate message: layer, type, code, and the named header.
pub(crate) fn terminate(what: &str, home: &mut Home, wire: &mut Wire) -> (u8, u8, u8, Vec<u8>) {
    let segment = home.wait(what, |_| {
        wire.receive();
        loop {
            match wire.next() {
                Some(segment) if segment.opcode() == 7 => return Some(segment),
                Some(_) => {}
                None => return None,
            }
        }
    });
    let Segment::Untagged { last: true, queue: 2, number: 1, offset: 0, payload, .. } = segment else {
        panic!("{segment:?} is no terminate")
    };
    (payload[0] >> 4, payload[0] & 0xf, payload[1], payload)
}
