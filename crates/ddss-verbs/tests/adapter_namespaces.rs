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
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use common::{FabricFactory, Forward, addresses, forward_fabric};
use ddss_verbs::Fabric;
use ddss_verbs::rdma::{Rdma, RdmaConfig};
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

impl Forward for NamespaceFabric {
    fn inner(&self) -> &dyn Fabric {
        &self.inner
    }

    /// Enters the namespace: the thread that takes the connection manager's events also resolves the route to a peer.
    fn inner_mut(&mut self) -> &mut dyn Fabric {
        enter(&self.namespace);
        &mut self.inner
    }
}

forward_fabric!(NamespaceFabric);

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
