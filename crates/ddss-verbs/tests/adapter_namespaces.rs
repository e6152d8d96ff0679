//! Conformance suite over two RDMA adapters in two network namespaces, connected only by a cable.
//!
//! Without them (`DDSS_RDMA_NETNS`: their names, and the variables of `adapter.rs`) every test passes; `scripts/vm
//! islands` has both.

#![cfg(feature = "rdma")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
#[macro_use]
mod suite;

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use common::{FabricFactory, addresses};
use ddss_verbs::rdma::{Rdma, RdmaConfig};
use ddss_verbs::{Capabilities, Events, Fabric, FabricError, PeerId, PostError, RegionId, Rights, Trust, Window, Work};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A fabric whose connections start in its own namespace.
struct NamespaceFabric {
    inner: Rdma,
    namespace: File,
}

impl NamespaceFabric {
    fn new(name: &str, address: IpAddr) -> Self {
        let namespace = File::open(format!("/run/netns/{name}")).unwrap();
        enter(&namespace);
        let mut config = RdmaConfig::default();
        config.address = Some(address);
        Self { inner: Rdma::new(config).unwrap(), namespace }
    }
}

fn enter(namespace: &File) {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

impl Fabric for NamespaceFabric {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        enter(&self.namespace);
        self.inner.listen(address)
    }

    fn connect(&mut self, address: SocketAddr, hello: &[u8]) -> Result<PeerId, FabricError> {
        enter(&self.namespace);
        self.inner.connect(address, hello)
    }

    fn accept(&mut self, peer: PeerId, hello: &[u8]) -> Result<(), FabricError> {
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
        // The thread that takes the connection manager's events resolves the route to a peer.
        enter(&self.namespace);
        self.inner.poll(events)
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

/// Factory with `a` in one namespace and `b` in the other.
struct NamespacePair {
    names: Vec<String>,
    ways: (IpAddr, IpAddr),
    made: usize,
}

impl FabricFactory for NamespacePair {
    type Fabric = NamespaceFabric;

    fn fabric(&mut self) -> NamespaceFabric {
        self.made += 1;
        if self.made == 1 {
            NamespaceFabric::new(&self.names[0], self.ways.0)
        } else {
            NamespaceFabric::new(&self.names[1], self.ways.1)
        }
    }

    fn address(&mut self) -> SocketAddr {
        SocketAddr::new(self.ways.1, 0)
    }

    fn checks_read_rights(&self) -> bool {
        !ddss_verbs::rdma::adapters().unwrap().iter().any(|adapter| adapter.name.starts_with("siw"))
    }
}

macro_rules! namespaces {
    () => {
        match (addresses(), std::env::var("DDSS_RDMA_NETNS")) {
            (Some(ways), Ok(names)) => {
                NamespacePair { names: names.split(',').map(str::to_owned).collect(), ways, made: 0 }
            }
            _ => return,
        }
    };
}

all_tests!(namespaces, namespaces!());
