//! User-space iWARP over loopback with sealed connections, under keys of the real handshake.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ddss_auth::{Channel, Context, Initiator, respond};
use ddss_verbs::{
    Capabilities, Event, Events, Fabric, FabricError, Iwarp, IwarpConfig, PeerId, PostError, RegionId, Rights, Sealing,
    Trust, Window, Work,
};

use super::FabricFactory;

/// Makes the two ends of one session.
pub(crate) fn session() -> (Sealing, Sealing) {
    let (key, context) = ([7; 32], Context { name: *b"DDSS  test", release: 1 });
    let (initiator, first) = Initiator::begin(&key, &context, &[1; 6]).unwrap();
    let answer = respond(&key, &context, &[2; 6], &first).unwrap();
    let (_, channel) = initiator.finish(&answer.message).unwrap();
    (sealing(channel), sealing(answer.channel))
}

fn sealing(mut channel: Channel) -> Sealing {
    let (mut sealer, mut opener) = channel.take_frame_keys().unwrap();
    assert!(channel.take_frame_keys().is_none(), "keys that are taken twice would repeat nonces");
    Sealing::new(
        move |clear, body| sealer.seal(clear, body),
        move |clear, body, tag| opener.open(clear, body, tag).is_ok(),
    )
}

/// Accepting ends of sessions, in the order of their connections.
type Accepting = Arc<Mutex<VecDeque<Sealing>>>;

/// A fabric that seals each connection.
pub(crate) struct Sealed {
    inner: Iwarp,
    connecting: HashMap<PeerId, Sealing>,
    /// Sessions of peers that ask to connect.
    asking: HashMap<PeerId, Sealing>,
    accepting: Accepting,
}

impl Fabric for Sealed {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        self.inner.listen(address)
    }

    fn connect(&mut self, address: SocketAddr, hello: &[u8]) -> Result<PeerId, FabricError> {
        let peer = self.inner.connect_sealed(address, hello)?;
        let (ours, theirs) = session();
        self.connecting.insert(peer, ours);
        self.accepting.lock().unwrap().push_back(theirs);
        Ok(peer)
    }

    fn accept(&mut self, peer: PeerId, hello: &[u8]) -> Result<(), FabricError> {
        if let Some(sealing) = self.asking.remove(&peer) {
            self.inner.seal(peer, sealing)?;
        }
        self.inner.accept(peer, hello)
    }

    fn reject(&mut self, peer: PeerId, reason: &[u8]) -> Result<(), FabricError> {
        self.inner.reject(peer, reason)
    }

    fn close(&mut self, peer: PeerId) {
        self.inner.close(peer);
    }

    fn register(
        &mut self,
        memory: BorrowedFd<'_>,
        trust: Trust,
        offset: u64,
        bytes: u64,
    ) -> Result<RegionId, FabricError> {
        self.inner.register(memory, trust, offset, bytes)
    }

    fn deregister(&mut self, region: RegionId) {
        self.inner.deregister(region);
    }

    fn expose(
        &mut self,
        peer: PeerId,
        region: RegionId,
        offset: u64,
        bytes: u64,
        rights: Rights,
    ) -> Result<Window, FabricError> {
        self.inner.expose(peer, region, offset, bytes, rights)
    }

    fn withdraw(&mut self, peer: PeerId, key: u32) {
        self.inner.withdraw(peer, key);
    }

    fn post(&mut self, work: &[Work<'_>]) -> Result<(), PostError> {
        self.inner.post(work)
    }

    fn abandon(&mut self, peer: PeerId, tag: u64) -> bool {
        self.inner.abandon(peer, tag)
    }

    fn poll(&mut self, events: &mut Events) -> usize {
        let count = self.inner.poll(events);
        for event in events.iter() {
            if let Event::ConnectRequest { peer, .. } = event {
                let session = self.accepting.lock().unwrap().pop_front().expect("each connection has a session");
                self.asking.insert(peer, session);
            }
            if let Event::Connected { peer, .. } = event
                && let Some(sealing) = self.connecting.remove(&peer)
            {
                self.inner.seal(peer, sealing).unwrap();
            }
        }
        count
    }

    fn arm(&mut self) -> bool {
        self.inner.arm()
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.inner.descriptor()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.inner.next_deadline()
    }
}

/// Factory of fabrics that seal each connection.
#[derive(Default)]
pub(crate) struct SealedLoopback {
    accepting: Accepting,
    trust: Option<Trust>,
}

impl SealedLoopback {
    /// Registers the memory of both sides as exclusive to the polling threads.
    pub(crate) fn exclusive() -> Self {
        Self { trust: Some(Trust::Exclusive), ..Self::default() }
    }
}

impl FabricFactory for SealedLoopback {
    type Fabric = Sealed;

    fn fabric(&mut self) -> Sealed {
        let inner = Iwarp::new(IwarpConfig::default()).unwrap();
        Sealed { inner, connecting: HashMap::new(), asking: HashMap::new(), accepting: Arc::clone(&self.accepting) }
    }

    fn address(&mut self) -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    fn trust(&self) -> Trust {
        self.trust.unwrap_or(Trust::Sealed)
    }
}
