//! Factory of two fabrics over RDMA adapters, by address.

use std::net::{IpAddr, SocketAddr};

use ddss_verbs::rdma::{Rdma, RdmaConfig};

use super::FabricFactory;

/// `a` at the first address, every other fabric at the second one.
pub(crate) struct AdapterPair {
    addresses: (IpAddr, IpAddr),
    is_first: bool,
}

impl AdapterPair {
    pub(crate) fn new(a: IpAddr, b: IpAddr) -> Self {
        Self { addresses: (a, b), is_first: true }
    }
}

impl FabricFactory for AdapterPair {
    type Fabric = Rdma;

    fn fabric(&mut self) -> Rdma {
        let (a, b) = self.addresses;
        let mut config = RdmaConfig::default();
        config.address = Some(if std::mem::replace(&mut self.is_first, false) { a } else { b });
        Rdma::new(config).unwrap()
    }

    fn address(&mut self) -> SocketAddr {
        SocketAddr::new(self.addresses.1, 0)
    }
}
